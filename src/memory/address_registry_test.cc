#include "memory/address_registry.h"

#include <gtest/gtest.h>

namespace hufu::memory {
namespace {

Region region_at(std::uintptr_t base, std::uint64_t size) {
  return {.base = base, .mapped = size, .reported = size, .id = base};
}

TEST(AddressRegistry, FindsTheRegionThatContainsAnAddress) {
  AddressRegistry registry;
  registry.add(region_at(0x1000, 0x1000));
  registry.add(region_at(0x4000, 0x1000));
  EXPECT_FALSE(registry.find(0xfff));
  EXPECT_EQ(registry.find(0x1000)->base, 0x1000U);
  EXPECT_EQ(registry.find(0x1fff)->base, 0x1000U);
  EXPECT_FALSE(registry.find(0x2000));
  EXPECT_EQ(registry.find(0x4001)->base, 0x4000U);
  EXPECT_FALSE(registry.find(0x5000));
}

TEST(AddressRegistry, TheReportedBytesBehindTheFileBelongToTheRegion) {
  AddressRegistry registry;
  registry.add({.base = 0x1000, .mapped = 0x1000, .reported = 0x1020});
  EXPECT_TRUE(registry.find(0x201f));
  EXPECT_FALSE(registry.find(0x2020));
}

TEST(AddressRegistry, RemembersWhatItOnceHad) {
  AddressRegistry registry;
  registry.add(region_at(0x1000, 0x1000));
  EXPECT_FALSE(registry.once_had(0x1800)) << "it is still there";
  EXPECT_TRUE(registry.remove(0x1000));
  EXPECT_FALSE(registry.remove(0x1000));
  EXPECT_FALSE(registry.find(0x1800));
  ASSERT_TRUE(registry.once_had(0x1800));
  EXPECT_EQ(registry.once_had(0x1800)->base, 0x1000U);
  EXPECT_FALSE(registry.once_had(0x2000));
}

TEST(AddressRegistry, ForgetsTheOldestTombstonesFirst) {
  AddressRegistry registry;
  for (std::uintptr_t i = 0; i <= AddressRegistry::kTombstones; ++i) {
    registry.add(region_at(0x100000 + i * 0x1000, 0x1000));
    registry.remove(0x100000 + i * 0x1000);
  }
  EXPECT_FALSE(registry.once_had(0x100000));
  EXPECT_TRUE(registry.once_had(0x101000));
}

}  // namespace
}  // namespace hufu::memory
