#pragma once

// Which memory of this process the runtime knows, by address.
//
// Regions are values and never overlap; who owns the mapping behind one lies elsewhere. A slab
// chunk is one region, whoever needs the piece inside asks the slab. What was removed is remembered
// for a while (kTombstones), because "you freed this before" and "this was never ours" are
// different answers: the second one is an offence.
//
// Thread-safe. Readers share a lock for now; the interface is made for a read side without one.

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <shared_mutex>
#include <vector>

#include "base/units.h"

namespace hufu::memory {

enum class RegionKind : std::uint8_t {
  kBlock,     // A memory file of its own.
  kSlab,      // A chunk that the slab cuts into pieces; in answers of the heap, such a piece.
  kImported,  // Another process's memory.
  kHost,      // Host memory of this process that the runtime pinned or was told of.
};

struct Region {
  std::uintptr_t base = 0;
  std::uint64_t mapped = 0;    // Bytes of the file that lie at base.
  std::uint64_t reported = 0;  // What queries answer; may reach 32 bytes into the guard page.
  std::uint64_t id = 0;        // The block's or the import's.
  PageSize page = PageSize::k4KiB;
  int device = 0;
  RegionKind kind = RegionKind::kBlock;
  Access access = Access::kReadWrite;

  // The end, for lookups and for texts: the larger of the two, as both are the caller's to touch.
  std::uintptr_t end() const { return base + (reported > mapped ? reported : mapped); }
};

struct Tombstone {
  std::uintptr_t base = 0;
  std::uintptr_t end = 0;
  RegionKind kind = RegionKind::kBlock;
};

class AddressRegistry {
 public:
  static constexpr std::size_t kTombstones = 1024;

  void add(const Region& region);
  // The region that starts at `base` ends; false when there is none (any more).
  bool remove(std::uintptr_t base);

  std::optional<Region> find(std::uintptr_t address) const;
  // The newest region that once contained the address and is gone.
  std::optional<Tombstone> once_had(std::uintptr_t address) const;

  // A snapshot, by address.
  std::vector<Region> list() const;

 private:
  mutable std::shared_mutex mutex_;
  std::map<std::uintptr_t, Region, std::greater<>> regions_;  // By base, so lower_bound contains.
  std::deque<Tombstone> tombstones_;                          // Newest first.
};

}  // namespace hufu::memory
