#pragma once

// Which kind of device this process works with: HUFU_PROFILE and HUFU_SIM_CAPS, read once, at first
// need. It is the process's own wish; the broker and other processes do not know it.

#include <atomic>

#include "base/device_model.h"
#include "base/result.h"

namespace hufu::runtime {

// A value that cannot be meant is the same error each time.
const Result<DeviceModel>& chosen_device_model();

// Its profile, without a call: null before somebody has asked and been told.
extern constinit std::atomic<const Profile*> known_profile;
inline const Profile* chosen_profile_if_known() {
  return known_profile.load(std::memory_order_acquire);
}

}  // namespace hufu::runtime
