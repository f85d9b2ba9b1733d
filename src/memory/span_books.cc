#include "memory/span_books.h"

#include <algorithm>
#include <bit>
#include <cassert>

namespace hufu::memory {
namespace {

constexpr std::uint64_t words_for(std::uint64_t bits) { return (bits + 63) / 64; }

}  // namespace

Result<std::unique_ptr<SpanBooks>> SpanBooks::make(std::uint64_t granules) {
  assert(granules != 0 && granules <= kMostGranules);
  std::uint64_t bits = 0;  // Words of bits, of all levels.
  for (std::uint64_t words = words_for(granules);; words = words_for(words)) {
    bits += words;
    if (words == 1) break;
  }
  auto table =
      os::LazyTable::make(bits * sizeof(Word) + granules * sizeof(std::atomic<std::uint32_t>));
  if (!table) return table.error();
  return std::unique_ptr<SpanBooks>(new SpanBooks(granules, std::move(*table)));
}

// Zeros are the initial state of what lies in the table.
SpanBooks::SpanBooks(std::uint64_t granules, os::LazyTable table)
    : granules_(granules), table_(std::move(table)) {
  static_assert(std::atomic<std::uint64_t>::is_always_lock_free);
  auto* next = reinterpret_cast<Word*>(table_.data());
  for (std::uint64_t words = words_for(granules);; words = words_for(words)) {
    levels_[level_count_++] = next;
    next += words;
    if (words == 1) break;
  }
  words_ = reinterpret_cast<std::atomic<std::uint32_t>*>(next);
}

void SpanBooks::begin(std::uint64_t life, unsigned shift) {
  shift_.store(shift, std::memory_order_release);
  life_.store(life, std::memory_order_release);
}

void SpanBooks::end() {
  life_.store(0, std::memory_order_seq_cst);
  table_.clear();
}

std::optional<SpanBooks::Span> SpanBooks::find(const Region& pool, std::uintptr_t address) {
  const auto* books = static_cast<const SpanBooks*>(pool.books);
  if (books->life_.load(std::memory_order_acquire) != pool.id) return std::nullopt;
  const unsigned shift = books->shift_.load(std::memory_order_acquire);
  const std::uint64_t granule = (address - pool.base) >> shift;
  if (granule >= books->granules_) return std::nullopt;  // The guard page.
  const auto start = books->last_start(granule);
  if (!start) return std::nullopt;
  // In one order with the tickets of work, as in the registry: see AddressRegistry::Record::end().
  const std::uint64_t count = books->words_[*start].load(std::memory_order_seq_cst);
  if (granule - *start >= count) return std::nullopt;
  if (books->life_.load(std::memory_order_relaxed) != pool.id) return std::nullopt;
  return Span{.offset = *start << shift, .size = count << shift};
}

void SpanBooks::mark(std::uint64_t start, std::uint64_t count) {
  words_[start].store(static_cast<std::uint32_t>(count), std::memory_order_release);
  std::uint64_t bit = start;
  for (std::size_t level = 0; level < level_count_; ++level) {
    Word& word = levels_[level][bit / 64];
    const std::uint64_t before = word.load(std::memory_order_relaxed);
    word.store(before | std::uint64_t{1} << bit % 64, std::memory_order_release);
    if (before != 0) return;  // The levels above know already.
    bit /= 64;
  }
}

void SpanBooks::unmark(std::uint64_t start) {
  words_[start].store(0, std::memory_order_seq_cst);
  std::uint64_t bit = start;
  for (std::size_t level = 0; level < level_count_; ++level) {
    Word& word = levels_[level][bit / 64];
    const std::uint64_t after =
        word.load(std::memory_order_relaxed) & ~(std::uint64_t{1} << bit % 64);
    word.store(after, std::memory_order_release);
    if (after != 0) return;
    bit /= 64;
  }
}

std::optional<std::uint64_t> SpanBooks::last_start(std::uint64_t granule) const {
  std::uint64_t at = granule;  // Looked for: the last bit of the level up to this one.
  std::size_t level = 0;
  while (true) {
    const std::uint64_t word = at / 64;
    const std::uint64_t set = levels_[level][word].load(std::memory_order_acquire) &
                              (~std::uint64_t{0} >> (63 - at % 64));
    if (set != 0) {
      const std::uint64_t found = word * 64 + 63 - static_cast<unsigned>(std::countl_zero(set));
      if (level == 0) return found;
      --level;
      at = found * 64 + 63;
    } else {
      if (word == 0) return std::nullopt;
      ++level;
      at = word - 1;
    }
  }
}

std::optional<std::uint64_t> SpanBooks::start_of(std::uint64_t granule) const {
  const auto start = last_start(granule);
  if (!start || granule - *start >= count_at(*start)) return std::nullopt;
  return start;
}

// NOLINTNEXTLINE(bugprone-easily-swappable-parameters): a range's ends.
std::optional<std::uint64_t> SpanBooks::last_in(std::uint64_t from, std::uint64_t until) const {
  const auto start = last_start(until - 1);
  if (!start || *start + count_at(*start) <= from) return std::nullopt;
  return start;
}

Result<SpanBooks*> SpanShelf::take(std::uint64_t granules) {
  const std::lock_guard lock(mutex_);
  const auto smaller = [](const SpanBooks* a, const SpanBooks* b) {
    return a->granules() < b->granules();
  };
  std::sort(free_.begin(), free_.end(), smaller);
  const auto fits = std::find_if(free_.begin(), free_.end(), [&](const SpanBooks* books) {
    return books->granules() >= granules;
  });
  if (fits != free_.end()) {
    SpanBooks* books = *fits;
    free_.erase(fits);
    return books;
  }
  auto made = SpanBooks::make(granules);
  if (!made) return made.error();
  return all_.emplace_back(std::move(*made)).get();
}

void SpanShelf::put_back(SpanBooks* books) {
  books->end();
  const std::lock_guard lock(mutex_);
  free_.push_back(books);
}

}  // namespace hufu::memory
