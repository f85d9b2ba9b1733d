#include "os/headroom.h"

#include <algorithm>
#include <charconv>
#include <string>
#include <string_view>
#include <system_error>

#include "base/units.h"
#include "os/file.h"

namespace hufu::os {

Result<std::uint64_t> headroom() {
  const std::string file = read_small_file("/proc/meminfo");
  const std::string_view text = file;
  constexpr std::string_view kLabel = "MemAvailable:";
  const auto label = text.find(kLabel);
  if (label == std::string_view::npos) {
    return fail(Errc::kSystem, Reason::kSystem, "/proc/meminfo has no line {}", kLabel);
  }
  const auto digits = text.find_first_not_of(' ', label + kLabel.size());
  std::uint64_t kib = 0;
  if (digits == std::string_view::npos ||
      std::from_chars(text.data() + digits, text.data() + text.size(), kib).ec != std::errc{}) {
    return fail(Errc::kSystem, Reason::kSystem, "/proc/meminfo: {} is not a number", kLabel);
  }
  return kib * kKiB;
}

Result<void> require_headroom(std::uint64_t bytes) {
  const auto available = headroom();
  if (!available) return available.error();
  const std::uint64_t reserve = std::max(16 * kMiB, bytes / 50);
  if (bytes <= *available && reserve <= *available - bytes) return {};
  return fail(Errc::kOutOfMemory, Reason::kMemory,
              "{} bytes do not fit: the machine has {} bytes available (MemAvailable) and {} of "
              "them stay in reserve; free memory, or allocate less",
              bytes, *available, reserve);
}

}  // namespace hufu::os
