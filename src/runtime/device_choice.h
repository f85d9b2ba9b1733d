#pragma once

// Which kind of device this process works with: HUFU_PROFILE and HUFU_SIM_CAPS, read once, at first
// need. It is the process's own wish; the broker and other processes do not know it.

#include "base/device_model.h"
#include "base/result.h"

namespace hufu::runtime {

// A value that cannot be meant is the same error each time.
const Result<DeviceModel>& chosen_device_model();

}  // namespace hufu::runtime
