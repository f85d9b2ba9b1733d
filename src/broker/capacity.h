#pragma once

// How much memory a device has, when nobody says: three quarters of what the machine or the
// memory cgroup allows, split evenly, in whole 2-MiB pages.

#include <cstdint>

#include "base/result.h"

namespace hufu::broker {

std::uint64_t default_device_capacity(std::uint32_t devices);

// "8G", "512M", "4096K" or plain bytes. Fails with the text and what is allowed.
Result<std::uint64_t> parse_bytes(std::string_view text);

// Refuses a sum over all devices that the machine does not have.
Result<void> check_capacity(std::uint64_t per_device, std::uint32_t devices, bool overcommit);

}  // namespace hufu::broker
