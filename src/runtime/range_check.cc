#include "runtime/range_check.h"

namespace hufu::runtime {
namespace {

Memory memory_of(const memory::Region& region) {
  switch (region.kind) {
    case memory::RegionKind::kHost:
    case memory::RegionKind::kRegistered:
      return Memory::kHost;
    case memory::RegionKind::kBlock:
    case memory::RegionKind::kSlab:
    case memory::RegionKind::kImported:
    case memory::RegionKind::kManaged:
    case memory::RegionKind::kMapped:
    case memory::RegionKind::kPool:
      return Memory::kDevice;
  }
  return Memory::kDevice;
}

}  // namespace

Result<void> check_room(std::uint64_t room, std::uint64_t count, std::string_view name) {
  if (count <= room) return {};
  return fail(Errc::kInvalidValue, Reason::kOutOfRange,
              "count {} exceeds {} {}; pass the destination's size there and at most that as count",
              count, name, room);
}

Result<Found> check_range(Runtime& runtime, const void* pointer, std::uint64_t count, Side side,
                          Use use) {
  auto region = runtime.heap().describe(pointer);
  if (!region) {
    if (side != Side::kDevice && runtime.reservations().contains(pointer)) {
      return fail(Errc::kInvalidValue, Reason::kNone,
                  "address {} is reserved and nothing is mapped there; map physical memory with "
                  "aclrtMapMem first",
                  pointer);
    }
    if (side != Side::kDevice) return Found{};
    const auto known = runtime.region_of(pointer, count);
    if (!known) return known.error();
    region = *known;  // Another thread has been given it in between.
  }
  const auto address = reinterpret_cast<std::uintptr_t>(pointer);
  if (count > region->end() - address) {
    return fail(Errc::kInvalidValue, Reason::kOutOfRange,
                "{} bytes from address {:#x} reach past the allocation [{:#x}, {:#x}); at most {} "
                "lie there",
                count, address, region->base, region->end(), region->end() - address);
  }
  if (region->access == Access::kNone) {
    return fail(Errc::kRefused, Reason::kNone,
                "address {:#x} lies in [{:#x}, {:#x}), which was mapped without access; call "
                "aclrtMemSetAccess first",
                address, region->base, region->end());
  }
  if (use == Use::kWrite && region->access == Access::kReadOnly) {
    const bool imported = region->kind == memory::RegionKind::kImported;
    return fail(Errc::kRefused, Reason::kReadOnlyExport,
                "address {:#x} lies in [{:#x}, {:#x}), which was {} read-only; copy the data to "
                "other memory to change it",
                address, region->base, region->end(), imported ? "imported" : "allocated");
  }
  return Found{.memory = memory_of(*region), .device = region->device};
}

}  // namespace hufu::runtime
