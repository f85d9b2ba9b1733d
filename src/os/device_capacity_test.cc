#include "os/device_capacity.h"

#include <gtest/gtest.h>

#include "base/units.h"
#include "os/headroom.h"

namespace hufu::os {
namespace {

TEST(Bytes, AreANumberAndAUnit) {
  EXPECT_EQ(*parse_bytes("4096"), 4096U);
  EXPECT_EQ(*parse_bytes("3K"), 3 * kKiB);
  EXPECT_EQ(*parse_bytes("3KiB"), 3 * kKiB);
  EXPECT_EQ(*parse_bytes("512M"), 512 * kMiB);
  EXPECT_EQ(*parse_bytes("512MiB"), 512 * kMiB);
  EXPECT_EQ(*parse_bytes("8G"), 8 * kGiB);
  EXPECT_EQ(*parse_bytes("8GiB"), 8 * kGiB);
}

TEST(Bytes, OfAnyOtherFormAreRefusedWithTheText) {
  for (const char* text : {"", "0", "-1", "1T", "1 G", "1g", "G", "1GB", "0x10", "1.5G",
                           "99999999999999999999", "99999999999G"}) {
    const auto parsed = parse_bytes(text);
    ASSERT_FALSE(parsed) << text;
    EXPECT_NE(parsed.error().what().find(text), std::string_view::npos);
  }
}

TEST(DeviceCapacity, IsThreeQuartersOfWhatThereIsSplitInWholeHugePages) {
  const std::uint64_t total = memory_limits().total();
  for (const std::uint32_t devices : {1U, 3U, 4U}) {
    const auto each = device_capacity({.devices = devices});
    ASSERT_TRUE(each) << each.error().what();
    EXPECT_EQ(*each % (2 * kMiB), 0U);
    EXPECT_LE(*each * devices, total / 4 * 3);
    EXPECT_GT((*each + 2 * kMiB) * devices, total / 4 * 3);
  }
}

TEST(DeviceCapacity, AsWishedIsRoundedDownToHugePages) {
  EXPECT_EQ(*device_capacity({.devices = 1, .capacity = "5M"}), 4 * kMiB);
  EXPECT_FALSE(device_capacity({.devices = 1, .capacity = "1M"}));
  EXPECT_FALSE(device_capacity({.devices = 0}));
  EXPECT_FALSE(device_capacity({.devices = kMaxDevices + 1}));
}

TEST(DeviceCapacity, BeyondWhatThereIsMustBeMeant) {
  const std::uint64_t total = memory_limits().total();
  const std::string half = std::to_string(total / 2 + 4 * kMiB);
  const auto refused = device_capacity({.devices = 2, .capacity = half});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().reason, Reason::kCapacity);
  EXPECT_NE(refused.error().what().find("HUFU_OVERCOMMIT=1"), std::string_view::npos);
  EXPECT_TRUE(device_capacity({.devices = 2, .capacity = half, .overcommit = true}));
  EXPECT_FALSE(device_capacity({.devices = 64, .capacity = "18446744073709551615"}));
}

TEST(Switch, IsOnOrOffAndNothingElse) {
  EXPECT_TRUE(*parse_switch("X", "1"));
  EXPECT_TRUE(*parse_switch("X", "true"));
  EXPECT_FALSE(*parse_switch("X", "0"));
  EXPECT_FALSE(*parse_switch("X", ""));
  const auto wrong = parse_switch("HUFU_OVERCOMMIT", "maybe");
  ASSERT_FALSE(wrong);
  EXPECT_NE(wrong.error().what().find("HUFU_OVERCOMMIT=maybe"), std::string_view::npos);
}

}  // namespace
}  // namespace hufu::os
