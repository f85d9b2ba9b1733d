#pragma once

// The devices of a process that runs without a broker, which would otherwise say what there is.

#include "base/result.h"
#include "memory/source.h"

namespace hufu::runtime {

// HUFU_DEVICES (4) devices of HUFU_DEVICE_CAPACITY bytes (three quarters of the machine's memory,
// shared among them). A value that cannot be meant is an error that names the variable.
Result<memory::LocalDevices> local_devices();

}  // namespace hufu::runtime
