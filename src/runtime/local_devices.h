#pragma once

// The devices of a process that runs without a broker, which would otherwise say what there is.

#include <cstdint>

#include "base/result.h"

namespace hufu::runtime {

struct LocalDevices {
  int count = 0;
  std::uint64_t capacity = 0;  // Of each.
};

// HUFU_DEVICES (4) devices of HUFU_DEVICE_CAPACITY bytes (three quarters of the machine's memory,
// shared among them). A value that cannot be meant is an error that names the variable.
Result<LocalDevices> local_devices();

}  // namespace hufu::runtime
