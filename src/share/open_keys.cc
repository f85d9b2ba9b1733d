#include "share/open_keys.h"

#include <sys/random.h>

#include <cstring>

namespace hufu::share {
namespace {

constexpr unsigned kLifeShift = 32;

constexpr std::uint32_t opens_in(std::uint64_t state) { return static_cast<std::uint32_t>(state); }

constexpr std::uint64_t next_life(std::uint64_t state, std::uint32_t opens) {
  return ((state >> kLifeShift) + 1) << kLifeShift | opens;
}

}  // namespace

KeyHasher::KeyHasher() {
  // Cannot fail for so few bytes once the system has started.
  (void)!::getrandom(secret_.data(), sizeof(secret_), 0);
}

KeyHash KeyHasher::of(const char* key) const {
  __extension__ using Wide = unsigned __int128;
  constexpr std::size_t kTextBytes = kTextWords * sizeof(std::uint64_t);
  // Looked at up to one more than a key has, so that a longer text is another one.
  const std::size_t length = ::strnlen(key, kTextBytes + 1);
  std::array<std::uint64_t, kTextWords> text{};
  std::memcpy(text.data(), key, length < kTextBytes ? length : kTextBytes);
  const auto half = [&](const std::uint64_t* secret) {
    Wide sum = static_cast<Wide>(length + secret[kTextWords]) * secret[kTextWords + 1];
    for (std::size_t i = 0; i < kTextWords; i += 2) {
      sum += static_cast<Wide>(text[i] + secret[i]) * (text[i + 1] + secret[i + 1]);
    }
    return sum;
  };
  const Wide one = half(secret_.data());
  const Wide other = half(secret_.data() + kSecretWords);
  return {.words = {static_cast<std::uint64_t>(one), static_cast<std::uint64_t>(one >> 64U),
                    static_cast<std::uint64_t>(other), static_cast<std::uint64_t>(other >> 64U)}};
}

// Every field may be rewritten under a reader. A store releases and a load acquires, so whoever
// sees a field of the next life also sees that the state has changed.
class alignas(64) OpenKeys::Entry {
 public:
  bool is(const KeyHash& hash) const {
    for (std::size_t i = 0; i < hash.words.size(); ++i) {
      if (hash_[i].load(std::memory_order_acquire) != hash.words[i]) return false;
    }
    return true;
  }
  KeyHash hash() const {
    KeyHash hash;
    for (std::size_t i = 0; i < hash.words.size(); ++i)
      hash.words[i] = hash_[i].load(std::memory_order_relaxed);
    return hash;
  }
  void name(const KeyHash& hash, std::byte* base) {
    for (std::size_t i = 0; i < hash.words.size(); ++i)
      hash_[i].store(hash.words[i], std::memory_order_release);
    base_.store(base, std::memory_order_release);
  }
  std::byte* base() const { return base_.load(std::memory_order_acquire); }

  GrantWord grant() const {
    return {.status = status_.load(std::memory_order_acquire),
            .slot = slot_.load(std::memory_order_acquire),
            .live = live_.load(std::memory_order_acquire)};
  }
  void set_grant(const GrantWord& grant) {
    status_.store(grant.status, std::memory_order_release);
    slot_.store(grant.slot, std::memory_order_release);
    live_.store(grant.live, std::memory_order_release);
  }

  std::atomic<std::uint64_t> state = 0;

 private:
  std::array<std::atomic<std::uint64_t>, 4> hash_{};
  std::atomic<std::byte*> base_ = nullptr;
  std::atomic<const Status*> status_ = nullptr;
  std::atomic<std::uint32_t> slot_ = 0;
  std::atomic<std::uint64_t> live_ = 0;
};

OpenKeys::OpenKeys() = default;
OpenKeys::~OpenKeys() = default;

std::byte* OpenKeys::open_again(const KeyHash& hash) {
  for (std::size_t i = 0; i < kNeighbours; ++i) {
    Entry* entry = cell(hash, i).load(std::memory_order_acquire);
    if (entry == nullptr) continue;
    std::uint64_t state = entry->state.load(std::memory_order_acquire);
    while (opens_in(state) != 0 && opens_in(state) != UINT32_MAX && entry->is(hash)) {
      std::byte* base = entry->base();
      const GrantWord grant = entry->grant();
      // A status that was read is one that was kept, whatever its slot and word belong to.
      if (!grant.holds()) break;
      if (entry->state.compare_exchange_weak(state, state + 1, std::memory_order_acq_rel,
                                             std::memory_order_acquire)) {
        return base;
      }
    }
  }
  return nullptr;
}

bool OpenKeys::close_one_of_many(const KeyHash& hash) {
  for (std::size_t i = 0; i < kNeighbours; ++i) {
    Entry* entry = cell(hash, i).load(std::memory_order_acquire);
    if (entry == nullptr) continue;
    std::uint64_t state = entry->state.load(std::memory_order_acquire);
    while (opens_in(state) > 1 && entry->is(hash)) {
      if (entry->state.compare_exchange_weak(state, state - 1, std::memory_order_acq_rel,
                                             std::memory_order_acquire)) {
        return true;
      }
    }
  }
  return false;
}

OpenKeys::Entry* OpenKeys::enter(const KeyHash& hash, std::byte* base) {
  Entry* entry = nullptr;
  if (spare_.empty()) {
    entry = &entries_.emplace_back();
  } else {
    entry = spare_.back();
    spare_.pop_back();
  }
  entry->name(hash, base);
  for (std::size_t i = 0; i < kNeighbours; ++i) {
    Cell& place = cell(hash, i);
    if (place.load(std::memory_order_relaxed) != nullptr) continue;
    place.store(entry, std::memory_order_release);
    break;
  }
  return entry;
}

std::uint32_t OpenKeys::shut(Entry* entry) {
  std::uint64_t state = entry->state.load(std::memory_order_relaxed);
  while (!entry->state.compare_exchange_weak(state, next_life(state, 0), std::memory_order_acq_rel,
                                             std::memory_order_relaxed)) {
  }
  return opens_in(state);
}

void OpenKeys::reopen(Entry* entry, const GrantWord& grant, std::uint32_t opens) {
  entry->set_grant(grant);
  entry->state.store(next_life(entry->state.load(std::memory_order_relaxed), opens),
                     std::memory_order_release);
}

void OpenKeys::remove(Entry* entry) {
  const KeyHash hash = entry->hash();
  for (std::size_t i = 0; i < kNeighbours; ++i) {
    Cell& place = cell(hash, i);
    if (place.load(std::memory_order_relaxed) == entry)
      place.store(nullptr, std::memory_order_release);
  }
  spare_.push_back(entry);
}

}  // namespace hufu::share
