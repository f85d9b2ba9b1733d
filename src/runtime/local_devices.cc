#include "runtime/local_devices.h"

#include <charconv>
#include <string>
#include <system_error>

#include "os/device_capacity.h"
#include "os/file.h"

namespace hufu::runtime {

Result<memory::LocalDevices> local_devices() {
  os::DeviceWish wish;
  if (const std::string count = os::env("HUFU_DEVICES"); !count.empty()) {
    const char* end = count.data() + count.size();
    const auto parsed = std::from_chars(count.data(), end, wish.devices);
    if (parsed.ec != std::errc{} || parsed.ptr != end) {
      return fail(Errc::kInvalidValue, Reason::kNone, "HUFU_DEVICES={:.40}: set 1 to {}", count,
                  os::kMaxDevices);
    }
  }
  const std::string capacity = os::env("HUFU_DEVICE_CAPACITY");
  wish.capacity = capacity;
  const auto overcommit = os::parse_switch("HUFU_OVERCOMMIT", os::env("HUFU_OVERCOMMIT"));
  if (!overcommit) return overcommit.error();
  wish.overcommit = *overcommit;
  const auto each = os::device_capacity(wish);
  if (!each) return each.error();
  return memory::LocalDevices{.count = static_cast<int>(wish.devices), .capacity = *each};
}

}  // namespace hufu::runtime
