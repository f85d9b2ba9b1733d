#pragma once

// Copies and sets between host and device memory, checked before a byte moves (see range_check.h).
//
// Each comes in two forms. One is done when it returns, and comes after what the calling thread has
// queued; the other, ..._on, is a stream's work. A copy that a program's own host memory takes part
// in is done at once all the same, after the stream's work: the caller may reuse or free it without
// telling anybody. Host memory of the runtime's is the program's promise to keep.
//
// A call with many rows or pieces is checked as a whole, is one task, and happens entirely or not
// at all.

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/result.h"
#include "runtime/range_check.h"
#include "runtime/runtime.h"
#include "runtime/task.h"

namespace hufu::runtime {

// Values of aclrtMemcpyKind; src/capi asserts that they are the public header's.
enum class CopyKind : std::uint8_t {
  kHostToHost = 0,
  kHostToDevice = 1,
  kDeviceToHost = 2,
  kDeviceToDevice = 3,
  kDefault = 4,  // Whatever the addresses say.
  kHostToBufferToDevice = 5,
};

// What lies at both ends of a copy.
struct Ends {
  Found to;
  Found from;

  bool reaches_across(int device) const {
    return is_elsewhere(to, device) || is_elsewhere(from, device);
  }
  bool device_takes_part() const {
    return to.memory == Memory::kDevice || from.memory == Memory::kDevice;
  }
  bool pageable() const {
    return to.memory == Memory::kPageable || from.memory == Memory::kPageable;
  }
};

// May they be copied? For who does the copy himself.
Result<Ends> check_copy(Runtime& runtime, const void* to, std::uint64_t to_count, const void* from,
                        std::uint64_t from_count, CopyKind kind);

// Work on so many bytes is done by the caller when the stream is idle: that is sooner over than
// somebody is woken.
inline constexpr std::uint64_t kShort = std::uint64_t{64} * 1024;
inline Where where_for(std::uint64_t count) {
  return count <= kShort ? Where::kHereIfIdle : Where::kQueued;
}

// Overlapping ranges are copied as by memmove. `count` is not 0.
Result<void> copy(Runtime& runtime, void* to, std::uint64_t room, const void* from,
                  std::uint64_t count, CopyKind kind);

// What becomes of a queued copy that a program's own host memory takes part in.
enum class Pageable : bool { kCopiedAtOnce, kRefused };
Result<void> copy_on(Runtime& runtime, const On& on, void* to, std::uint64_t room, const void* from,
                     std::uint64_t count, CopyKind kind, Pageable pageable);

// In memset's order. Host or device memory. `count` is not 0.
Result<void> fill(Runtime& runtime, void* to, std::uint64_t room, int value, std::uint64_t count);
Result<void> fill_on(Runtime& runtime, const On& on, void* to, std::uint64_t room, int value,
                     std::uint64_t count);

// Memory that the runtime knows, aligned for words. `words` is not 0.
struct WordFill {
  void* to;
  std::uint64_t words;
  std::uint32_t value;
};
Result<void> fill(Runtime& runtime, const WordFill& what);
Result<void> fill_on(Runtime& runtime, const On& on, const WordFill& what);

// Between host and device; on a stream also inside device memory. Neither width nor height is 0,
// and the width is at most the pitches. `kind` is one of the four from kHostToDevice on.
Result<void> copy(Runtime& runtime, const Rows& rows, CopyKind kind);
Result<void> copy_on(Runtime& runtime, const On& on, const Rows& rows, CopyKind kind);

// What the caller says of a side; `device` counts for kDevice.
struct Claim {
  Side side = Side::kAny;
  int device = 0;
};
struct ClaimedPiece {
  Piece piece;
  Claim to;
  Claim from;
};
// One side of each is a device's; a piece of no bytes is not looked at. When one piece is to blame,
// `at_fault` becomes its index.
Result<void> copy(Runtime& runtime, std::span<const ClaimedPiece> pieces, std::size_t& at_fault);
Result<void> copy_on(Runtime& runtime, const On& on, std::span<const ClaimedPiece> pieces,
                     std::size_t& at_fault);

// A place in the stream's order, and nothing else.
Result<void> order_on(Runtime& runtime, const On& on);

}  // namespace hufu::runtime
