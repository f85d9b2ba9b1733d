#include "memory/source.h"

#include <gtest/gtest.h>

namespace hufu::memory {
namespace {

constexpr std::uint64_t kUnit = kChargeUnit;

BlockSpec sparse(std::uint64_t size) {
  return {.device = 0, .size = size, .charging = Charging::kByUse};
}

class LocalSparse : public testing::Test {
 protected:
  std::uint64_t free_units() { return source_.capacity(0)->free / kUnit; }

  LocalSource source_{{.count = 1, .capacity = 8 * kUnit}};
};

TEST_F(LocalSparse, IsChargedWhatItsOwnerSays) {
  const auto block = source_.mint(sparse(8 * kUnit));
  ASSERT_TRUE(block);
  EXPECT_EQ(free_units(), 8U);
  ASSERT_TRUE(source_.charge(block->id, 5 * kUnit));
  EXPECT_EQ(free_units(), 3U);
  ASSERT_TRUE(source_.charge(block->id, kUnit));
  EXPECT_EQ(free_units(), 7U);
  source_.give_back(block->id, Lent::kNever);
  EXPECT_EQ(free_units(), 8U);
}

TEST_F(LocalSparse, IsChargedNoMoreThanTheDeviceHas) {
  const auto one = source_.mint(sparse(8 * kUnit));
  const auto other = source_.mint(sparse(8 * kUnit));
  ASSERT_TRUE(source_.charge(one->id, 6 * kUnit));
  const auto refused = source_.charge(other->id, 3 * kUnit);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Errc::kOutOfMemory);
  EXPECT_TRUE(source_.charge(other->id, 2 * kUnit));
  EXPECT_EQ(free_units(), 0U);
  EXPECT_TRUE(source_.charge(one->id, 6 * kUnit)) << "the same again needs nothing";
}

TEST_F(LocalSparse, IsWithinTheDeviceAndWithinItself) {
  EXPECT_FALSE(source_.mint(sparse(9 * kUnit)));
  const auto block = source_.mint(sparse(2 * kUnit));
  EXPECT_FALSE(source_.charge(block->id, 3 * kUnit));
  EXPECT_FALSE(source_.charge(block->id, kUnit + 1));
  const auto whole = source_.mint({.device = 0, .size = kUnit});
  EXPECT_FALSE(source_.charge(whole->id, 0)) << "charged by its size";
  EXPECT_EQ(free_units(), 7U);
}

}  // namespace
}  // namespace hufu::memory
