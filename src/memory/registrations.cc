#include "memory/registrations.h"

#include <iterator>

#include "base/units.h"
#include "os/host_pages.h"

namespace hufu::memory {
namespace {

constexpr std::uint64_t kPage = 4 * kKiB;

std::uintptr_t address_of(const void* pointer) { return reinterpret_cast<std::uintptr_t>(pointer); }

Error fail_known(std::uintptr_t base, std::uint64_t size, const Region& known) {
  switch (known.kind) {
    case RegionKind::kRegistered:
      return fail(Errc::kRegistered, Reason::kNone,
                  "ptr {:#x} and its {} bytes overlap [{:#x}, {:#x}), which is registered already; "
                  "end that with aclrtHostUnregister({:#x}) first",
                  base, size, known.base, known.end(), known.base);
    case RegionKind::kHost:
      return fail(Errc::kRegistered, Reason::kNone,
                  "ptr {:#x} and its {} bytes overlap [{:#x}, {:#x}), which aclrtMallocHost "
                  "returned: the device knows it without being told",
                  base, size, known.base, known.end());
    case RegionKind::kBlock:
    case RegionKind::kSlab:
    case RegionKind::kImported:
    case RegionKind::kManaged:
    case RegionKind::kMapped:
    case RegionKind::kPool:
      break;
  }
  return fail(Errc::kInvalidValue, Reason::kNone,
              "ptr {:#x} and its {} bytes overlap device memory [{:#x}, {:#x}); register memory "
              "that the program itself made",
              base, size, known.base, known.end());
}

}  // namespace

Result<void> Registrations::add(const Wish& wish) {
  const auto there = wish.io_memory ? os::require_mapped(wish.pointer, wish.size)
                                    : os::require_readable(wish.pointer, wish.size);
  if (!there) return there;
  const std::uintptr_t base = address_of(wish.pointer);
  const std::lock_guard lock(mutex_);
  if (const auto known = registry_.any_in(base, base + wish.size)) {
    return fail_known(base, wish.size, *known);
  }
  if (wish.pinned) {
    if (auto pinned = pin(base, wish.size); !pinned) return pinned;
  }
  ranges_.try_emplace(base, Range{.size = wish.size, .mapped = wish.mapped, .pinned = wish.pinned});
  registry_.add(
      {.base = base, .mapped = wish.size, .reported = wish.size, .kind = RegionKind::kRegistered});
  return {};
}

Result<void> Registrations::remove(const void* pointer) {
  const std::uintptr_t base = address_of(pointer);
  const std::lock_guard lock(mutex_);
  const auto found = ranges_.find(base);
  if (found == ranges_.end()) {
    if (const auto known = registry_.find(base); known && known->kind == RegionKind::kRegistered) {
      return fail(
          Errc::kNotRegistered, Reason::kNone,
          "ptr {:#x} lies {} bytes into the registered range [{:#x}, {:#x}); pass its start", base,
          base - known->base, known->base, known->end());
    }
    return fail(Errc::kNotRegistered, Reason::kNone,
                "ptr {:#x} starts no range that is registered; pass what was given to "
                "aclrtHostRegister, once",
                base);
  }
  const Range range = found->second;
  registry_.remove(base);
  ranges_.erase(found);
  if (range.pinned) unpin(base, range.size);
  return {};
}

Result<void*> Registrations::device_pointer(void* pointer) const {
  const std::uintptr_t address = address_of(pointer);
  const std::lock_guard lock(mutex_);
  auto found = ranges_.upper_bound(address);
  if (found == ranges_.begin() || address - (--found)->first >= found->second.size) {
    return fail(Errc::kInvalidValue, Reason::kNone,
                "pHost {:#x} is in no registered memory; register it with aclrtHostRegisterV2 and "
                "ACL_HOST_REG_MAPPED",
                address);
  }
  if (!found->second.mapped) {
    return fail(Errc::kInvalidValue, Reason::kNone,
                "pHost {:#x} lies in [{:#x}, {:#x}), which is registered without "
                "ACL_HOST_REG_MAPPED: the device has no address of it",
                address, found->first, found->first + found->second.size);
  }
  return pointer;
}

bool Registrations::is_pinned(std::uintptr_t page) const {
  // Ranges do not overlap: those that touch the page follow one another.
  for (auto at = ranges_.lower_bound(page + kPage); at != ranges_.begin();) {
    --at;
    if (at->first + at->second.size <= page) return false;
    if (at->second.pinned) return true;
  }
  return false;
}

Result<void> Registrations::pin(std::uintptr_t base, std::uint64_t size) {
  const std::uintptr_t first = base / kPage * kPage;
  return os::lock_pages(first, *round_up(base + size, kPage) - first);
}

void Registrations::unpin(std::uintptr_t base, std::uint64_t size) {
  std::uintptr_t first = base / kPage * kPage;
  std::uintptr_t end = *round_up(base + size, kPage);
  if (is_pinned(first)) first += kPage;
  if (end > first && is_pinned(end - kPage)) end -= kPage;
  if (end > first) os::unlock_pages(first, end - first);
}

}  // namespace hufu::memory
