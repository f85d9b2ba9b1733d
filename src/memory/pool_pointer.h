#pragma once

// PoolPointer: where an allocation lies in a shared pool, as 64 bytes that one process hands to
// another in any way it likes.
//
//   0 "HUFP" | 4 version 1, u16 | 6 zero | 8 the pool, 16 | 24 offset u64 | 32 size u64 | 40 zero |
//   56 sum of the bytes before, u64                                                little endian
//
// It is no secret and no right: who has imported the pool may use all of it. Nor is it proof: what
// comes from another process is only a claim, and becomes a PoolPointer at one door, which looks
// that the range lies in the pool that was imported. The sum is against mistakes.

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/result.h"

namespace hufu::memory {

// What all processes call the pool: its share's public id.
using PoolName = std::array<std::uint8_t, 16>;

struct PoolPointer {
  static constexpr std::size_t kSize = 64;
  using Bytes = std::array<std::byte, kSize>;

  std::uint64_t offset = 0;  // Both are multiples of 64, and size is not 0.
  std::uint64_t size = 0;

  Bytes encode(const PoolName& pool) const;
  static Result<PoolPointer> decode(std::span<const std::byte, kSize> bytes, const PoolName& pool,
                                    std::uint64_t pool_size);
};

}  // namespace hufu::memory
