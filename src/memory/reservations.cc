#include "memory/reservations.h"

#include <algorithm>

namespace hufu::memory {
namespace {

std::uintptr_t address_of(const void* pointer) { return reinterpret_cast<std::uintptr_t>(pointer); }

std::byte* pointer_to(std::uintptr_t address) { return reinterpret_cast<std::byte*>(address); }

Error fail_not_reserved(std::uintptr_t at, std::uint64_t size) {
  return fail(Errc::kRefused, Reason::kNone,
              "virPtr: [{:#x}, {:#x}) is not inside one reserved range; reserve it with "
              "aclrtReserveMemAddress first",
              at, at + size);
}

Error fail_not_mapped(std::uintptr_t address) {
  return fail(Errc::kRefused, Reason::kNone,
              "virPtr: nothing is mapped at {:#x}; pass the address that aclrtMapMem was given, "
              "before it is unmapped",
              address);
}

}  // namespace

struct Reservations::Range {
  struct Mapping {
    std::uint64_t size = 0;
    std::shared_ptr<Physical> physical;  // Null: leaving.
    std::set<Accessor> by;

    bool leaving() const { return physical == nullptr; }
  };

  os::ReservedSpace space;
  std::map<std::uintptr_t, Mapping> mappings;  // By address. They do not overlap.

