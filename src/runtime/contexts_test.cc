#include "runtime/contexts.h"

#include <thread>

#include <gtest/gtest.h>

namespace hufu::runtime {
namespace {

TEST(Contexts, AThreadHasNoneUntilItSetsADevice) {
  Contexts contexts(4);
  EXPECT_EQ(contexts.current().error().code, Errc::kNoContext);
  ASSERT_TRUE(contexts.set_device(2));
  EXPECT_EQ(contexts.current()->device, 2);
  std::thread([&] { EXPECT_FALSE(contexts.current()); }).join();
}

TEST(Contexts, OnlyTheDevicesThatExistCanBeSet) {
  Contexts contexts(4);
  EXPECT_EQ(contexts.set_device(-1).error().code, Errc::kInvalidDevice);
  EXPECT_EQ(contexts.set_device(4).error().code, Errc::kInvalidDevice);
  EXPECT_EQ(contexts.reset_device(4, Reset::kOneReference).error().code, Errc::kInvalidDevice);
}

TEST(Contexts, EndWithTheLastReference) {
  Contexts contexts(1);
  const auto context = contexts.set_device(0);
  ASSERT_TRUE(contexts.set_device(0));
  EXPECT_FALSE(contexts.reset_device(0, Reset::kOneReference)->has_value());
  EXPECT_TRUE(contexts.current());
  EXPECT_EQ(**contexts.reset_device(0, Reset::kOneReference), *context);
  EXPECT_EQ(contexts.current().error().code, Errc::kNoContext);
  EXPECT_EQ(contexts.reset_device(0, Reset::kOneReference).error().code, Errc::kWrongOrder);
}

TEST(Contexts, AForcedResetIgnoresTheCount) {
  Contexts contexts(1);
  for (int i = 0; i < 3; ++i)
    ASSERT_TRUE(contexts.set_device(0));
  EXPECT_TRUE(contexts.reset_device(0, Reset::kAllReferences)->has_value());
  EXPECT_FALSE(contexts.current());
}

TEST(Contexts, ANewLifeIsNotTheOldOne) {
  Contexts contexts(1);
  const auto first = contexts.set_device(0);
  bool saw_the_end = false;
  bool saw_the_second = true;
  std::thread other([&] {
    ASSERT_TRUE(contexts.set_device(0));
    ASSERT_TRUE(contexts.reset_device(0, Reset::kAllReferences));
    saw_the_end = !contexts.current();
    std::thread([&] { ASSERT_TRUE(contexts.set_device(0)); }).join();
    saw_the_second = contexts.current().has_value();
  });
  other.join();
  EXPECT_TRUE(saw_the_end);
  EXPECT_FALSE(saw_the_second) << "a thread was given a context that it never set";
  EXPECT_NE(*contexts.set_device(0), *first);
}

TEST(Contexts, TheDefaultDeviceServesThreadsThatSetNone) {
  Contexts contexts(2);
  EXPECT_FALSE(contexts.set_default_device(2));
  ASSERT_TRUE(contexts.set_default_device(1));
  std::thread([&] { EXPECT_EQ(contexts.current()->device, 1); }).join();
}

TEST(VisibleDevices, AreListedInAscendingOrderUpToTheFirstWordThatIsNot) {
  const auto visible = [](const char* text) { return parse_visible_devices(text, 4); };
  EXPECT_EQ(visible(nullptr), (std::vector{0, 1, 2, 3}));
  EXPECT_EQ(visible("1"), (std::vector{1}));
  EXPECT_EQ(visible("0,2,3"), (std::vector{0, 2, 3}));
  EXPECT_EQ(visible("1,4,2"), (std::vector{1})) << "out of range";
  EXPECT_EQ(visible("2,1,3"), (std::vector{2})) << "not ascending";
  EXPECT_EQ(visible("1,1"), (std::vector{1}));
  EXPECT_EQ(visible("1,x,2"), (std::vector{1}));
  EXPECT_EQ(visible("1, 2"), (std::vector{1})) << "a space before it";
  EXPECT_EQ(visible("1,2,"), (std::vector{1, 2}));
  for (const char* none : {"", " 1", "x", "-1", "4", ",1", "+1", "1x"})
    EXPECT_TRUE(visible(none).empty()) << none;
}

TEST(VisibleDevices, AreNumberedAnewFromZero) {
  Contexts contexts(4, {1, 3});
  EXPECT_EQ(contexts.visible_devices(), 2);
  EXPECT_EQ(contexts.set_device(1)->device, 3);
  EXPECT_EQ(contexts.current()->device, 3);
  EXPECT_EQ(contexts.id_of(3), 1U);
  EXPECT_EQ(contexts.id_of(2), std::nullopt);
  const auto refused = contexts.set_device(2);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Errc::kInvalidDevice);
  EXPECT_NE(refused.error().what().find("ASCEND_RT_VISIBLE_DEVICES"), std::string_view::npos);
  EXPECT_EQ((*contexts.reset_device(1, Reset::kOneReference))->device, 3);
}

}  // namespace
}  // namespace hufu::runtime
