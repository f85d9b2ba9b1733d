#include "runtime/copy.h"

#include <cstring>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "runtime/bulk_copy.h"

namespace hufu::runtime {
namespace {

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

// What lies where a set writes.
struct Target {
  Found to;

  bool reaches_across(int device) const { return is_elsewhere(to, device); }
};

// Known memory of the host is no device's, though there is nothing to hinder the copy: a kind that
// does not fit is a mistake of the caller's, which a device would answer for.
Result<Found> check_end(Runtime& runtime, const void* pointer, std::uint64_t count, Side side,
                        Use use) {
  auto found = check_range(runtime, pointer, count, side, use);
  if (!found || side != Side::kDevice || found->memory != Memory::kHost) return found;
  return fail(Errc::kInvalidValue, Reason::kNone,
              "address {} is host memory and the kind says that it is the device's; pass the kind "
              "that fits, or ACL_MEMCPY_DEFAULT",
              pointer);
}

Result<Target> check_target(Runtime& runtime, const void* to, std::uint64_t count, Side side) {
  const auto target = check_range(runtime, to, count, side, Use::kWrite);
  if (!target) return target.error();
  return Target{.to = *target};
}

// As much of the caller's bytes as is taken along with a task (ACL_MEMCPY_HOST_TO_BUF_TO_DEVICE).
constexpr std::uint64_t kMostKept = std::uint64_t{64} * 1024;

// Issues what `make` makes. If it finds pageable memory, it sets `at_once` and makes nothing; then
// `now` does the work, after the stream's.
template <class Make, class Now>
Result<void> issue(Runtime& runtime, const On& on, std::uint64_t count, const Make& make,
                   const Now& now) {
  bool at_once = false;
  auto issued = runtime.streams().issue(
      on.stream, on.context, where_for(count),
      [&](Stream& stream) -> Result<Task> { return make(stream, at_once); });
  if (!issued || !at_once) return issued;
  if (auto waited = runtime.streams().wait_for(on.stream, on.context); !waited) return waited;
  return now();
}

Error host_to_host() {
  return fail(Errc::kNotSupported, Reason::kNone,
              "a copy from host to host cannot be queued on a stream; use aclrtMemcpy");
}

}  // namespace

Result<Ends> check_copy(Runtime& runtime, const void* to, std::uint64_t to_count, const void* from,
                        std::uint64_t from_count, CopyKind kind) {
  const auto target = check_end(runtime, to, to_count, target_side(kind), Use::kWrite);
  if (!target) return target.error();
  const auto source = check_end(runtime, from, from_count, source_side(kind), Use::kRead);
  if (!source) return source.error();
  return Ends{.to = *target, .from = *source};
}

// --- One range -----------------------------------------------------------------------------------

Result<void> copy(Runtime& runtime, void* to, std::uint64_t room, const void* from,
                  std::uint64_t count, CopyKind kind) {
  if (auto fits = check_room(room, count, "destMax"); !fits) return fits;
  if (to == from) return {};
  const Streams::Lane lane(runtime.streams());
  if (auto good = check_copy(runtime, to, count, from, count, kind); !good) return good.error();
  copy_bytes(to, from, count);
  return {};
}

Result<void> copy_on(Runtime& runtime, const On& on, void* to, std::uint64_t room, const void* from,
                     std::uint64_t count, CopyKind kind, Pageable pageable) {
  if (kind == CopyKind::kHostToHost) return host_to_host();
  if (auto fits = check_room(room, count, "destMax"); !fits) return fits;
  std::unique_ptr<std::byte[]> kept;
  if (kind == CopyKind::kHostToBufferToDevice && count <= kMostKept) {
    kept.reset(new std::byte[count]);
    std::memcpy(kept.get(), from, count);
  }
  const auto make = [&](Stream& stream, bool& at_once) -> Result<Task> {
    const auto ends =
        check_for(stream, [&] { return check_copy(runtime, to, count, from, count, kind); });
    if (!ends) return ends.error();
    if (kind == CopyKind::kDefault && !ends->device_takes_part()) return host_to_host();
    if (kept == nullptr && ends->pageable()) {
      if (pageable == Pageable::kRefused) {
        return fail(Errc::kInvalidValue, Reason::kNone,
                    "the host side ({} or {}) is pageable memory, which this call refuses; use "
                    "memory of aclrtMallocHost, or aclrtMemcpyAsync",
                    to, from);
      }
      at_once = true;
      return Task();
    }
    if (to == from) return Task();
    const void* source = kept == nullptr ? from : kept.get();
    return Task(CopyTask{.to = to, .from = source, .count = count, .kept = std::move(kept)});
  };
  return issue(runtime, on, count, make,
               [&] { return copy(runtime, to, room, from, count, kind); });
}

// NOLINTNEXTLINE(bugprone-easily-swappable-parameters): the order is memset's.
Result<void> fill(Runtime& runtime, void* to, std::uint64_t room, int value, std::uint64_t count) {
  if (auto fits = check_room(room, count, "maxCount"); !fits) return fits;
  const Streams::Lane lane(runtime.streams());
  if (auto good = check_target(runtime, to, count, Side::kAny); !good) return good.error();
  std::memset(to, value, count);
  return {};
}

// NOLINTNEXTLINE(bugprone-easily-swappable-parameters): the order is memset's.
Result<void> fill_on(Runtime& runtime, const On& on, void* to, std::uint64_t room, int value,
                     std::uint64_t count) {
  if (auto fits = check_room(room, count, "maxCount"); !fits) return fits;
  const auto make = [&](Stream& stream, bool& at_once) -> Result<Task> {
    const auto target =
        check_for(stream, [&] { return check_target(runtime, to, count, Side::kAny); });
    if (!target) return target.error();
    if (target->to.memory == Memory::kPageable) {
      at_once = true;
      return Task();
    }
    return Task(FillTask{.to = to, .count = count, .value = value});
  };
  return issue(runtime, on, count, make, [&] { return fill(runtime, to, room, value, count); });
}

Result<void> fill(Runtime& runtime, const WordFill& what) {
  const Streams::Lane lane(runtime.streams());
  const auto good = check_target(runtime, what.to, what.words * sizeof what.value, Side::kDevice);
  if (!good) return good.error();
  fill_words(what.to, what.words, what.value);
  return {};
}

Result<void> fill_on(Runtime& runtime, const On& on, const WordFill& what) {
  const std::uint64_t count = what.words * sizeof what.value;
  return runtime.streams().issue(
      on.stream, on.context, where_for(count), [&](Stream& stream) -> Result<Task> {
        const auto target =
            check_for(stream, [&] { return check_target(runtime, what.to, count, Side::kDevice); });
        if (!target) return target.error();
        return Task(FillWordsTask{.to = what.to, .words = what.words, .value = what.value});
      });
}

// --- Rows ----------------------------------------------------------------------------------------

namespace {

Result<std::uint64_t> extent(std::uint64_t pitch, const Rows& rows, std::string_view name) {
  std::uint64_t before = 0;
  std::uint64_t all = 0;
  if (__builtin_mul_overflow(pitch, rows.height - 1, &before) ||
      __builtin_add_overflow(before, rows.width, &all)) {
    return fail(Errc::kInvalidValue, Reason::kOutOfRange,
                "{} rows that lie {} {} bytes apart do not fit the address space", rows.height,
                name, pitch);
  }
  return all;
}

enum class InsideDevice : bool { kRefused, kCopied };

Result<Ends> check_rows(Runtime& runtime, const Rows& rows, CopyKind kind, InsideDevice inside) {
  const auto to = extent(rows.to_pitch, rows, "dpitch");
  if (!to) return to.error();
  const auto from = extent(rows.from_pitch, rows, "spitch");
  if (!from) return from.error();
  const auto ends = check_copy(runtime, rows.to, *to, rows.from, *from, kind);
  if (!ends) return ends;
  const bool both_device =
      ends->to.memory == Memory::kDevice && ends->from.memory == Memory::kDevice;
  if (both_device && inside == InsideDevice::kRefused) {
    return fail(
        Errc::kInvalidValue, Reason::kNone,
        "dst {} and src {} are both device memory; rows are copied from device to device by "
        "aclrtMemcpy2dAsync",
        rows.to, rows.from);
  }
  if (!ends->device_takes_part()) {
    return fail(Errc::kInvalidValue, Reason::kNone,
                "neither dst {} nor src {} is device memory; copy rows inside host memory with "
                "memcpy",
                rows.to, rows.from);
  }
  return ends;
}

Result<void> copy_rows_now(Runtime& runtime, const Rows& rows, CopyKind kind, InsideDevice inside) {
  const Streams::Lane lane(runtime.streams());
  if (auto good = check_rows(runtime, rows, kind, inside); !good) return good.error();
  copy_rows(rows);
  return {};
}

}  // namespace

Result<void> copy(Runtime& runtime, const Rows& rows, CopyKind kind) {
  return copy_rows_now(runtime, rows, kind, InsideDevice::kRefused);
}

Result<void> copy_on(Runtime& runtime, const On& on, const Rows& rows, CopyKind kind) {
  const auto make = [&](Stream& stream, bool& at_once) -> Result<Task> {
    const auto ends =
        check_for(stream, [&] { return check_rows(runtime, rows, kind, InsideDevice::kCopied); });
    if (!ends) return ends.error();
    if (ends->pageable()) {
      at_once = true;
      return Task();
    }
    return Task(rows);
  };
  // Does not overflow where it counts: then nothing is made.
  return issue(runtime, on, rows.width * rows.height, make,
               [&] { return copy_rows_now(runtime, rows, kind, InsideDevice::kCopied); });
}

// --- Batches -------------------------------------------------------------------------------------

namespace {

// What lies at the ends of many. Allocates nothing, for a ticket is taken already.
struct BatchFound {
  bool pageable = false;
  std::optional<int> device;
  bool several_devices = false;

