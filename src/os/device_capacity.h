#pragma once

// How much memory a device has. The broker asks here, and so does a process that does without one,
// so that a program sees the same devices either way.
//
// When nobody says: three quarters of what there is (the machine's memory, or a smaller limit of a
// memory cgroup of this process), split evenly, in whole 2-MiB pages.

#include <cstdint>
#include <string_view>

#include "base/result.h"

namespace hufu::os {

inline constexpr std::uint32_t kDefaultDevices = 4;
inline constexpr std::uint32_t kMaxDevices = 64;

struct DeviceWish {
  std::uint32_t devices = kDefaultDevices;
  std::string_view capacity;  // Of each, as HUFU_DEVICE_CAPACITY says it; empty: the default.
  bool overcommit = false;    // May all of them together be more than there is?
};

// The bytes of each device. Fails, naming the variable and what it takes, when the wish cannot be
// meant or is more than there is.
Result<std::uint64_t> device_capacity(const DeviceWish& wish);

// "8G", "8GiB", "512M", "4096KiB" or plain bytes. Fails with the text and what is allowed.
Result<std::uint64_t> parse_bytes(std::string_view text);

// 1, true, yes or on; 0, false, no, off or nothing. Fails with the name and the text.
Result<bool> parse_switch(std::string_view name, std::string_view text);

}  // namespace hufu::os
