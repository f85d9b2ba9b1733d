#pragma once

// The milliseconds of CANN's calls that wait.

#include <chrono>
#include <cstdint>

#include "base/result.h"
#include "runtime/stream.h"

namespace hufu::capi {

// -1 is for ever, and 0 is refused.
inline Result<runtime::Deadline> deadline_in(std::int32_t timeout_ms) {
  if (timeout_ms == -1) return runtime::Deadline();
  if (timeout_ms <= 0) {
    return fail(Errc::kInvalidValue, Reason::kNone,
                "timeout is {}; pass -1 for ever, or milliseconds above 0", timeout_ms);
  }
  return runtime::Deadline(std::chrono::steady_clock::now() +
                           std::chrono::milliseconds(timeout_ms));
}

}  // namespace hufu::capi
