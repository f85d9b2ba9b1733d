#pragma once

// Reservations: ranges of addresses that a program has reserved, and what it has mapped in them.
//
//   nothing ── map ──▶ mapped ── unmap ──▶ leaving ── Leaving's end ──▶ nothing
//                        │                    (the address is dead, the pages are still there
//                        └ no access ──▶ allow     for work that was queued on them)
//
// A mapping is in the address registry exactly while it is mapped, with the access that it has, so
// copies and queries see it as any other memory. What leaves keeps its addresses until its end:
// who maps there again waits for that, for a while. A range may be released as soon as nothing is
// mapped in it; its addresses are given back when the last that was leaving has left.
//
// Thread-safe.

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <utility>

#include "base/result.h"
#include "memory/address_registry.h"
#include "memory/physical.h"
#include "os/address_space.h"

namespace hufu::memory {

// Who may touch a mapping: a device, or the host.
struct Accessor {
  static constexpr int kHost = -1;
  int device = kHost;
  auto operator<=>(const Accessor&) const = default;
};

class Reservations {
  struct Range;

 public:
  using Deadline = std::chrono::steady_clock::time_point;

  // Everything here is in whole units of this.
  static constexpr std::uint64_t kUnit = bytes_of(PageSize::k2MiB);

  // Outlives this.
  explicit Reservations(AddressRegistry& registry) : registry_(registry) {}
  ~Reservations() = default;
  Reservations(const Reservations&) = delete;
  Reservations& operator=(const Reservations&) = delete;

  // Rounded up to 2 MiB, and from 1 GiB on to that, as the start is. At `where` exactly if it is
  // not null.
  Result<void*> reserve(std::uint64_t size, void* where);
  // The whole range that starts at `base`.
  Result<void> release(void* base);

  // All of `physical` at `at`, in one reserved range where nothing is mapped. Its device may read
  // and write it at once, or nobody before allow(). Waits until `deadline` for what is leaving.
  Result<void> map(void* at, std::uint64_t size, std::shared_ptr<Physical> physical,
                   os::Touch touch, Deadline deadline);

  // What was mapped, with its pages still in place until this ends.
  class Leaving {
   public:
    ~Leaving();
    Leaving(Leaving&& other) noexcept
        : all_(std::exchange(other.all_, nullptr)),
          range_(std::move(other.range_)),
          at_(other.at_),
          physical_(std::move(other.physical_)) {}
    Leaving& operator=(Leaving&&) = delete;
    Leaving(const Leaving&) = delete;
    Leaving& operator=(const Leaving&) = delete;

    int device() const { return physical_->spec().device; }
    // If nothing but this keeps the memory, its keys end now and not with it.
    void end_keys_of_unused() {
      if (physical_->unused()) physical_->end_keys();
    }

   private:
    friend class Reservations;
    Leaving(Reservations* all, std::shared_ptr<Range> range, std::uintptr_t at,
            std::shared_ptr<Physical> physical)
        : all_(all), range_(std::move(range)), at_(at), physical_(std::move(physical)) {}

    Reservations* all_;
    std::shared_ptr<Range> range_;
    std::uintptr_t at_;
    std::shared_ptr<Physical> physical_;
  };

  // The mapping that starts at `at`, which no call finds any more.
  Result<Leaving> unmap(void* at);

  // The mapping [at, at + size) may be read and written by all of these.
  Result<void> allow(void* at, std::uint64_t size, const std::set<Accessor>& by);
  // May it be touched by this one?
  Result<bool> allowed(const void* address, Accessor by) const;

  // Is the address in a reserved range? What lies there or nowhere is this class's to know: a copy
  // that takes any readable host memory must not try it. Costs other addresses no lock.
  bool contains(const void* address) const;

  // What is mapped there; or from there on.
  Result<std::shared_ptr<Physical>> mapped_at(const void* address) const;
  Result<std::shared_ptr<Physical>> mapped_from(const void* at) const;

 private:
  std::shared_ptr<Range> range_of(std::uintptr_t address) const;
  void enter(std::uintptr_t at, const Physical& physical, Access access);

  AddressRegistry& registry_;
  mutable std::mutex mutex_;  // Guards ranges_ and what is in them.
  std::condition_variable left_;
  std::map<std::uintptr_t, std::shared_ptr<Range>> ranges_;  // By base.
  // All ranges that ever were are between these.
  std::atomic<std::uintptr_t> lowest_ = ~std::uintptr_t{0};
  std::atomic<std::uintptr_t> highest_ = 0;
};

}  // namespace hufu::memory
