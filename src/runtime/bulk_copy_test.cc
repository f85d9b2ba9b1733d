#include "runtime/bulk_copy.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <random>
#include <vector>

#include <gtest/gtest.h>

namespace hufu::runtime {
namespace {

// Large for every processor: see large_from().
constexpr std::size_t kLarge = std::size_t{33} << 20U;

std::vector<std::byte> random_bytes(std::size_t count) {
  std::vector<std::byte> bytes(count);
  std::mt19937_64 random(11);
  for (std::size_t i = 0; i + 8 <= count; i += 8) {
    const std::uint64_t eight = random();
    std::memcpy(&bytes[i], &eight, 8);
  }
  return bytes;
}

TEST(BulkCopy, CopiesEveryByteAndNoneBesideWhereverTheRangesStart) {
  constexpr std::size_t kGuard = 128;
  const auto source = random_bytes(kLarge + 2 * kGuard);
  std::vector<std::byte> target(kLarge + 2 * kGuard);
  // The end is cut so that the tail has every length, too.
  for (const std::size_t at : {0U, 1U, 15U, 16U, 63U, 64U}) {
    for (const std::size_t from : {0U, 7U, 64U}) {
      const std::size_t count = kLarge - at;
      std::memset(target.data(), 0x5a, target.size());
      copy_bytes(&target[at], &source[from], count);
      ASSERT_EQ(std::memcmp(&target[at], &source[from], count), 0) << at << ", " << from;
      const auto untouched = [](std::byte byte) { return byte == std::byte{0x5a}; };
      ASSERT_TRUE(std::all_of(target.begin(), target.begin() + static_cast<long>(at), untouched));
      ASSERT_TRUE(
          std::all_of(target.begin() + static_cast<long>(at + count), target.end(), untouched));
    }
  }
}

TEST(BulkCopy, OverlappingRangesAreCopiedAsByMemmove) {
  const auto source = random_bytes(kLarge + 4096);
  for (const std::size_t distance : {1U, 64U, 4096U}) {
    auto up = source;
    copy_bytes(&up[distance], &up[0], kLarge);
    EXPECT_EQ(std::memcmp(&up[distance], &source[0], kLarge), 0) << distance;
    auto down = source;
    copy_bytes(&down[0], &down[distance], kLarge);
    EXPECT_EQ(std::memcmp(&down[0], &source[distance], kLarge), 0) << distance;
  }
}

}  // namespace
}  // namespace hufu::runtime
