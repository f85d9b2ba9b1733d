#pragma once

// Which memory of this process the runtime knows, by address.
//
// Regions are values and never overlap; who owns the mapping behind one lies elsewhere. A slab
// chunk is one region, whoever needs the piece inside asks the slab. What was removed is remembered
// for a while (kTombstones), because "you freed this before" and "this was never ours" are
// different answers: the second one is an offence.
//
// Thread-safe. Writers take a mutex. A reader takes none, waits for nobody and writes nothing:
//
//   address  | 9 bits | 9 bits | 9 bits | 9 bits | 6 bits | 6 bits |     the tables of a
//   processor's
//                |        |        |        |                            own page walk, and two
//                more
//              table ─▶ table ─▶ table ─▶ table ─ (where regions share a 4 KiB page) ─▶ ...
//              cell {region, deeper table}
//
// A region is entered in the cells that it fills; at its ends in a cell that it fills in part, if
// no other region there needs it, else deeper. So every address of a region finds the region in one
// of the cells on its path, and that cell is not touched before the region has ended.
//
// Why a reader is right. Tables and records are never freed before the registry is, so every
// pointer leads to a cell or a record, if perhaps to one of another life. A record's life is odd
// while it stands for a region: one store to it begins the region, for all of its addresses at
// once, and one store ends it. A reader that sees the same odd life before and after reading the
// fields has read one region, which was there at that moment. If it sees anything else, or finds no
// record, then there was a moment during the call when no region held the address: a region that
// was there all the time would have been in its cell, with its life unchanged.
//
// The price: 8 KiB of tables for each 2 MiB of addresses in which blocks lie densely, kept.

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <vector>

#include "base/units.h"

namespace hufu::memory {

enum class RegionKind : std::uint8_t {
  kBlock,       // A memory file of its own.
  kSlab,        // A chunk that the slab cuts into pieces; in answers of the heap, such a piece.
  kImported,    // Another process's memory.
  kHost,        // Host memory of this process that the runtime made.
  kRegistered,  // Host memory that the program made and told the runtime of.
  kManaged,     // Memory of host and devices alike.
  kMapped,      // Physical memory that the program mapped where it wanted it.
  kPool,        // A pool's whole range; in answers of the heap, an allocation from it.
};

struct Region {
  std::uintptr_t base = 0;
  std::uint64_t mapped = 0;    // Bytes of the file that lie at base.
  std::uint64_t reported = 0;  // What queries answer; may reach 32 bytes into the guard page.
  std::uint64_t id = 0;        // The block's, the import's, or the life of a slab's chunk.
  PageSize page = PageSize::k4KiB;
  int device = 0;  // At most kMaxDevice.
  RegionKind kind = RegionKind::kBlock;
  Access access = Access::kReadWrite;
  void* books = nullptr;  // Of whoever entered it, to find its own by address.

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
  static constexpr unsigned kAddressBits = 48;
  static constexpr int kMaxDevice = 0xffff;

  AddressRegistry();
  ~AddressRegistry();
  AddressRegistry(const AddressRegistry&) = delete;
  AddressRegistry& operator=(const AddressRegistry&) = delete;

  // Not empty, below 2^kAddressBits, and no other region lies there.
  void add(const Region& region);
  // The region that starts at `base` ends; false when there is none (any more).
  bool remove(std::uintptr_t base);

  std::optional<Region> find(std::uintptr_t address) const {
    std::optional<Region> region(std::in_place);  // Filled where it lies: copying it costs more.
    if (!look_up(address, *region)) region.reset();
    return region;
  }
  // Any region of which a byte lies in [begin, end). Looks at all of them, so it is for rare calls.
  std::optional<Region> any_in(std::uintptr_t begin, std::uintptr_t end) const;
  // The newest region that once contained the address and is gone.
  std::optional<Tombstone> once_had(std::uintptr_t address) const;

  // A snapshot, by address.
  std::vector<Region> list() const;

 private:
  // A region, or the place where one was. All fields may change under a reader, who notices.
  struct alignas(64) Record {
    std::atomic<std::uint64_t> life = 0;  // Odd: it stands for a region.
    std::atomic<std::uintptr_t> base = 0;
    std::atomic<std::uint64_t> mapped = 0;
    std::atomic<std::uint64_t> reported = 0;
    std::atomic<std::uint64_t> id = 0;
    std::atomic<void*> books = nullptr;
    std::atomic<std::uint64_t> rest = 0;  // Page, device, kind, access.

    void begin(const Region& region);
    void end();
    bool read(Region& region) const;  // False: what it wrote there is nothing.
  };
  struct Cell {
    std::atomic<Record*> record = nullptr;
    std::atomic<Cell*> deeper = nullptr;  // A table of the next level.
  };
  struct Span {  // Both ends belong to it.
    std::uintptr_t first;
    std::uintptr_t last;
  };

  bool look_up(std::uintptr_t address, Region& region) const;
  Record* record_at(std::uintptr_t base) const;
  void enter(Cell* table, std::size_t level, Span span, Record* record);
  static bool is_needed(const Cell& cell, Span cell_span);
  static Cell* make_table(std::size_t level);
  static void destroy(const Cell* table, std::size_t level);

  Cell* const root_;
  mutable std::mutex mutex_;  // Writers', and for what follows.
  std::deque<Record> records_;
  std::vector<Record*> spare_;
  std::vector<Tombstone> tombstones_;  // A ring.
  std::uint64_t removed_ = 0;          // So many were.
};

}  // namespace hufu::memory
