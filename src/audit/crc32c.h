#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace hufu::audit {

// CRC-32C (Castagnoli). It tells a torn or rotten record from a whole one without the key; it is
// no protection against somebody who means to alter it: that is the chain's work.
std::uint32_t crc32c(std::span<const std::byte> bytes);

}  // namespace hufu::audit
