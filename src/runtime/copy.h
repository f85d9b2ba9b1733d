#pragma once

// Copies and sets between host and device memory, checked before a byte moves.
//
// A side that the caller calls "device" must be memory this process allocated or imported, and the
// range must lie inside one allocation. A host side is taken as it is: any address that can be read
// is good.
//
// copy() and fill() are done when they return, and come after what the calling thread has queued.
// copy_on() and fill_on() are a stream's work. A copy that a program's own host memory takes part
// in is done at once all the same, after the stream's work: the caller may reuse or free it without
// telling anybody. Host memory of the runtime's is the program's promise to keep.

#include <cstddef>
#include <cstdint>

#include "base/result.h"
#include "runtime/runtime.h"

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

// Overlapping ranges are copied as by memmove. `count` is not 0.
Result<void> copy(Runtime& runtime, void* to, std::uint64_t room, const void* from,
                  std::uint64_t count, CopyKind kind);

// In memset's order. Host or device memory. `count` is not 0.
Result<void> fill(Runtime& runtime, void* to, std::uint64_t room, int value, std::uint64_t count);

// A stream and the context in which it was named.
struct On {
  StreamHandle stream;
  ContextId context;
};
Result<void> copy_on(Runtime& runtime, const On& on, void* to, std::uint64_t room, const void* from,
                     std::uint64_t count, CopyKind kind);
Result<void> fill_on(Runtime& runtime, const On& on, void* to, std::uint64_t room, int value,
                     std::uint64_t count);

}  // namespace hufu::runtime
