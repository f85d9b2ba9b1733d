#pragma once

// Heap: device memory as a program sees it, whatever it is made of.
//
// The heap decides between slab and block, keeps the blocks, and answers for addresses. A block's
// life in one process (BlockState):
//
//   live ──▶ exporting ◀──▶ exported      any number of exports may be on their way to the broker
//    │           │              │
//    ▼           ▼              ▼
//   closing: no new export begins, those on their way are waited for
//    │
//    ▼  retire() returns
//   dead: out of the registry and out of the heap; what is left of it is a Retired
//
// Freeing has two halves because work that was queued may still touch the memory: retire() makes
// the address lead nowhere for every call that comes, and the end of what it returns gives the
// memory back and unmaps it, in this order. So an address is never given out again while queued
// work may use it. A piece of the slab has the two halves, too.
//
// A block that was never lent goes into the reserve (memory/reserve.h) and may be allocated again,
// by this process; any other is given back, and the next block is a fresh file. So is the one after
// a read-only block.
//
// Managed memory is a block like any other, with hints that end with it (memory/managed_hints.h).
//
// Thread-safe. The source outlives the heap.

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "base/result.h"
#include "memory/address_registry.h"
#include "memory/block.h"
#include "memory/managed_hints.h"
#include "memory/reserve.h"
#include "memory/size_rules.h"
#include "memory/slab.h"
#include "memory/source.h"
#include "memory/usage.h"

namespace hufu::memory {

// What an export asks the broker for. Offset and size are as the user asked.
struct ExportRange {
  std::uint64_t block = 0;
  std::uint64_t offset = 0;
  std::uint64_t size = 0;
  std::uint64_t reported_size = 0;
};

// That part of the region, if it starts on one of its pages and lies within it.
Result<ExportRange> range_within(const Region& region, const void* pointer, std::uint64_t size);

enum class BlockState : std::uint8_t {
  kLive,       // Never asked a key for: no other process can have it.
  kExporting,  // The broker is being asked for a key, or several.
  kExported,   // A key may be out, for good: a file that was lent once is never used again.
  kClosing,    // A free has begun.
  kDead,       // Retired: the heap knows no such block.
};

// Memory whose address is dead and whose bytes are not given back yet; its end gives them back.
// Must not outlive the heap.
class Retired {
 public:
  ~Retired();
  Retired(Retired&& other) noexcept
      : reserve_(std::exchange(other.reserve_, nullptr)), memory_(std::move(other.memory_)) {}
  Retired& operator=(Retired&&) = delete;
  Retired(const Retired&) = delete;
  Retired& operator=(const Retired&) = delete;

  int device() const;
  // Of a block that was lent: keys to it live until the end, or until end_keys().
  bool lent() const;
  void end_keys();

 private:
  friend class Heap;
  Retired(Reserve* reserve, Block block) : reserve_(reserve), memory_(std::move(block)) {}
  explicit Retired(Slab::RetiredPiece piece) : memory_(std::move(piece)) {}

  Reserve* reserve_ = nullptr;  // A block goes there.
  std::variant<Block, Slab::RetiredPiece> memory_;
};

class Heap {
 public:
  // `huge_pages`: what blocks of huge pages may be made of.
  Heap(PageSource& source, int devices, Hugetlb huge_pages = Hugetlb::kIfFree);
  ~Heap();
  Heap(const Heap&) = delete;
  Heap& operator=(const Heap&) = delete;

  Result<void*> allocate(int device, const Plan& plan);

  // A piece of the slab that the calling thread has at hand, or null. `size` is piece_size()'s.
  void* piece_at_hand(int device, std::uint64_t size) {
    return reinterpret_cast<void*>(
        slabs_[static_cast<std::size_t>(device)]->allocate_from_cache(size));
  }

  // `pointer` is the start of an allocation of this heap; for every call from now on it is nothing.
  // Memory that is somebody else's to end (an import) is an error too. kUnregistered is only for
  // addresses that were never this process's.
  Result<Retired> retire(const void* pointer);

  // The same for a piece of the slab, which is what is freed most: none for anything else, and none
  // where retire() would say why not.
  Slab::RetiredPiece retire_piece(const void* pointer);

