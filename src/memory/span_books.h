#pragma once

// SpanBooks: which ranges of a pool are in use, for whoever asks about an address.
//
// A pool is cut in granules; a span in use is a whole number of them. Its size stands in a word at
// its first granule, and a bit says that a span starts there. Summaries of 64 bits each lead from
// any address to the last start before it:
//
//   level 2   |1...|                         one bit: is anything set in the word below?
//   level 1   |0110 ...|    ...
//   level 0   |0001 0000 1000 ...|           one bit: does a span start at this granule?
//   words     |   3      2       |           how many granules it has
//
// Readers take no lock and write nothing. A span that is in use during all of find() is found: its
// bit and those above it stay set, and no other span starts inside it. Who meets a summary that is
// out of date goes on to the left.
//
// Books are never freed, only used for another pool: a reader may have come by a region that ended
// a moment ago. The life, which is the region's id, tells him. Everything but find() is for one at
// a time.

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "base/result.h"
#include "memory/address_registry.h"
#include "os/lazy_table.h"

namespace hufu::memory {

class SpanBooks {
 public:
  static constexpr std::uint64_t kMostGranules = std::uint64_t{1} << 31U;

  static Result<std::unique_ptr<SpanBooks>> make(std::uint64_t granules);
  ~SpanBooks() = default;
  SpanBooks(const SpanBooks&) = delete;
  SpanBooks& operator=(const SpanBooks&) = delete;

  std::uint64_t granules() const { return granules_; }

  // A life is not 0. A granule is 2^shift bytes.
  void begin(std::uint64_t life, unsigned shift);
  // No span is found any more.
  void end();

  struct Span {
    std::uint64_t offset = 0;  // In bytes, from the start of the pool.
    std::uint64_t size = 0;
  };
  // `pool` is what the registry says (or said, a moment ago) of the address.
  static std::optional<Span> find(const Region& pool, std::uintptr_t address);

  // In granules from here on. Nothing is in use there.
  void mark(std::uint64_t start, std::uint64_t count);
  // How many granules the span in use has that starts there; 0: none does.
  std::uint64_t count_at(std::uint64_t start) const {
    return words_[start].load(std::memory_order_relaxed);
  }
  void unmark(std::uint64_t start);
  // The last span in use that reaches behind `from` and starts before `until`.
  std::optional<std::uint64_t> last_in(std::uint64_t from, std::uint64_t until) const;
  // The span in use, if any, that holds this granule.
  std::optional<std::uint64_t> start_of(std::uint64_t granule) const;

 private:
  using Word = std::atomic<std::uint64_t>;
  static constexpr std::size_t kMostLevels = 6;

  SpanBooks(std::uint64_t granules, os::LazyTable table);

  std::optional<std::uint64_t> last_start(std::uint64_t granule) const;

  const std::uint64_t granules_;
  os::LazyTable table_;
  std::atomic<std::uint32_t>* words_ = nullptr;
  std::array<Word*, kMostLevels> levels_{};
  std::size_t level_count_ = 0;
  std::atomic<std::uint64_t> life_{0};
  std::atomic<unsigned> shift_{0};
};

// Keeps books that are not in use. Thread-safe.
class SpanShelf {
 public:
  // Of at least so many granules. They belong to the shelf and are for the caller alone until he
  // puts them back.
  Result<SpanBooks*> take(std::uint64_t granules);
  void put_back(SpanBooks* books);

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<SpanBooks>> all_;
  std::vector<SpanBooks*> free_;
};

}  // namespace hufu::memory
