#include "runtime/local_devices.h"

#include <unistd.h>

#include <charconv>
#include <string>
#include <system_error>

#include "base/units.h"
#include "os/file.h"

namespace hufu::runtime {
namespace {

constexpr std::uint64_t kDefaultDevices = 4;
constexpr std::uint64_t kMaxDevices = 64;

// `fallback` when unset.
Result<std::uint64_t> number_from_env(const char* name, std::uint64_t fallback) {
  const std::string text = os::env(name);
  if (text.empty()) return fallback;
  std::uint64_t number = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), number);
  if (parsed.ec == std::errc{} && parsed.ptr == text.data() + text.size()) return number;
  return fail(Errc::kInvalidValue, Reason::kNone, "{}={}: write a whole number, in digits only",
              name, text);
}

}  // namespace

Result<memory::LocalDevices> local_devices() {
  const auto count = number_from_env("HUFU_DEVICES", kDefaultDevices);
  if (!count) return count.error();
  if (*count == 0 || *count > kMaxDevices) {
    return fail(Errc::kInvalidValue, Reason::kNone, "HUFU_DEVICES={}: set 1 to {}", *count,
                kMaxDevices);
  }
  const auto memory = static_cast<std::uint64_t>(::sysconf(_SC_PHYS_PAGES)) *
                      static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  const auto capacity = number_from_env("HUFU_DEVICE_CAPACITY", memory / 4 * 3 / *count);
  if (!capacity) return capacity.error();
  return memory::LocalDevices{.count = static_cast<int>(*count),
                              .capacity = *capacity / (2 * kMiB) * (2 * kMiB)};
}

}  // namespace hufu::runtime
