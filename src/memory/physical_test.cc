#include "memory/physical.h"

#include <random>

#include <gtest/gtest.h>

namespace hufu::memory {
namespace {

constexpr std::uint64_t kUnit = 2 * kMiB;

class PhysicalTest : public testing::Test {
 protected:
  PhysicalHandle allocate(std::uint64_t size = kUnit) {
    const auto made = physical_.allocate({.size = size});
    EXPECT_TRUE(made) << made.error().what();
    return made ? *made : nullptr;
  }
  std::uint64_t used() { return 64 * kMiB - source_.capacity(0)->free; }

  LocalSource source_{{.count = 2, .capacity = 64 * kMiB}};
  Heap heap_{source_, 2};
  PhysicalMemory physical_{source_, heap_, Hugetlb::kIfFree};
};

TEST_F(PhysicalTest, IsChargedUntilItsLastReferenceGoes) {
  PhysicalHandle handle = allocate(3 * kUnit);
  EXPECT_EQ(used(), 3 * kUnit);
  EXPECT_EQ(heap_.usage().of(0)[Usage::kReserved], 3 * kUnit);
  auto mapped = *physical_.find(handle);
  EXPECT_EQ(physical_.retain(mapped), handle);
  EXPECT_TRUE(physical_.free(handle));
  EXPECT_TRUE(physical_.find(handle));
  EXPECT_TRUE(physical_.free(handle));
  EXPECT_FALSE(physical_.find(handle));
  EXPECT_EQ(used(), 3 * kUnit);  // The mapping's.
  mapped.reset();
  EXPECT_EQ(used(), 0U);
  EXPECT_EQ(heap_.usage().of(0)[Usage::kReserved], 0U);
  EXPECT_EQ(heap_.usage().of(0)[Usage::kBlocks], 0U);
}

TEST_F(PhysicalTest, AHandleThatWasFreedIsGoodAgainWhenItIsRetained) {
  PhysicalHandle handle = allocate();
  auto mapped = *physical_.find(handle);
  ASSERT_TRUE(physical_.free(handle));
  const auto twice = physical_.free(handle);
  ASSERT_FALSE(twice);
  EXPECT_EQ(twice.error().code, Errc::kInvalidHandle);
  EXPECT_EQ(physical_.retain(mapped), handle);
  EXPECT_TRUE(physical_.find(handle));
  EXPECT_TRUE(physical_.free(handle));
}

TEST_F(PhysicalTest, GarbageIsLookedUpAndNotFollowed) {
  PhysicalHandle handle = allocate();
  std::mt19937_64 random(1);
  for (int i = 0; i < 100000; ++i) {
    auto* garbage = reinterpret_cast<PhysicalHandle>(random());
    EXPECT_EQ(physical_.find(garbage).has_value(), garbage == handle);
    EXPECT_FALSE(physical_.free(garbage));
  }
  int local = 0;
  EXPECT_FALSE(physical_.free(&local));
  EXPECT_TRUE(physical_.free(handle));
  EXPECT_NE(allocate(), handle);
}

TEST_F(PhysicalTest, WhatTheHeapKeepsReadyGoesBeforeItIsRefused) {
  const auto plan = *plan_allocation({AllocCall::kMallocAlign32, 48 * kMiB, 0}, profiles()[0]);
  void* block = *heap_.allocate(0, plan);
  ASSERT_TRUE(heap_.deallocate(block));
  ASSERT_EQ(used(), 48 * kMiB);  // Warm.
  PhysicalHandle handle = allocate(32 * kMiB);
  EXPECT_EQ(used(), 32 * kMiB);
  const auto refused = physical_.allocate({.size = 64 * kMiB});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Errc::kOutOfMemory);
  EXPECT_EQ(used(), 32 * kMiB);
  EXPECT_TRUE(physical_.free(handle));
}

TEST_F(PhysicalTest, ADeviceThatIsNotThereIsNamed) {
  const auto refused = physical_.allocate({.device = 2, .size = kUnit});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Errc::kInvalidDevice);
}

// Says that the machine has no reserved pages.
class NoHugePages final : public PageSource {
 public:
  Result<Minted> mint(const BlockSpec& spec) override {
    BlockSpec small = spec;
    small.hugetlb = Hugetlb::kNever;
    return source.mint(small);
  }
  void give_back(std::uint64_t id, Lent lent) override { source.give_back(id, lent); }
  Result<void> charge(std::uint64_t id, std::uint64_t bytes) override {
    return source.charge(id, bytes);
  }
  void end_keys(std::uint64_t /*id*/) override {}
  Result<Capacity> capacity(int device) override { return source.capacity(device); }

  LocalSource source{{.count = 1, .capacity = 64 * kMiB}};
};

TEST(P52, RequiredPagesThatAreNotThereFailWhereHugeOnesWereAskedForAndNotWhereNormalOnesWere) {
  NoHugePages source;
  Heap heap(source, 1);
  PhysicalMemory physical(source, heap, Hugetlb::kRequired);
  const auto refused = physical.allocate({.size = kUnit});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Errc::kOutOfMemory);
  EXPECT_EQ(source.capacity(0)->free, 64 * kMiB);
  const auto made = physical.allocate({.size = kUnit, .may_fall_back = true});
  ASSERT_TRUE(made) << made.error().what();
  EXPECT_TRUE(physical.free(*made));
  EXPECT_EQ(source.capacity(0)->free, 64 * kMiB);
}

}  // namespace
}  // namespace hufu::memory