  bool reaches_across(int own) const { return several_devices || (device && *device != own); }
  void add(const Found& found) {
    if (found.memory == Memory::kPageable) pageable = true;
    if (found.memory != Memory::kDevice) return;
    if (device && *device != found.device) several_devices = true;
    device = found.device;
  }
};

// Is it what the caller says it is?
Result<Found> check_claim(Runtime& runtime, const void* pointer, std::uint64_t count,
                          const Claim& claim, Use use) {
  const auto found = check_range(runtime, pointer, count, claim.side, use);
  if (!found) return found;
  if (claim.side == Side::kHost && found->memory == Memory::kDevice) {
    return fail(Errc::kInvalidValue, Reason::kNone,
                "address {} is device memory of device {}, and its attribute says host", pointer,
                found->device);
  }
  if (claim.side == Side::kDevice &&
      (found->memory != Memory::kDevice || found->device != claim.device)) {
    return fail(Errc::kInvalidValue, Reason::kNone,
                "address {} is not memory of device {}, as its attribute says, but of {} {}",
                pointer, claim.device,
                found->memory == Memory::kDevice ? "device" : "the host, not device",
                found->device);
  }
  return found;
}

Result<Ends> check_piece(Runtime& runtime, const ClaimedPiece& claimed) {
  const Piece& piece = claimed.piece;
  const auto to = check_claim(runtime, piece.to, piece.count, claimed.to, Use::kWrite);
  if (!to) return to.error();
  const auto from = check_claim(runtime, piece.from, piece.count, claimed.from, Use::kRead);
  if (!from) return from.error();
  const Ends ends{.to = *to, .from = *from};
  if (!ends.device_takes_part()) {
    return fail(Errc::kNotSupported, Reason::kNone,
                "neither {} nor {} is device memory; copy inside host memory with memcpy", piece.to,
                piece.from);
  }
  return ends;
}

Result<BatchFound> check_pieces(Runtime& runtime, std::span<const ClaimedPiece> pieces,
                                std::size_t& at_fault) {
  BatchFound all;
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    if (pieces[i].piece.count == 0) continue;
    const auto ends = check_piece(runtime, pieces[i]);
    if (!ends) {
      at_fault = i;
      return fail(ends.error().code, ends.error().reason, "copy {} of {}: {}", i, pieces.size(),
                  ends.error().what());
    }
    all.add(ends->to);
    all.add(ends->from);
  }
  return all;
}

std::vector<Piece> only_pieces(std::span<const ClaimedPiece> claimed) {
  std::vector<Piece> pieces;
  pieces.reserve(claimed.size());
  for (const ClaimedPiece& one : claimed) {
    if (one.piece.count != 0) pieces.push_back(one.piece);
  }
  return pieces;
}

std::uint64_t sum_of(std::span<const ClaimedPiece> pieces) {
  std::uint64_t sum = 0;
  for (const ClaimedPiece& one : pieces) {
    if (__builtin_add_overflow(sum, one.piece.count, &sum)) return ~std::uint64_t{0};
  }
  return sum;
}

}  // namespace

Result<void> copy(Runtime& runtime, std::span<const ClaimedPiece> pieces, std::size_t& at_fault) {
  const Streams::Lane lane(runtime.streams());
  if (auto good = check_pieces(runtime, pieces, at_fault); !good) return good.error();
  copy_pieces(only_pieces(pieces));
  return {};
}

Result<void> copy_on(Runtime& runtime, const On& on, std::span<const ClaimedPiece> pieces,
                     std::size_t& at_fault) {
  std::vector<Piece> all = only_pieces(pieces);
  const auto make = [&](Stream& stream, bool& at_once) -> Result<Task> {
    const auto found = check_for(stream, [&] { return check_pieces(runtime, pieces, at_fault); });
    if (!found) return found.error();
    if (found->pageable) {
      at_once = true;
      return Task();
    }
    return Task(BatchTask{.pieces = std::move(all)});
  };
  return issue(runtime, on, sum_of(pieces), make, [&] { return copy(runtime, pieces, at_fault); });
}

Result<void> order_on(Runtime& runtime, const On& on) {
  return runtime.streams().issue(on.stream, on.context, Where::kHereIfIdle,
                                 [](Stream&) -> Result<Task> { return Task(); });
}

}  // namespace hufu::runtime
