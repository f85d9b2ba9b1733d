#include "runtime/copy.h"

#include <cstring>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>

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
  if (use == Use::kWrite && region->access == Access::kReadOnly) {
    return fail(Errc::kRefused, Reason::kReadOnlyExport,
                "address {:#x} lies in [{:#x}, {:#x}), which was imported read-only; copy the data "
                "to memory of your own to change it",
                address, region->base, region->end());
  }
  return {};
}

Result<void> check_copy(Runtime& runtime, void* to, const void* from, std::uint64_t count,
                        CopyKind kind) {
  if (auto good = check_range(runtime, to, count, target_side(kind), Use::kWrite); !good)
    return good;
  return check_range(runtime, from, count, source_side(kind), Use::kRead);
}

// Does the stream's task touch another device's memory? Then it is said before the address is
// looked up once more: whoever frees that memory looks for such streams after he has taken it away.
template <class Check>
Result<void> check_for(Runtime& runtime, Stream& stream, const Check& check, const void* one,
                       const void* other) {
  if (auto good = check(); !good || stream.crosses.load()) return good;
  const int device = stream.device.load();
  const auto elsewhere = [&](const void* pointer) {
    const auto region = runtime.heap().describe(pointer);
    return region && region->kind != memory::RegionKind::kHost && region->device != device;
  };
  if (!elsewhere(one) && !elsewhere(other)) return {};
  stream.crosses = true;
  return check();
}

// Short enough to be done by the caller rather than to wake somebody.
constexpr std::uint64_t kShort = std::uint64_t{64} * 1024;
// As much of the caller's bytes as is taken along with a task (ACL_MEMCPY_HOST_TO_BUF_TO_DEVICE).
constexpr std::uint64_t kMostKept = std::uint64_t{64} * 1024;

Where where_for(std::uint64_t count) {
  return count <= kShort ? Where::kHereIfIdle : Where::kQueued;
}

}  // namespace

Result<void> copy(Runtime& runtime, void* to, std::uint64_t room, const void* from,
                  std::uint64_t count, CopyKind kind) {
  if (auto fits = check_room(room, count, "destMax"); !fits) return fits;
  if (to == from) return {};
  const Streams::Lane lane(runtime.streams());
  if (auto good = check_copy(runtime, to, from, count, kind); !good) return good;
  std::memmove(to, from, count);
  return {};
}

// NOLINTNEXTLINE(bugprone-easily-swappable-parameters): the order is memset's.
Result<void> fill(Runtime& runtime, void* to, std::uint64_t room, int value, std::uint64_t count) {
  if (auto fits = check_room(room, count, "maxCount"); !fits) return fits;
  const Streams::Lane lane(runtime.streams());
  if (auto good = check_range(runtime, to, count, Side::kAny, Use::kWrite); !good) return good;
  std::memset(to, value, count);
  return {};
}

Result<void> copy_on(Runtime& runtime, const On& on, void* to, std::uint64_t room, const void* from,
                     std::uint64_t count, CopyKind kind) {
  const auto target = runtime.heap().describe(to);
  const auto source_region = runtime.heap().describe(from);
  const auto is_device = [](const std::optional<memory::Region>& region) {
    return region && region->kind != memory::RegionKind::kHost;
  };
  if (kind == CopyKind::kHostToHost ||
      (kind == CopyKind::kDefault && !is_device(target) && !is_device(source_region))) {
    return fail(Errc::kNotSupported, Reason::kNone,
                "a copy from host to host cannot be queued on a stream; use aclrtMemcpy");
  }
  if (auto fits = check_room(room, count, "destMax"); !fits) return fits;
  std::unique_ptr<std::byte[]> kept;
  if (kind == CopyKind::kHostToBufferToDevice && count <= kMostKept) {
    kept.reset(new std::byte[count]);
    std::memcpy(kept.get(), from, count);
  } else if (!target || !source_region) {
    if (auto good = check_copy(runtime, to, from, count, kind); !good) return good;
    if (auto waited = runtime.streams().wait_for(on.stream, on.context); !waited) return waited;
    return copy(runtime, to, room, from, count, kind);
  }
  return runtime.streams().issue(
      on.stream, on.context, where_for(count), [&](Stream& stream) -> Result<Task> {
        const auto check = [&] { return check_copy(runtime, to, from, count, kind); };
        if (auto good = check_for(runtime, stream, check, to, from); !good) return good.error();
        if (to == from) return Task();
        const void* source = kept == nullptr ? from : kept.get();
        return Task(CopyTask{.to = to, .from = source, .count = count, .kept = std::move(kept)});
      });
}

// NOLINTNEXTLINE(bugprone-easily-swappable-parameters): the order is memset's.
Result<void> fill_on(Runtime& runtime, const On& on, void* to, std::uint64_t room, int value,
                     std::uint64_t count) {
  if (auto fits = check_room(room, count, "maxCount"); !fits) return fits;
  if (!runtime.heap().describe(to)) {
    if (auto waited = runtime.streams().wait_for(on.stream, on.context); !waited) return waited;
    return fill(runtime, to, room, value, count);
  }
  return runtime.streams().issue(
      on.stream, on.context, where_for(count), [&](Stream& stream) -> Result<Task> {
        const auto check = [&] { return check_range(runtime, to, count, Side::kAny, Use::kWrite); };
        if (auto good = check_for(runtime, stream, check, to, to); !good) return good.error();
        return Task(FillTask{.to = to, .count = count, .value = value});
      });
}

}  // namespace hufu::runtime