  // Both halves at once.
  Result<void> deallocate(const void* pointer);

  // What contains the address. For the slab that is the piece, not the chunk; for a pool, the
  // allocation.
  std::optional<Region> describe(const void* pointer) const;

  // The error for an address that describe() knows nothing about.
  Error unknown(const void* pointer) const;

  // May [pointer, pointer + size) be exported? The broker judges again; this one knows addresses.
  Result<ExportRange> exportable(const void* pointer, std::uint64_t size) const;

  // Keeps a block from being freed while the broker is asked for a key to it.
  class ExportHold {
   public:
    ExportHold(Heap* heap, std::uintptr_t base, const ExportRange& range)
        : heap_(heap), base_(base), range_(range) {}
    ~ExportHold();
    ExportHold(ExportHold&& other) noexcept
        : heap_(std::exchange(other.heap_, nullptr)), base_(other.base_), range_(other.range_) {}
    ExportHold& operator=(ExportHold&&) = delete;
    ExportHold(const ExportHold&) = delete;
    ExportHold& operator=(const ExportHold&) = delete;

    const ExportRange& range() const { return range_; }

   private:
    Heap* heap_;
    std::uintptr_t base_;
    ExportRange range_;
  };
  Result<ExportHold> begin_export(const void* pointer, std::uint64_t size);

  // Of the block that starts there.
  BlockState state_of(const void* base) const;

  // Free here means free for this process: what the heap and its source keep ready counts.
  Result<Capacity> capacity(int device) const;

  // The same, of pages of this size. As long as huge pages are emulated where there are none, all
  // that is free may become pages of 2 MiB; those of 1 GiB are counted where the machine has some.
  Result<Capacity> capacity(int device, PageSize page) const;

  // Hints about managed memory: what holds for all of the range, and a change of several ranges,
  // which happens to all of them or, when one is not in managed memory, to none.
  struct ManagedRange {
    const void* pointer;
    std::uint64_t size;
  };
  Result<ManagedHint> hint_of(const ManagedRange& range) const;
  using ChangeHint = std::function<void(std::size_t index, ManagedHint&)>;
  Result<void> change_hints(std::span<const ManagedRange> ranges, const ChangeHint& how);

  // Ends what is kept ready, so that others may have it; how many bytes that was.
  std::uint64_t give_back_reserve();

  // What else can be given back before an allocation fails for want of memory; how many bytes that
  // was. To be set before the first allocation.
  void on_shortage(std::function<std::uint64_t()> give_back) { shortage_ = std::move(give_back); }

  // In a forked child, which has none of its parent's memory. Takes no lock.
  static void forget_after_fork() { Slab::forget_after_fork(); }

  // What its memory is used for.
  Usage& usage() { return usage_; }

  // For memory that others own and enter themselves: imports, host memory.
  AddressRegistry& registry() { return registry_; }
  const AddressRegistry& registry() const { return registry_; }

 private:
  struct Entry {
    Block block;
    std::uint64_t asked = 0;
    BlockState state = BlockState::kLive;
    int exports_on_their_way = 0;
    std::unique_ptr<ManagedHints> hints;  // Of managed memory.
  };
  struct ManagedPart {
    ManagedHints* hints;
    ManagedHints::Part part;
  };

  Result<void*> allocate_piece(int device, const Plan& plan);
  Result<Block> obtain(const BlockSpec& spec);
  Result<void*> allocate_block(int device, const Plan& plan);
  Result<Retired> retire_block(const Region& region);
  bool relieve();
  Result<ManagedPart> find_managed(const ManagedRange& range) const;  // Under mutex_.

  PageSource& source_;
  const Hugetlb huge_pages_;
  Usage usage_;
  Reserve reserve_;
  std::function<std::uint64_t()> shortage_;
  AddressRegistry registry_;
  std::vector<std::unique_ptr<Slab>> slabs_;  // By device.
  mutable std::mutex mutex_;                  // Guards blocks_ and what is in it.
  std::condition_variable export_ended_;
  std::unordered_map<std::uintptr_t, Entry> blocks_;  // By base.
};

}  // namespace hufu::memory
