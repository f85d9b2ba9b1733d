#pragma once

// Heap: device memory as a program sees it, whatever it is made of.
//
// The heap decides between slab and block, keeps the blocks, and answers for addresses. A block's
// life in one process:
//
//   live  <-->  exporting        any number of exports may be on their way to the broker
//    |
//    v  free: no new export begins, those on their way are waited for
//   dead                         out of the registry, given back, unmapped; in this order
//
// Nothing that was given back is used again by this process; the next block is a fresh file.
//
// Thread-safe. The source outlives the heap.

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "memory/address_registry.h"
#include "memory/block.h"
#include "memory/size_rules.h"
#include "memory/slab.h"
#include "memory/source.h"

namespace hufu::memory {

// What an export asks the broker for. Offset and size are as the user asked.
struct ExportRange {
  std::uint64_t block = 0;
  std::uint64_t offset = 0;
  std::uint64_t size = 0;
  std::uint64_t reported_size = 0;
};

class Heap {
 public:
  Heap(PageSource& source, int devices);
  ~Heap();
  Heap(const Heap&) = delete;
  Heap& operator=(const Heap&) = delete;

  Result<void*> allocate(int device, const Plan& plan);

  // The start of an allocation of this heap. Memory that is somebody else's to end (an import) is
  // an error too. kUnregistered is only for addresses that were never this process's.
  Result<void> deallocate(const void* pointer);

  // What contains the address. For the slab that is the piece, not the chunk.
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

  // Free here means free for this process: chunks of the slab that nobody uses count.
  Result<Capacity> capacity(int device) const;

  // For memory that others own and enter themselves: imports, host memory.
  AddressRegistry& registry() { return registry_; }
  const AddressRegistry& registry() const { return registry_; }

 private:
  struct Entry {
    Block block;
    int exporting = 0;
    bool ending = false;
  };

  Result<void*> allocate_block(int device, const Plan& plan);
  Result<void> free_block(const Region& region);

  PageSource& source_;
  AddressRegistry registry_;
  std::vector<std::unique_ptr<Slab>> slabs_;  // By device.
  mutable std::mutex mutex_;                  // Guards blocks_ and what is in it.
  std::condition_variable export_ended_;
  std::unordered_map<std::uintptr_t, Entry> blocks_;  // By base.
};

}  // namespace hufu::memory
