#include "os/device_capacity.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <system_error>

#include "base/units.h"
#include "os/headroom.h"

namespace hufu::os {
namespace {

constexpr std::uint64_t kGrain = bytes_of(PageSize::k2MiB);

std::uint64_t unit_of(std::string_view name) {
  struct Unit {
    std::string_view name;
    std::uint64_t bytes;
  };
  constexpr std::array<Unit, 7> kUnits = {{{"", 1},
                                           {"K", kKiB},
                                           {"KiB", kKiB},
                                           {"M", kMiB},
                                           {"MiB", kMiB},
                                           {"G", kGiB},
                                           {"GiB", kGiB}}};
  const auto found = std::ranges::find(kUnits, name, &Unit::name);
  return found == kUnits.end() ? 0 : found->bytes;
}

}  // namespace

Result<std::uint64_t> device_capacity(const DeviceWish& wish) {
  if (wish.devices < 1 || wish.devices > kMaxDevices) {
    return fail(Errc::kInvalidValue, Reason::kNoDevice, "HUFU_DEVICES={}: set 1 to {}",
                wish.devices, kMaxDevices);
  }
  const std::uint64_t total = memory_limits().total();
  std::uint64_t each = total / 4 * 3 / wish.devices;
  if (!wish.capacity.empty()) {
    const auto parsed = parse_bytes(wish.capacity);
    if (!parsed) return parsed.error();
    each = *parsed;
  }
  each -= each % kGrain;
  if (each == 0) {
    return fail(Errc::kInvalidValue, Reason::kCapacity,
                "a device needs at least {} bytes; set HUFU_DEVICE_CAPACITY to as much", kGrain);
  }
  std::uint64_t sum = 0;
  const bool fits = !__builtin_mul_overflow(each, std::uint64_t{wish.devices}, &sum) &&
                    (total == 0 || sum <= total);
  if (fits || wish.overcommit) return each;
  return fail(
      Errc::kOutOfMemory, Reason::kCapacity,
      "{} devices of {} bytes are more than the {} bytes of memory that the machine has, or "
      "its cgroup may use; lower HUFU_DEVICE_CAPACITY, or set HUFU_OVERCOMMIT=1 if that is "
      "meant",
      wish.devices, each, total);
}

Result<std::uint64_t> parse_bytes(std::string_view text) {
  std::uint64_t value = 0;
  const char* end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data(), end, value);
  const bool number = parsed.ec == std::errc() && value != 0;
  const std::uint64_t unit =
      number ? unit_of({parsed.ptr, static_cast<std::size_t>(end - parsed.ptr)}) : 0;
  std::uint64_t bytes = 0;
  if (unit != 0 && !__builtin_mul_overflow(value, unit, &bytes)) return bytes;
  return fail(Errc::kInvalidValue, Reason::kBadFlags,
              "\"{:.40}\" is not a size: write a number of bytes, or one with K, M or G (or KiB, "
              "MiB, GiB), as in 512M",
              text);
}

Result<bool> parse_switch(std::string_view name, std::string_view text) {
  constexpr std::array<std::string_view, 4> kOn = {"1", "true", "yes", "on"};
  constexpr std::array<std::string_view, 5> kOff = {"", "0", "false", "no", "off"};
  if (std::ranges::find(kOn, text) != kOn.end()) return true;
  if (std::ranges::find(kOff, text) != kOff.end()) return false;
  return fail(Errc::kInvalidValue, Reason::kBadFlags, "{}={:.40}: write 1 or 0", name, text);
}

}  // namespace hufu::os
