#include "runtime/device_choice.h"

#include <type_traits>

#include "os/file.h"

namespace hufu::runtime {

constinit std::atomic<const Profile*> known_profile{nullptr};

const Result<DeviceModel>& chosen_device_model() {
  static_assert(std::is_trivially_destructible_v<Result<DeviceModel>>, "it outlives main()");
  static const Result<DeviceModel> chosen =
      parse_device_model(os::env("HUFU_PROFILE"), os::env("HUFU_SIM_CAPS"));
  if (chosen) known_profile.store(chosen->profile, std::memory_order_release);
  return chosen;
}

}  // namespace hufu::runtime
