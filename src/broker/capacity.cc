#include "broker/capacity.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <string>

#include "base/units.h"
#include "os/file.h"

namespace hufu::broker {
namespace {

constexpr std::uint64_t kUnlimited = std::numeric_limits<std::uint64_t>::max();

std::uint64_t number_after(const std::string& text, std::string_view label) {
  const auto at = text.find(label);
  if (at == std::string::npos) return 0;
  const auto digits = text.find_first_of("0123456789", at);
  if (digits == std::string::npos) return 0;
  std::uint64_t value = 0;
  std::from_chars(text.data() + digits, text.data() + text.size(), value);
  return value;
}

std::uint64_t machine_memory() {
  return number_after(os::read_small_file("/proc/meminfo"), "MemTotal:") * kKiB;
}

// The limit of the cgroup namespace's root; a container sees its own there. 0 or absent: none.
std::uint64_t cgroup_limit() {
  for (const char* path :
       {"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"}) {
    const std::uint64_t limit = number_after(os::read_small_file(path), "");
    if (limit != 0) return limit;
  }
  return kUnlimited;
}

}  // namespace

std::uint64_t default_device_capacity(std::uint32_t devices) {
  const std::uint64_t usable = std::min(machine_memory(), cgroup_limit()) / 4 * 3;
  const std::uint64_t share = usable / devices;
  return std::max(share - share % bytes_of(PageSize::k2MiB), bytes_of(PageSize::k2MiB));
}

Result<std::uint64_t> parse_bytes(std::string_view text) {
  std::uint64_t value = 0;
  const char* end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data(), end, value);
  std::uint64_t unit = 1;
  bool good = parsed.ec == std::errc();
  if (good && parsed.ptr != end) {
    switch (*parsed.ptr) {
      case 'K':
        unit = kKiB;
        break;
      case 'M':
        unit = kMiB;
        break;
      case 'G':
        unit = kGiB;
        break;
      default:
        good = false;
    }
    good = good && parsed.ptr + 1 == end;
  }
  std::uint64_t bytes = 0;
  if (!good || value == 0 || __builtin_mul_overflow(value, unit, &bytes)) {
    return fail(
        Errc::kInvalidValue, Reason::kBadFlags,
        "\"{:.40}\" is not a size: write a number of bytes, or one with K, M or G, as in 512M",
        text);
  }
  return bytes;
}

Result<void> check_capacity(std::uint64_t per_device, std::uint32_t devices, bool overcommit) {
  const std::uint64_t memory = machine_memory();
  std::uint64_t sum = 0;
  const bool fits = !__builtin_mul_overflow(per_device, std::uint64_t{devices}, &sum) &&
                    (memory == 0 || sum <= memory);
  if (fits || overcommit) return {};
  return fail(Errc::kOutOfMemory, Reason::kCapacity,
              "{} devices of {} bytes are more than this machine's {} bytes of memory; lower "
              "HUFU_DEVICE_CAPACITY, or set HUFU_OVERCOMMIT=1 if that is meant",
              devices, per_device, memory);
}

}  // namespace hufu::broker
