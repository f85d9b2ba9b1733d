#include "runtime/copy.h"

#include <cstring>
#include <optional>
#include <string_view>

namespace hufu::runtime {
namespace {

enum class Side : std::uint8_t { kHost, kDevice, kAny };
enum class Use : std::uint8_t { kRead, kWrite };

Side source_side(CopyKind kind) {
  switch (kind) {
    case CopyKind::kDeviceToHost:
    case CopyKind::kDeviceToDevice:
      return Side::kDevice;
    case CopyKind::kDefault:
      return Side::kAny;
    case CopyKind::kHostToHost:
    case CopyKind::kHostToDevice:
    case CopyKind::kHostToBufferToDevice:
      return Side::kHost;
  }
  return Side::kAny;
}

Side target_side(CopyKind kind) {
  switch (kind) {
    case CopyKind::kHostToDevice:
    case CopyKind::kDeviceToDevice:
    case CopyKind::kHostToBufferToDevice:
      return Side::kDevice;
    case CopyKind::kDefault:
      return Side::kAny;
    case CopyKind::kHostToHost:
    case CopyKind::kDeviceToHost:
      return Side::kHost;
  }
  return Side::kAny;
}

Result<void> check_room(std::uint64_t room, std::uint64_t count, std::string_view name) {
  if (count <= room) return {};
  return fail(Errc::kInvalidValue, Reason::kOutOfRange,
              "count {} exceeds {} {}; pass the destination's size there and at most that as count",
              count, name, room);
}

// A host side is checked too when it happens to be memory that the runtime knows.
Result<void> check_range(Runtime& runtime, const void* pointer, std::uint64_t count, Side side,
                         Use use) {
  auto region = runtime.heap().describe(pointer);
  if (!region) {
    if (side != Side::kDevice) return {};
    return runtime.region_of(pointer, count).error();
  }
  const auto address = reinterpret_cast<std::uintptr_t>(pointer);
  if (count > region->end() - address) {
    return fail(Errc::kInvalidValue, Reason::kOutOfRange,
                "{} bytes from address {:#x} reach past the allocation [{:#x}, {:#x}); at most {} "
                "lie there",
                count, address, region->base, region->end(), region->end() - address);
  }
  if (use == Use::kWrite && region->access == Access::kReadOnly) {
    return fail(Errc::kRefused, Reason::kReadOnlyExport,
                "address {:#x} lies in [{:#x}, {:#x}), which was imported read-only; copy the data "
                "to memory of your own to change it",
                address, region->base, region->end());
  }
  return {};
}

}  // namespace

Result<void> copy(Runtime& runtime, void* to, std::uint64_t room, const void* from,
                  std::uint64_t count, CopyKind kind) {
  if (auto fits = check_room(room, count, "destMax"); !fits) return fits;
  if (to == from) return {};
  if (auto good = check_range(runtime, to, count, target_side(kind), Use::kWrite); !good)
    return good;
  if (auto good = check_range(runtime, from, count, source_side(kind), Use::kRead); !good)
    return good;
  std::memmove(to, from, count);
  return {};
}

// NOLINTNEXTLINE(bugprone-easily-swappable-parameters): the order is memset's.
Result<void> fill(Runtime& runtime, void* to, std::uint64_t room, int value, std::uint64_t count) {
  if (auto fits = check_room(room, count, "maxCount"); !fits) return fits;
  if (auto good = check_range(runtime, to, count, Side::kAny, Use::kWrite); !good) return good;
  std::memset(to, value, count);
  return {};
}

}  // namespace hufu::runtime
