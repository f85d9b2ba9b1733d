#include "base/units.h"

#include <limits>

#include <gtest/gtest.h>

namespace hufu {
namespace {

TEST(Units, OnlyTheThreePageSizesExist) {
  EXPECT_EQ(page_size_of(4096), PageSize::k4KiB);
  EXPECT_EQ(page_size_of(2 * kMiB), PageSize::k2MiB);
  EXPECT_EQ(page_size_of(kGiB), PageSize::k1GiB);
  for (const std::uint64_t wrong : {0 * kMiB, kKiB, 8 * kKiB, 4 * kMiB}) {
    EXPECT_FALSE(page_size_of(wrong).has_value()) << wrong;
  }
}

TEST(Units, RoundingUpNeverWraps) {
  EXPECT_EQ(round_up(0, 4096), 0U);
  EXPECT_EQ(round_up(1, 4096), 4096U);
  EXPECT_EQ(round_up(4096, 4096), 4096U);
  constexpr auto kMax = std::numeric_limits<std::uint64_t>::max();
  EXPECT_EQ(round_up(kMax - 4095, 4096), kMax - 4095);
  EXPECT_FALSE(round_up(kMax - 4094, 4096).has_value());
}

}  // namespace
}  // namespace hufu
