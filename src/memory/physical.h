#pragma once

// Physical memory: pages that a program holds by a handle and maps where it wants them, or nowhere.
//
//   allocate, import ──▶ handle ── free ──▶ no handle, perhaps still mapped ── unmap ──▶ gone
//                          ▲                        │
//                          └──────── retain ────────┘
//
// A handle is a number that looks like a pointer and is none: a counter under a tag, at an address
// that no program can have. So garbage is looked up and never followed, and a handle that was freed
// is refused for ever, in forked children too.
//
// Two kinds of references are told apart, which CANN's driver counts together: the program's own
// (one from allocating, one from each retain) and one for each mapping. So freeing a handle once
// too often is an error and takes no mapping away. The pages go with the last reference of either.
//
// Making it is what making a block is (memory/block.h): mint, map, commit, and give everything back
// if a step fails. Thread-safe.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <unordered_map>

#include "base/result.h"
#include "base/units.h"
#include "memory/heap.h"
#include "memory/source.h"
#include "os/address_space.h"

namespace hufu::memory {

using PhysicalHandle = void*;

// What a program asked for, and is told when it asks.
struct PhysicalSpec {
  int device = 0;  // Whose capacity it takes.
  std::uint64_t size = 0;
  PageSize page = PageSize::k2MiB;
  bool may_fall_back = false;  // Small pages do, when huge ones are required and there are none.
  bool on_host = false;        // The program calls it the host's.
  bool peer = false;           // Of the kind that other devices reach.
};

// Physical memory that another process made and shared.
struct ForeignPages {
  UniqueFd file;
  os::Backing backing = os::Backing::kShmem;
  std::shared_ptr<void> right;  // To have it: ends after the last of it is unmapped.
  std::uint64_t share = 0;      // By which it came.
  // Its handle's properties are told to nobody (imports by CANN's first interface).
  bool without_properties = false;
};

// The pages themselves. Owned by handles and mappings together; its end gives them back.
class Physical {
 public:
  // Minted and committed here.
  static Result<std::shared_ptr<Physical>> make(PageSource& source, Hugetlb huge_pages,
                                                const PhysicalSpec& spec);
  static Result<std::shared_ptr<Physical>> of(ForeignPages foreign, const PhysicalSpec& spec);
  ~Physical();
  Physical(const Physical&) = delete;
  Physical& operator=(const Physical&) = delete;

  const PhysicalSpec& spec() const { return spec_; }
  // Of a foreign one the share by which it came.
  std::uint64_t block() const { return block_; }
  const os::ParkedPages& pages() const { return pages_; }
  os::Pages made_of() const { return made_of_; }
  bool is_foreign() const { return source_ == nullptr; }
  bool has_properties() const { return has_properties_; }

  // Before its first key or shareable handle is asked for. Sticky, see Block::mark_exported().
  void mark_exported() { lent_ = Lent::kOnce; }
  // No key of it can be imported once this returns.
  void end_keys();

  // It has a handle, or is mapped. Where it is none of both, only work that was queued keeps it.
  void begin_use() { ++uses_; }
  void end_use() { --uses_; }
  bool unused() const { return uses_.load() == 0; }

 private:
  friend class PhysicalMemory;
  Physical(PageSource* source, const PhysicalSpec& spec, std::uint64_t block)
      : source_(source), spec_(spec), block_(block) {}

  static Result<std::shared_ptr<Physical>> make_once(PageSource& source, Hugetlb huge_pages,
                                                     const PhysicalSpec& spec,
                                                     os::Backing* backing);

  PageSource* source_;  // Null: they are another process's.
  PhysicalSpec spec_;
  std::uint64_t block_;
  std::atomic<Lent> lent_ = Lent::kNever;
  std::atomic<std::uint64_t> uses_ = 0;
  bool has_properties_ = true;
  os::Pages made_of_ = os::Pages::kSmall;
  std::shared_ptr<void> right_;  // Before pages_, so that it ends after them.
  os::ParkedPages pages_;
  std::uintptr_t number_ = 0;             // Of its handle.
  std::function<void()> at_end_ = [] {};  // Uncounts it.
};

// All of a process's, by handle.
class PhysicalMemory {
 public:
  // Both outlive this, and every Physical. The heap's reserve goes before memory is refused.
  PhysicalMemory(PageSource& source, Heap& heap, Hugetlb huge_pages)
      : source_(source), heap_(heap), huge_pages_(huge_pages) {}
  ~PhysicalMemory() = default;
  PhysicalMemory(const PhysicalMemory&) = delete;
  PhysicalMemory& operator=(const PhysicalMemory&) = delete;

  // One reference of the program's.
  Result<PhysicalHandle> allocate(const PhysicalSpec& spec);
  Result<PhysicalHandle> adopt(ForeignPages foreign, const PhysicalSpec& spec);

  Result<std::shared_ptr<Physical>> find(PhysicalHandle handle) const;

  // One reference of the program's more: to something that is mapped, so its handle may have been
  // freed, and is good again.
  PhysicalHandle retain(const std::shared_ptr<Physical>& physical);

  // One less. After the last one the memory itself, which may be mapped still; else null.
  Result<std::shared_ptr<Physical>> free(PhysicalHandle handle);

  std::size_t count() const;

 private:
  struct Entry {
    std::shared_ptr<Physical> physical;
    std::uint64_t references;
  };

  PhysicalHandle give_number(const std::shared_ptr<Physical>& physical);

  PageSource& source_;
  Heap& heap_;
  const Hugetlb huge_pages_;
  mutable std::mutex mutex_;
  std::unordered_map<std::uintptr_t, Entry> handles_;
};

}  // namespace hufu::memory
