#include "memory/heap.h"

#include <algorithm>
#include <cassert>
#include <string_view>
#include <utility>

#include "memory/span_books.h"
#include "os/huge_pages.h"

namespace hufu::memory {
namespace {

std::uintptr_t address_of(const void* pointer) { return reinterpret_cast<std::uintptr_t>(pointer); }

std::string_view noun_of(RegionKind kind) {
  switch (kind) {
    case RegionKind::kBlock:
      return "block";
    case RegionKind::kSlab:
      return "piece";
    case RegionKind::kImported:
      return "imported range";
    case RegionKind::kHost:
      return "host range";
    case RegionKind::kRegistered:
      return "registered host range";
    case RegionKind::kManaged:
      return "managed range";
    case RegionKind::kMapped:
      return "mapped range";
    case RegionKind::kPool:
      return "pool";
  }
  return "range";
}

std::string_view name_of(PageSize page) {
  switch (page) {
    case PageSize::k4KiB:
      return "4 KiB";
    case PageSize::k2MiB:
      return "2 MiB";
    case PageSize::k1GiB:
      return "1 GiB";
  }
  return "?";
}

Error fail_interior(std::uintptr_t address, const Region& region) {
  return fail(Errc::kInvalidValue, Reason::kNone,
              "address {:#x} does not start an allocation; it lies {} bytes into the {}-byte {} "
              "[{:#x}, {:#x}); pass the base address",
              address, address - region.base, region.reported, noun_of(region.kind), region.base,
              region.end());
}

template <class T>
bool lacks_memory(const Result<T>& result) {
  return !result && result.error().code == Errc::kOutOfMemory;
}

Error fail_ending(std::uintptr_t base) {
  return fail(Errc::kInvalidValue, Reason::kNone, "address {:#x} is being freed by another thread",
              base);
}

}  // namespace

Retired::~Retired() {
  if (reserve_ != nullptr) reserve_->keep(std::move(std::get<Block>(memory_)));
}

int Retired::device() const {
  const Block* block = std::get_if<Block>(&memory_);
  return block != nullptr ? block->spec().device : std::get<Slab::RetiredPiece>(memory_).device();
}

bool Retired::lent() const {
  const Block* block = std::get_if<Block>(&memory_);
  return block != nullptr && block->lent() == Lent::kOnce;
}

void Retired::end_keys() {
  if (lent()) std::get<Block>(memory_).end_keys();
}

Heap::Heap(PageSource& source, int devices, Hugetlb huge_pages)
    : source_(source), huge_pages_(huge_pages), usage_(devices), reserve_(source, usage_) {
  source.count_in(&usage_);
  slabs_.reserve(static_cast<std::size_t>(devices));
  for (int device = 0; device < devices; ++device) {
    slabs_.push_back(std::make_unique<Slab>(device, reserve_, registry_, usage_));
  }
}

Heap::~Heap() { source_.count_in(nullptr); }

Result<void*> Heap::allocate(int device, const Plan& plan) {
  if (device < 0 || static_cast<std::size_t>(device) >= slabs_.size()) {
    return fail(Errc::kInvalidDevice, Reason::kNoDevice, "device {} of {}: ids start at 0", device,
                slabs_.size());
  }
  if (plan.slab) return allocate_piece(device, plan);
  return allocate_block(device, plan);
}

Result<void*> Heap::allocate_piece(int device, const Plan& plan) {
  Slab& slab = *slabs_[static_cast<std::size_t>(device)];
  if (const std::uintptr_t cached = slab.allocate_from_cache(plan.reported_size)) {
    return reinterpret_cast<void*>(cached);
  }
  auto piece = slab.allocate(plan.reported_size);
  if (lacks_memory(piece) && relieve()) piece = slab.allocate(plan.reported_size);
  if (!piece) return piece.error();
  return reinterpret_cast<void*>(*piece);
}

bool Heap::relieve() {
  const std::uint64_t own = give_back_reserve();
  const std::uint64_t others = shortage_ ? shortage_() : 0;
  return own + others != 0;
}

Result<Block> Heap::obtain(const BlockSpec& spec) {
  auto block = reserve_.obtain(spec);
  // What is kept ready may be what is lacking.
  if (!lacks_memory(block) || !relieve()) return block;
  return reserve_.obtain(spec);
}

Result<void*> Heap::allocate_block(int device, const Plan& plan) {
  const auto hugetlb = plan.page == PageSize::k4KiB ? Hugetlb::kNever : huge_pages_;
  auto block =
      obtain({.device = device, .size = plan.file_size, .page = plan.page, .hugetlb = hugetlb});
  if (lacks_memory(block) && plan.may_fall_back) {
    auto small = allocate_block(device, on_small_pages(plan));
    if (small) usage_.change(device, {{Usage::kFallbacks, 1}});
    return small;
  }
  if (!block) return block.error();
  if (plan.access == Access::kReadOnly) {
    if (auto done = block->make_read_only(); !done) return done.error();
  }
  const bool fell_back = plan.page != PageSize::k4KiB && block->pages() == os::Pages::kSmall;
  const Region region{.base = block->base(),
                      .mapped = plan.file_size,
                      .reported = plan.reported_size,
                      .id = block->id(),
                      .page = plan.page,
                      .device = device,
                      .kind = plan.managed ? RegionKind::kManaged : RegionKind::kBlock,
                      .access = plan.access};
  Entry entry{.block = std::move(*block), .asked = plan.asked, .hints = nullptr};
  if (plan.managed) entry.hints = std::make_unique<ManagedHints>(plan.reported_size);
  {
    const std::lock_guard lock(mutex_);
    blocks_.try_emplace(region.base, std::move(entry));
  }
  usage_.change(device, {{Usage::kRequested, static_cast<std::int64_t>(plan.asked)},
                         {Usage::kReserved, static_cast<std::int64_t>(plan.file_size)},
                         {Usage::kBlocks, 1},
                         {Usage::kFallbacks, fell_back ? 1 : 0}});
  registry_.add(region);
  return reinterpret_cast<void*>(region.base);
}

Result<Retired> Heap::retire(const void* pointer) {
  const std::uintptr_t address = address_of(pointer);
  const auto region = registry_.find(address);
  if (!region) {
    Error error = unknown(pointer);
    // Freeing twice is a mistake; freeing what was never ours is an offence.
    if (registry_.once_had(address)) error.code = Errc::kInvalidValue;
    return error;
  }
  switch (region->kind) {
    case RegionKind::kSlab: {
      auto piece = slabs_[static_cast<std::size_t>(region->device)]->retire(*region, address);
      if (!piece) return piece.error();
      return Retired(std::move(*piece));
    }
    case RegionKind::kBlock:
    case RegionKind::kManaged:
      if (address != region->base) return fail_interior(address, *region);
      return retire_block(*region);
    case RegionKind::kImported:
      return fail(Errc::kInvalidValue, Reason::kImportedMemory,
                  "address {:#x} belongs to another process's memory; end its import with "
                  "aclrtIpcMemClose(key)",
                  address);
    case RegionKind::kHost:
      return fail(Errc::kInvalidValue, Reason::kNone,
                  "address {:#x} is host memory; free it with aclrtFreeHost", address);
    case RegionKind::kMapped:
      return fail(Errc::kInvalidValue, Reason::kNone,
                  "address {:#x} is physical memory that the program mapped; end it with "
                  "aclrtUnmapMem({:#x}) and aclrtFreePhysical",
                  address, region->base);
    case RegionKind::kPool:
      return fail(Errc::kInvalidValue, Reason::kNone, "address {:#x} lies in a pool", address);
    case RegionKind::kRegistered:
      return fail(
          Errc::kInvalidValue, Reason::kNone,
          "address {:#x} is the program's own memory, registered with the runtime; end that "
          "with aclrtHostUnregister, and the memory as it was made",
          address);
  }
  return unknown(pointer);
}

Slab::RetiredPiece Heap::retire_piece(const void* pointer) {
  const std::uintptr_t address = address_of(pointer);
  const auto region = registry_.find(address);
  if (!region || region->kind != RegionKind::kSlab) return Slab::RetiredPiece();
  return slabs_[static_cast<std::size_t>(region->device)]->retire_if_used(*region, address);
}

Result<void> Heap::deallocate(const void* pointer) {
  if (retire_piece(pointer)) return {};
  const auto retired = retire(pointer);
  if (!retired) return retired.error();
  return {};
}

Result<Retired> Heap::retire_block(const Region& region) {
  std::unique_lock lock(mutex_);
  const auto found = blocks_.find(region.base);
  if (found == blocks_.end() || found->second.state == BlockState::kClosing) {
    return fail_ending(region.base);
  }
  Entry& entry = found->second;  // Stays where it is: only the thread that closes it takes it out.
  entry.state = BlockState::kClosing;
  export_ended_.wait(lock, [&] { return entry.exports_on_their_way == 0; });
  auto node = blocks_.extract(region.base);
  lock.unlock();
  usage_.change(region.device,
                {{Usage::kRequested, -static_cast<std::int64_t>(node.mapped().asked)},
                 {Usage::kReserved, -static_cast<std::int64_t>(region.mapped)},
                 {Usage::kBlocks, -1}});
  // Out of the registry before its addresses can be given to somebody else.
  registry_.remove(region.base);
  Reserve* keep = region.access == Access::kReadOnly ? nullptr : &reserve_;
  return Retired(keep, std::move(node.mapped().block));
}

std::optional<Region> Heap::describe(const void* pointer) const {
  const std::uintptr_t address = address_of(pointer);
  auto region = registry_.find(address);  // Returned from one place only, so that nobody copies it.
  if (region && region->kind == RegionKind::kSlab) {
    if (const auto piece = Slab::find(*region, address)) {
      region->base = piece->base;
      region->mapped = piece->size;
      region->reported = piece->size;
    } else {
      region.reset();
    }
  } else if (region && region->kind == RegionKind::kPool) {
    if (const auto span = SpanBooks::find(*region, address)) {
      region->base += span->offset;
      region->mapped = span->size;
      region->reported = span->size;
    } else {
      region.reset();
    }
  }
  return region;
}

Error Heap::unknown(const void* pointer) const {
  const std::uintptr_t address = address_of(pointer);
  if (const auto region = registry_.find(address); region && region->kind == RegionKind::kPool) {
    return fail(
        Errc::kUnregistered, Reason::kUnregistered,
        "address {:#x} lies in the pool [{:#x}, {:#x}) but in no allocation that is in use: "
        "it was freed, or never allocated",
        address, region->base, region->end());
  } else if (region) {
    return fail(Errc::kUnregistered, Reason::kUnregistered,
                "address {:#x} lies in memory for small requests but in no piece that is in use: "
                "it was freed, or never allocated",
                address);
  }
  if (const auto grave = registry_.once_had(address)) {
    return fail(Errc::kUnregistered, Reason::kUnregistered,
                "address {:#x} lay in the {} [{:#x}, {:#x}), which has ended: it was freed or "
                "closed before",
                address, noun_of(grave->kind), grave->base, grave->end);
  }
  return fail(Errc::kUnregistered, Reason::kUnregistered,
              "address {:#x} is in no memory that this process allocated or imported; pass an "
              "address that aclrtMalloc or aclrtIpcMemImportByKey returned",
              address);
}

Result<ExportRange> range_within(const Region& region, const void* pointer, std::uint64_t size) {
  const std::uintptr_t address = address_of(pointer);
  const std::uint64_t offset = address - region.base;
  if (size == 0) {
    return fail(Errc::kInvalidValue, Reason::kEmptyRange, "size is 0; export at least one byte");
  }
  if (!is_aligned(offset, bytes_of(region.page))) {
    return fail(Errc::kRefused, Reason::kNotAligned,
                "address {:#x} does not start a {} page: it lies {} bytes into the block "
                "[{:#x}, {:#x}) of {} pages, and sharing the page would share what lies before "
                "it; export the base {:#x} and pass the offset {} along",
                address, name_of(region.page), offset, region.base, region.end(),
                name_of(region.page), region.base, offset);
  }
  const std::uint64_t block_size = region.end() - region.base;
  if (size > block_size - offset) {
    return fail(Errc::kRefused, Reason::kOutOfRange,
                "size {} from address {:#x} reaches {} bytes past the block [{:#x}, {:#x}); export "
                "at most {} bytes from there",
                size, address, size - (block_size - offset), region.base, region.end(),
                block_size - offset);
  }
  return ExportRange{
      .block = region.id, .offset = offset, .size = size, .reported_size = region.reported};
}

Result<ExportRange> Heap::exportable(const void* pointer, std::uint64_t size) const {
  const std::uintptr_t address = address_of(pointer);
  const auto region = describe(pointer);
  if (!region) return unknown(pointer);
  switch (region->kind) {
    case RegionKind::kBlock:
      if (region->access == Access::kReadWrite) break;
      return fail(Errc::kRefused, Reason::kNone,
                  "address {:#x} lies in [{:#x}, {:#x}), which was allocated with "
                  "ACL_MEM_ACCESS_USER_SPACE_READONLY and cannot be shared; allocate it without, "
                  "and export it with {:#x} added to flags for importers that only read",
                  address, region->base, region->end(), 0x100);
    case RegionKind::kSlab:
      return fail(Errc::kRefused, Reason::kSlabPiece,
                  "address {:#x} lies in the {}-byte piece [{:#x}, {:#x}), whose 4 KiB page holds "
                  "other allocations too; allocate at least 4096 bytes (or any size with "
                  "ACL_MEM_MALLOC_HUGE_ONLY) and export that block's base",
                  address, region->reported, region->base, region->end());
    case RegionKind::kImported:
      return fail(Errc::kRefused, Reason::kImportedMemory,
                  "address {:#x} lies in [{:#x}, {:#x}), memory that another process owns; ask its "
                  "owner to export it",
                  address, region->base, region->end());
    case RegionKind::kHost:
      return fail(Errc::kRefused, Reason::kUnregistered,
                  "address {:#x} lies in host memory [{:#x}, {:#x}); allocate device memory with "
                  "aclrtMalloc and export that",
                  address, region->base, region->end());
    case RegionKind::kRegistered:
      // The broker hands out only what it made and sealed itself, and pages cannot be put under the
      // feet of threads that write to them meanwhile.
      return fail(
          Errc::kRefused, Reason::kUnregistered,
          "address {:#x} lies in [{:#x}, {:#x}), host memory that the program made itself: "
          "it can be used by devices here, and not handed to another process; allocate with "
          "aclrtMalloc what is to be shared, the host can use it too",
          address, region->base, region->end());
    case RegionKind::kManaged:
    case RegionKind::kMapped:
    case RegionKind::kPool:
      return fail(Errc::kRefused, Reason::kUnregistered,
                  "address {:#x} lies in a {}, which has no key", address, noun_of(region->kind));
  }
  return range_within(*region, pointer, size);
}

Result<Heap::ExportHold> Heap::begin_export(const void* pointer, std::uint64_t size) {
  const auto range = exportable(pointer, size);
  if (!range) return range.error();
  const std::uintptr_t base = address_of(pointer) - range->offset;
  const std::lock_guard lock(mutex_);
  const auto found = blocks_.find(base);
  if (found == blocks_.end() || found->second.state == BlockState::kClosing ||
      found->second.block.id() != range->block) {
    return fail_ending(base);
  }
  Entry& entry = found->second;
  ++entry.exports_on_their_way;
  entry.state = BlockState::kExporting;
  // Already now: when the broker's answer gets lost, a key may be out all the same.
  entry.block.mark_exported(range->reported_size);
  return ExportHold(this, base, *range);
}

Heap::ExportHold::~ExportHold() {
  if (heap_ == nullptr) return;
  const std::lock_guard lock(heap_->mutex_);
  const auto found = heap_->blocks_.find(base_);
  assert(found != heap_->blocks_.end());
  Entry& entry = found->second;
  if (--entry.exports_on_their_way != 0) return;
  if (entry.state == BlockState::kExporting) entry.state = BlockState::kExported;
  heap_->export_ended_.notify_all();
}

BlockState Heap::state_of(const void* base) const {
  const std::lock_guard lock(mutex_);
  const auto found = blocks_.find(address_of(base));
  return found == blocks_.end() ? BlockState::kDead : found->second.state;
}

Result<Capacity> Heap::capacity(int device) const {
  auto capacity = source_.capacity(device);
  if (!capacity) return capacity;
  capacity->free += slabs_[static_cast<std::size_t>(device)]->idle_bytes() + reserve_.bytes(device);
  return capacity;
}

Result<Capacity> Heap::capacity(int device, PageSize page) const {
  auto capacity = this->capacity(device);
  if (!capacity || page == PageSize::k4KiB) return capacity;
  if (page == PageSize::k1GiB || huge_pages_ == Hugetlb::kRequired) {
    const os::HugePages pages = os::huge_pages(page);
    capacity->total = std::min(capacity->total, pages.reserved * bytes_of(page));
    capacity->free = std::min(capacity->free, pages.available * bytes_of(page));
  }
  capacity->total -= capacity->total % bytes_of(page);
  capacity->free -= capacity->free % bytes_of(page);
  return capacity;
}

Result<Heap::ManagedPart> Heap::find_managed(const ManagedRange& range) const {
  const std::uintptr_t address = address_of(range.pointer);
  const auto region = registry_.find(address);
  const auto found = region ? blocks_.find(region->base) : blocks_.end();
  if (found == blocks_.end() || found->second.hints == nullptr) {
    return fail(Errc::kInvalidValue, Reason::kNone,
                "address {:#x} is not in managed memory; pass an address that aclrtMemAllocManaged "
                "returned",
                address);
  }
  if (range.size > region->end() - address) {
    return fail(Errc::kInvalidValue, Reason::kOutOfRange,
                "size {} from address {:#x} reaches past the managed range [{:#x}, {:#x}); at most "
                "{} bytes lie there",
                range.size, address, region->base, region->end(), region->end() - address);
  }
  return ManagedPart{.hints = found->second.hints.get(),
                     .part = {.offset = address - region->base, .size = range.size}};
}

Result<ManagedHint> Heap::hint_of(const ManagedRange& range) const {
  const std::lock_guard lock(mutex_);
  const auto found = find_managed(range);
  if (!found) return found.error();
  return found->hints->of(found->part);
}

Result<void> Heap::change_hints(std::span<const ManagedRange> ranges, const ChangeHint& how) {
  const std::lock_guard lock(mutex_);
  std::vector<ManagedPart> parts;
  for (const ManagedRange& range : ranges) {
    const auto found = find_managed(range);
    if (!found) return found.error();
    parts.push_back(*found);
  }
  for (std::size_t i = 0; i < parts.size(); ++i)
    parts[i].hints->change(parts[i].part, [&](ManagedHint& hint) { how(i, hint); });
  return {};
}

std::uint64_t Heap::give_back_reserve() {
  for (const auto& slab : slabs_)
    slab->give_back_idle();
  return reserve_.give_back() + source_.give_back_spares();
}

}  // namespace hufu::memory
