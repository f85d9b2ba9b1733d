#pragma once

// The devices of a process that runs without a broker, which would otherwise say what there is.

#include "base/result.h"
#include "memory/source.h"

namespace hufu::runtime {

// As HUFU_DEVICES, HUFU_DEVICE_CAPACITY and HUFU_OVERCOMMIT say: the broker would answer the same.
// A value that cannot be meant is an error that names the variable.
Result<memory::LocalDevices> local_devices();

}  // namespace hufu::runtime
