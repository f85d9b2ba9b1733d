#include "broker/lookout.h"

#include <gtest/gtest.h>

namespace hufu::broker {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

class Looking : public ::testing::Test {
 protected:
  Lookout::Time at(std::chrono::nanoseconds since) const { return begin_ + since; }
  // Serves at `since` and looks until that finds nothing; how long that was.
  std::chrono::nanoseconds look_in_vain(std::chrono::nanoseconds since) {
    lookout_.served(at(since));
    std::chrono::nanoseconds looked{0};
    while (lookout_.looks(at(since + looked)))
      looked += microseconds(1);
    return looked;
  }

  Lookout lookout_{true};
  Lookout::Time begin_ = std::chrono::steady_clock::now();
};

TEST_F(Looking, EndsAfterItsTime) {
  EXPECT_EQ(look_in_vain(microseconds(0)), Lookout::kLook);
  EXPECT_FALSE(lookout_.looks(at(microseconds(60))));
}

TEST_F(Looking, InVainIsNotDoneAgainForLongerEachTime) {
  std::chrono::nanoseconds now{0};
  std::chrono::nanoseconds rest = Lookout::kFirstRest;
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(look_in_vain(now), Lookout::kLook) << i;
    now += Lookout::kLook;
    EXPECT_EQ(look_in_vain(now + rest / 2), microseconds(0)) << i;
    now += rest;
    if (i < Lookout::kMostDoublings) rest *= 2;
  }
}

TEST_F(Looking, GoesOnWhileItFinds) {
  std::chrono::nanoseconds now{0};
  for (int i = 0; i < 1'000; ++i, now += microseconds(30)) {
    lookout_.served(at(now));
    ASSERT_TRUE(lookout_.looks(at(now + microseconds(29))));
    lookout_.found(at(now + microseconds(30)));
  }
  EXPECT_EQ(look_in_vain(now), Lookout::kLook);
  EXPECT_EQ(look_in_vain(now + Lookout::kLook + Lookout::kFirstRest), Lookout::kLook)
      << "what was found before makes the first rest the shortest again";
}

// The client had this processor, and came to ask because it did.
TEST_F(Looking, WhileSomebodyElseRunsIsInVain) {
  lookout_.served(at(microseconds(0)));
  ASSERT_TRUE(lookout_.looks(at(microseconds(1))));
  lookout_.found(at(microseconds(20)));
  EXPECT_EQ(look_in_vain(microseconds(30)), microseconds(0));
}

TEST(LookingAlone, IsNeverDone) {
  Lookout lookout(false);
  const auto now = std::chrono::steady_clock::now();
  lookout.served(now);
  EXPECT_FALSE(lookout.looks(now));
}

}  // namespace
}  // namespace hufu::broker
