#pragma once

// Registrations: memory that the program made and told the runtime of (aclrtHostRegister).
//
// Host and devices have one address space here, so nothing is mapped: the runtime knows the range
// from then on, takes it for host memory, and queues copies of it instead of doing them at once.
// The bytes stay the program's. Ending a registration makes the range unknown again at once and
// frees nothing, so work that was queued before still finds its bytes, as long as the program keeps
// them: that is its promise, as with all host memory.
//
//   registered   |  page  |  page  |  page  |       pinned: every page that it touches is locked
//                     └──── range ────┘             until no pinned registration touches it
//
// No two overlap, and none overlaps other memory that the runtime knows. A forked child has none:
// its registry is a new one, and what was locked is not locked there.
//
// Thread-safe.

#include <cstdint>
#include <map>
#include <mutex>

#include "base/result.h"
#include "memory/address_registry.h"

namespace hufu::memory {

class Registrations {
 public:
  // `registry` outlives this.
  explicit Registrations(AddressRegistry& registry) : registry_(registry) {}

  struct Wish {
    const void* pointer = nullptr;
    std::uint64_t size = 0;  // Not 0.
    bool mapped = false;     // The device may use it.
    bool pinned = false;
    bool io_memory = false;  // Registers of a device: nothing reads them to look.
  };
  Result<void> add(const Wish& wish);

  // By the pointer that was registered.
  Result<void> remove(const void* pointer);

  // The device's address of a byte of a range that is mapped.
  Result<void*> device_pointer(void* pointer) const;

 private:
  struct Range {
    std::uint64_t size;
    bool mapped;
    bool pinned;
  };
  // Of a range's pages; the first and the last may be another one's, too.
  Result<void> pin(std::uintptr_t base, std::uint64_t size);
  void unpin(std::uintptr_t base, std::uint64_t size);
  bool is_pinned(std::uintptr_t page) const;

  AddressRegistry& registry_;
  mutable std::mutex mutex_;
  std::map<std::uintptr_t, Range> ranges_;  // By base.
};

}  // namespace hufu::memory
