#include "broker/limits.h"

#include <gtest/gtest.h>

namespace hufu::broker {
namespace {

TEST(BrokerLimits, AreTheConfiguredOnesWhereDescriptorsAbound) {
  const auto limits = limits_within({}, 1 << 20, true);
  ASSERT_TRUE(limits);
  EXPECT_EQ(limits->sessions_per_uid, Limits{}.sessions_per_uid);
  EXPECT_EQ(limits->blocks_per_uid, Limits{}.blocks_per_uid);
  EXPECT_EQ(limits->listed_per_uid, Limits{}.listed_per_uid);
}

// D4
TEST(BrokerLimits, BlocksOfAUserAreHalfOfWhatTheBrokerDoesNotNeed) {
  EXPECT_EQ(limits_within({}, 4096, true)->blocks_per_uid, (4096U - 512U) / 2);
  EXPECT_EQ(limits_within({.blocks_per_uid = 7}, 4096, true)->blocks_per_uid, 7U);
}

TEST(BrokerLimits, AllOfThemTogetherFitTheDescriptors) {
  for (const bool pidfs : {true, false}) {
    for (std::uint64_t descriptors = 1024; descriptors < 200'000; descriptors += 511) {
      const auto limits = limits_within({}, descriptors, pidfs);
      ASSERT_TRUE(limits);
      const std::uint64_t most =
          limits->blocks + 6 * limits->sessions_per_uid + (pidfs ? 0 : limits->listed_per_uid);
      ASSERT_LE(most + 512, descriptors) << descriptors;
      ASSERT_GT(limits->sessions_per_uid, 20U);
      ASSERT_GT(limits->listed_per_uid, 100U);
    }
  }
}

TEST(BrokerLimits, TooFewDescriptorsAreRefusedWithTheNumberAndTheRemedy) {
  const auto limits = limits_within({}, 1023, true);
  ASSERT_FALSE(limits);
  EXPECT_NE(limits.error().what().find("1023"), std::string_view::npos);
  EXPECT_NE(limits.error().what().find("ulimit -Hn"), std::string_view::npos);
}

}  // namespace
}  // namespace hufu::broker