  std::uintptr_t base() const { return address_of(space.base()); }
  bool contains(std::uintptr_t at, std::uint64_t size) const {
    return at >= base() && size <= space.length() && at - base() <= space.length() - size;
  }
  // The first one that has a byte of [at, at + size).
  std::map<std::uintptr_t, Mapping>::iterator overlapping(std::uintptr_t at, std::uint64_t size) {
    auto found = mappings.upper_bound(at);
    if (found != mappings.begin()) {
      const auto before = std::prev(found);
      if (at - before->first < before->second.size) return before;
    }
    return found != mappings.end() && found->first - at < size ? found : mappings.end();
  }
  // What is mapped at this very byte.
  std::map<std::uintptr_t, Mapping>::iterator mapped_at(std::uintptr_t address) {
    const auto found = overlapping(address, 1);
    return found != mappings.end() && !found->second.leaving() ? found : mappings.end();
  }
};

Result<void*> Reservations::reserve(std::uint64_t size, void* where) {
  const PageSize alignment = size >= kGiB ? PageSize::k1GiB : PageSize::k2MiB;
  const auto length = round_up(size, bytes_of(alignment));
  if (!length) {
    return fail(Errc::kOutOfMemory, Reason::kSizeTooLarge,
                "size {} is more than all addresses together", size);
  }
  // An address that the caller wants is taken as it is: 2 MiB are enough for it.
  if (!is_aligned(address_of(where), kUnit)) {
    return fail(Errc::kInvalidValue, Reason::kNotAligned,
                "expectPtr {} is not a multiple of {}; round it, or pass null", where, kUnit);
  }
  auto space = os::ReservedSpace::make(*length, alignment, static_cast<std::byte*>(where));
  if (!space) {
    Error error = space.error();
    if (error.code == Errc::kRefused) error.code = Errc::kInvalidValue;  // Of this argument.
    return error;
  }
  auto range = std::make_shared<Range>();
  range->space = std::move(*space);
  const std::uintptr_t base = range->base();
  const std::lock_guard lock(mutex_);
  lowest_ = std::min(lowest_.load(), base);
  highest_ = std::max(highest_.load(), base + *length);
  ranges_.emplace(base, std::move(range));
  return static_cast<void*>(pointer_to(base));
}

Result<void> Reservations::release(void* base) {
  std::shared_ptr<Range> released;  // Outlives the lock: its end unmaps.
  const std::lock_guard lock(mutex_);
  const auto found = ranges_.find(address_of(base));
  if (found == ranges_.end()) {
    return fail(Errc::kInvalidValue, Reason::kNone,
                "virPtr {} does not start a reserved range; pass what aclrtReserveMemAddress gave, "
                "once",
                base);
  }
  for (const auto& [at, mapping] : found->second->mappings) {
    if (mapping.leaving()) continue;
    return fail(
        Errc::kRefused, Reason::kNone,
        "virPtr {}: {} bytes are still mapped at {:#x}; unmap them with aclrtUnmapMem first", base,
        mapping.size, at);
  }
  released = std::move(found->second);
  ranges_.erase(found);
  return {};
}

std::shared_ptr<Reservations::Range> Reservations::range_of(std::uintptr_t address) const {
  const auto after = ranges_.upper_bound(address);
  if (after == ranges_.begin()) return nullptr;
  const auto& range = std::prev(after)->second;
  return range->contains(address, 1) ? range : nullptr;
}

void Reservations::enter(std::uintptr_t at, const Physical& physical, Access access) {
  const PhysicalSpec& spec = physical.spec();
  registry_.add({.base = at,
                 .mapped = spec.size,
                 .reported = spec.size,
                 .id = physical.block(),
                 .page = spec.page,
                 .device = spec.device,
                 .kind = RegionKind::kMapped,
                 .access = access});
}

Result<void> Reservations::map(void* at, std::uint64_t size, std::shared_ptr<Physical> physical,
                               os::Touch touch, Deadline deadline) {
  const std::uintptr_t address = address_of(at);
  if (!is_aligned(address, kUnit) || !is_aligned(size, kUnit)) {
    return fail(Errc::kRefused, Reason::kNotAligned,
                "virPtr {} and size {} must be multiples of {}", at, size, kUnit);
  }
  const PhysicalSpec& spec = physical->spec();
  if (size != spec.size) {
    return fail(Errc::kInvalidValue, Reason::kOutOfRange,
                "size {} is not that of the physical memory, {}; all of it is mapped at once", size,
                spec.size);
  }
  std::unique_lock lock(mutex_);
  std::shared_ptr<Range> range;
  while (true) {
    range = range_of(address);
    if (range == nullptr || !range->contains(address, size)) {
      return fail_not_reserved(address, size);
    }
    const auto there = range->overlapping(address, size);
    if (there == range->mappings.end()) break;
    if (!there->second.leaving()) {
      return fail(Errc::kRefused, Reason::kNone,
                  "virPtr: {} bytes are mapped at {:#x} already; unmap them, or map elsewhere",
                  there->second.size, there->first);
    }
    if (std::chrono::steady_clock::now() >= deadline) {
      return fail(Errc::kRefused, Reason::kNone,
                  "virPtr: work that was queued before the {} bytes at {:#x} were unmapped still "
                  "uses them; synchronize its stream, or map elsewhere",
                  there->second.size, there->first);
    }
    left_.wait_until(lock, deadline);
  }
  if (auto shown = physical->pages().show(pointer_to(address), touch); !shown) return shown;
  enter(address, *physical, touch == os::Touch::kReadWrite ? Access::kReadWrite : Access::kNone);
  physical->begin_use();
  std::set<Accessor> by;
  if (touch == os::Touch::kReadWrite) {
    by.insert({.device = spec.on_host ? Accessor::kHost : spec.device});
  }
  range->mappings.insert_or_assign(
      address, Range::Mapping{.size = size, .physical = std::move(physical), .by = std::move(by)});
  return {};
}

Result<Reservations::Leaving> Reservations::unmap(void* at) {
  const std::uintptr_t address = address_of(at);
  if (!is_aligned(address, kUnit)) {
    return fail(Errc::kInvalidValue, Reason::kNotAligned,
                "virPtr {} is not a multiple of {}; pass the address that aclrtMapMem was given",
                at, kUnit);
  }
  const std::lock_guard lock(mutex_);
  const auto range = range_of(address);
  if (range == nullptr) return fail_not_mapped(address);
  const auto found = range->mapped_at(address);
  if (found == range->mappings.end()) return fail_not_mapped(address);
  if (found->first != address) {
    return fail(Errc::kRefused, Reason::kNone,
                "virPtr {} is inside the {} bytes that are mapped at {:#x}; pass that address", at,
                found->second.size, found->first);
  }
  registry_.remove(address);
  found->second.physical->end_use();
  return Leaving(this, range, address, std::move(found->second.physical));
}

Reservations::Leaving::~Leaving() {
  if (all_ == nullptr) return;
  const std::lock_guard lock(all_->mutex_);
  os::ReservedSpace::vacate(pointer_to(at_), physical_->spec().size);
  range_->mappings.erase(at_);
  all_->left_.notify_all();
}

Result<void> Reservations::allow(void* at, std::uint64_t size, const std::set<Accessor>& by) {
  const std::uintptr_t address = address_of(at);
  const std::lock_guard lock(mutex_);
  const auto range = range_of(address);
  if (range == nullptr) return fail_not_mapped(address);
  const auto found = range->mapped_at(address);
  if (found == range->mappings.end()) return fail_not_mapped(address);
  Range::Mapping& mapping = found->second;
  if (found->first != address || mapping.size != size) {
    return fail(Errc::kRefused, Reason::kNone,
                "virPtr {} with size {} is not what was mapped; {} bytes are, at {:#x}", at, size,
                mapping.size, found->first);
  }
  if (mapping.by.empty()) {
    const Physical& physical = *mapping.physical;
    if (auto allowed = physical.pages().allow(pointer_to(address)); !allowed) return allowed;
    registry_.remove(address);
    enter(address, physical, Access::kReadWrite);
  }
  mapping.by.insert(by.begin(), by.end());
  return {};
}

Result<bool> Reservations::allowed(const void* address, Accessor by) const {
  const std::lock_guard lock(mutex_);
  const auto range = range_of(address_of(address));
  if (range == nullptr) return fail_not_mapped(address_of(address));
  const auto found = range->mapped_at(address_of(address));
  if (found == range->mappings.end()) return fail_not_mapped(address_of(address));
  return found->second.by.contains(by);
}

bool Reservations::contains(const void* address) const {
  const std::uintptr_t at = address_of(address);
  if (at < lowest_.load() || at >= highest_.load()) return false;
  const std::lock_guard lock(mutex_);
  return range_of(at) != nullptr;
}

Result<std::shared_ptr<Physical>> Reservations::mapped_at(const void* address) const {
  const std::lock_guard lock(mutex_);
  const auto range = range_of(address_of(address));
  if (range == nullptr) return fail_not_mapped(address_of(address));
  const auto found = range->mapped_at(address_of(address));
  if (found == range->mappings.end()) return fail_not_mapped(address_of(address));
  return found->second.physical;
}

Result<std::shared_ptr<Physical>> Reservations::mapped_from(const void* at) const {
  const std::lock_guard lock(mutex_);
  const auto range = range_of(address_of(at));
  if (range == nullptr) return fail_not_mapped(address_of(at));
  const auto found = range->mappings.find(address_of(at));
  if (found == range->mappings.end() || found->second.leaving()) {
    return fail_not_mapped(address_of(at));
  }
  return found->second.physical;
}

}  // namespace hufu::memory
