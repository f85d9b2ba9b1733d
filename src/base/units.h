#pragma once

// Page sizes and rounding. A PageSize is one of the three that exist; an arbitrary number from a
// peer has no way to become one except through page_size_of().

#include <cstdint>
#include <limits>
#include <optional>

namespace hufu {

inline constexpr std::uint64_t kKiB = 1024;
inline constexpr std::uint64_t kMiB = 1024 * kKiB;
inline constexpr std::uint64_t kGiB = 1024 * kMiB;

enum class PageSize : std::uint32_t {
  k4KiB = 4 * kKiB,
  k2MiB = 2 * kMiB,
  k1GiB = 1 * kGiB,
};

constexpr std::uint64_t bytes_of(PageSize page) { return static_cast<std::uint64_t>(page); }

constexpr std::optional<PageSize> page_size_of(std::uint64_t bytes) {
  switch (bytes) {
    case bytes_of(PageSize::k4KiB):
      return PageSize::k4KiB;
    case bytes_of(PageSize::k2MiB):
      return PageSize::k2MiB;
    case bytes_of(PageSize::k1GiB):
      return PageSize::k1GiB;
  }
  return std::nullopt;
}

constexpr bool is_aligned(std::uint64_t n, std::uint64_t power_of_two) {
  return (n & (power_of_two - 1)) == 0;
}

// Rounds up to a power of two; nothing when the result does not fit.
constexpr std::optional<std::uint64_t> round_up(std::uint64_t n, std::uint64_t power_of_two) {
  if (n > std::numeric_limits<std::uint64_t>::max() - (power_of_two - 1)) return std::nullopt;
  return (n + power_of_two - 1) & ~(power_of_two - 1);
}

// What may a process that holds this memory do with it?
// kNone: mapped, and not to be touched yet.
enum class Access : std::uint8_t { kNone = 0, kReadOnly = 1, kReadWrite = 3 };

}  // namespace hufu
