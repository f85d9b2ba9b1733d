#pragma once

// Copies and sets between host and device memory, checked before a byte moves.
//
// A side that the caller calls "device" must be memory this process allocated or imported, and the
// range must lie inside one allocation. A host side is taken as it is: any address that can be read
// is good. The copy has been done when the call returns.

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

}  // namespace hufu::runtime
