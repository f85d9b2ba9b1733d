#pragma once

// How much memory this process can still commit.
//
// Committing past the limit does not fail: it ends in SIGKILL or in a machine that swaps itself to
// death. So whoever commits asks here first. The answer is a reading, not a reservation: two
// processes that race for the last bytes can still both be told yes.

#include <cstdint>

#include "base/result.h"

namespace hufu::os {

// The bytes that can be committed now: MemAvailable of /proc/meminfo.
Result<std::uint64_t> headroom();

// Fails with the numbers unless `bytes` and a reserve (16 MiB or 2 %, whichever is more) fit.
Result<void> require_headroom(std::uint64_t bytes);

}  // namespace hufu::os
