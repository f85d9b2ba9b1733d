#include "base/device_model.h"

#include <set>
#include <string>

#include <gtest/gtest.h>

namespace hufu {
namespace {

TEST(DeviceModel, WithoutAWishIsAnA2) {
  const auto model = parse_device_model("", "");
  ASSERT_TRUE(model);
  EXPECT_EQ(model->profile->name, "A2");
  EXPECT_TRUE(model->has.has(Ability::kVmm));
  EXPECT_TRUE(model->has.has(Ability::kGiantPages));
  EXPECT_FALSE(model->has.has(Ability::kSuperPod));
}

TEST(DeviceModel, EachProfileIsFoundByItsName) {
  for (const Profile& profile : profiles())
    EXPECT_EQ(parse_device_model(profile.name, "")->profile, &profile);
}

TEST(DeviceModel, AnUnknownProfileListsTheKnownOnes) {
  const auto model = parse_device_model("A4", "");
  ASSERT_FALSE(model);
  EXPECT_EQ(model.error().what(), "HUFU_PROFILE=A4: write one of A2, A3, 950, 310P");
}

TEST(DeviceModel, EachAbilityCanBeTakenAway) {
  std::string all;
  for (const AbilityRow& row : abilities()) {
    const auto model = parse_device_model("A3", "no_" + std::string(row.name));
    ASSERT_TRUE(model) << row.name;
    EXPECT_EQ(model->has, Abilities::all().without(row.ability));
    const Error error = fail_without(row.ability, *model);
    EXPECT_EQ(error.code, row.code);
    EXPECT_NE(error.what().find("no_" + std::string(row.name)), std::string_view::npos);
    all += (all.empty() ? "no_" : ",no_") + std::string(row.name);
  }
  EXPECT_EQ(parse_device_model("A3", all)->has, Abilities());
}

TEST(DeviceModel, WhatAProfileLacksNamesTheProfile) {
  const auto model = parse_device_model("950", "no_vmm");
  ASSERT_TRUE(model);
  EXPECT_FALSE(model->has.has(Ability::kGiantPages));
  const Error error = fail_without(Ability::kGiantPages, *model);
  EXPECT_NE(error.what().find("HUFU_PROFILE=950"), std::string_view::npos) << error.what();
}

TEST(DeviceModel, AnUnknownAbilityListsTheKnownOnes) {
  for (const char* wrong :
       {"vmm", "no_vmm,,no_p2p", "no_vmm no_p2p", " no_vmm", "no_", "no_everything", ","}) {
    const auto model = parse_device_model("", wrong);
    ASSERT_FALSE(model) << wrong;
    EXPECT_EQ(model.error().code, Errc::kInvalidValue);
    for (const AbilityRow& row : abilities()) {
      EXPECT_NE(model.error().what().find("no_" + std::string(row.name)), std::string_view::npos)
          << model.error().what();
    }
  }
}

TEST(DeviceModel, NamesAreDistinct) {
  std::set<std::string_view> names;
  for (const AbilityRow& row : abilities())
    EXPECT_TRUE(names.insert(row.name).second) << row.name;
  for (const Profile& profile : profiles())
    EXPECT_TRUE(names.insert(profile.name).second) << profile.name;
}

}  // namespace
}  // namespace hufu
