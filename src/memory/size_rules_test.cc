#include "memory/size_rules.h"

#include <cstdint>
#include <limits>
#include <ostream>
#include <string_view>

#include <gtest/gtest.h>

namespace hufu::memory {
namespace {

constexpr auto kMalloc = AllocCall::kMalloc;
constexpr auto kAlign32 = AllocCall::kMallocAlign32;
constexpr auto kWithCfg = AllocCall::kMallocWithCfg;

// NOLINTNEXTLINE(clang-analyzer-optin.performance.Padding): in the order it is read.
struct Row {
  std::string_view rule;  // Where it is written: section of the contract, or decision.
  AllocCall call;
  std::uint64_t size;
  std::uint32_t policy;
  std::uint64_t reported;
  PageSize page;
  std::uint64_t file;
  bool slab;
};

std::ostream& operator<<(std::ostream& out, const Row& row) {
  return out << row.rule << ": size " << row.size << ", policy " << row.policy;
}

class SizeRules : public testing::TestWithParam<Row> {};

TEST_P(SizeRules, Holds) {
  const Row& row = GetParam();
  const auto plan = plan_allocation({row.call, row.size, row.policy});
  ASSERT_TRUE(plan) << plan.error().what();
  EXPECT_EQ(plan->reported_size, row.reported);
  EXPECT_EQ(plan->page, row.page);
  EXPECT_EQ(plan->file_size, row.file);
  EXPECT_EQ(plan->slab, row.slab);
}

constexpr auto k4K = PageSize::k4KiB;
constexpr auto k2M = PageSize::k2MiB;
constexpr auto k1G = PageSize::k1GiB;

constexpr Row kRows[] = {
    {"4.1 Malloc: ALIGN_UP(size,32)+32", kMalloc, 1, 2, 64, k4K, 4096, true},
    {"4.1 Malloc: ALIGN_UP(size,32)+32", kMalloc, 33, 2, 96, k4K, 4096, true},
    {"4.1 Align32: ALIGN_UP(size,32)", kAlign32, 33, 2, 64, k4K, 4096, true},
    {"4.1 WithCfg: ALIGN_UP(size,32)", kWithCfg, 33, 2, 64, k4K, 4096, true},
    {"4.1 HUGE1G_ONLY: no +32 ever", kMalloc, 33, 6, 64, k1G, kGiB, false},
    {"4.1 HUGE1G_ONLY_P2P: no +32 ever", kMalloc, kGiB, 7, kGiB, k1G, kGiB, false},
    {"4.2 HUGE_FIRST: small stays normal", kMalloc, 4096, 0, 4128, k4K, 4096, false},
    {"4.2 HUGE_FIRST: one granule below", kMalloc, kMiB - 32, 0, kMiB, k4K, kMiB, false},
    {"4.2 surprise: 1 MiB is huge", kMalloc, kMiB, 0, kMiB + 32, k2M, 2 * kMiB, false},
    {"4.2 surprise: not without padding", kWithCfg, kMiB, 0, kMiB, k4K, kMiB, false},
    {"4.2 HUGE_FIRST_P2P like HUGE_FIRST", kMalloc, kMiB, 3, kMiB + 32, k2M, 2 * kMiB, false},
    {"4.2 HUGE_ONLY: 1 KiB occupies 2 MiB", kMalloc, 1024, 1, 1056, k2M, 2 * kMiB, false},
    {"4.2 HUGE_ONLY_P2P", kMalloc, 1024, 4, 1056, k2M, 2 * kMiB, false},
    {"4.2 NORMAL_ONLY whatever the size", kMalloc, 8 * kMiB, 2, 8 * kMiB + 32, k4K, 8 * kMiB,
     false},
    {"4.2 NORMAL_ONLY_P2P", kMalloc, 8 * kMiB, 5, 8 * kMiB + 32, k4K, 8 * kMiB, false},
    {"4.2 HUGE1G: multiple of 1 GiB", kMalloc, kGiB + 1, 6, kGiB + 32, k1G, 2 * kGiB, false},
    {"4.2 other value: below 2 MiB normal", kMalloc, 2 * kMiB - 1, 9, 2 * kMiB + 32, k4K, 2 * kMiB,
     false},
    {"4.2 other value: 2 MiB huge", kMalloc, 2 * kMiB, 9, 2 * kMiB + 32, k2M, 2 * kMiB, false},
    {"4.2 flags need WithCfg", kMalloc, kMiB, 0x100, kMiB + 32, k4K, kMiB, false},
    {"4.2 LOW_BAND|HUGE_ONLY", kWithCfg, kMiB, 0x101, kMiB, k2M, 2 * kMiB, false},
    {"4.2 HIGH_BAND|NORMAL_ONLY", kWithCfg, kMiB, 0x1002, kMiB, k4K, kMiB, false},
    {"D6 the +32 never makes a page", kMalloc, 2 * kMiB, 1, 2 * kMiB + 32, k2M, 2 * kMiB, false},
    {"D7 last slab size", kMalloc, 4032, 2, 4064, k4K, 4096, true},
    {"D7 first block size", kMalloc, 4033, 2, 4096, k4K, 4096, false},
    {"D7 last slab size, unpadded", kAlign32, 4064, 2, 4064, k4K, 4096, true},
    {"D7 first block size, unpadded", kAlign32, 4065, 2, 4096, k4K, 4096, false},
};
INSTANTIATE_TEST_SUITE_P(Contract, SizeRules, testing::ValuesIn(kRows));

TEST(SizeRules, OnlyAWishMayFallBack) {
  EXPECT_TRUE(plan_allocation({kMalloc, kMiB, 0})->may_fall_back);
  EXPECT_TRUE(plan_allocation({kMalloc, 2 * kMiB, 99})->may_fall_back);
  EXPECT_FALSE(plan_allocation({kMalloc, 4096, 0})->may_fall_back);
  EXPECT_FALSE(plan_allocation({kMalloc, kMiB, 1})->may_fall_back);
  EXPECT_FALSE(plan_allocation({kMalloc, kMiB, 6})->may_fall_back);

  const auto wish = plan_allocation({kMalloc, kMiB, 0});
  const Plan fallen = on_small_pages(*wish);
  EXPECT_EQ(fallen.page, PageSize::k4KiB);
  EXPECT_EQ(fallen.file_size, kMiB);
  EXPECT_EQ(fallen.reported_size, wish->reported_size);
}

TEST(SizeRules, TheShortWayToAPieceAgreesWithThePlan) {
  int pieces = 0;
  for (const Profile& profile : profiles()) {
    for (const AllocCall call : {AllocCall::kMalloc, AllocCall::kMallocAlign32}) {
      for (std::uint32_t policy = 0; policy < 9; ++policy) {
        for (std::uint64_t size = 0; size < 4200; ++size) {
          const Wish wish{call, size, policy};
          const auto plan = plan_allocation(wish, profile);
          const std::uint64_t piece = piece_size(wish, profile);
          if (piece == 0) {
            // These two policies are never sent the long way for a piece.
            ASSERT_FALSE((policy == 0 || policy == 2) && plan && plan->slab) << size;
            continue;
          }
          ++pieces;
          ASSERT_TRUE(plan && plan->slab) << size;
          ASSERT_EQ(piece, plan->reported_size) << size;
        }
      }
    }
  }
  EXPECT_GT(pieces, 0);
  EXPECT_EQ(piece_size({AllocCall::kMalloc, ~std::uint64_t{0}, 0}, profiles().front()), 0U);
}

TEST(SizeRules, AnOverflowIsAnInvalidArgument) {
  constexpr auto kMax = std::numeric_limits<std::uint64_t>::max();
  for (const std::uint64_t size : {kMax, kMax - 31, kMax - 63, std::uint64_t{0}}) {
    for (const AllocCall call : {kMalloc, kAlign32, kWithCfg}) {
      const auto plan = plan_allocation({call, size, 0});
      ASSERT_FALSE(plan) << size;
      EXPECT_EQ(plan.error().code, Errc::kInvalidArgument);
    }
  }
}

TEST(SizeRules, ReadOnlyMemoryHasPagesOfItsOwn) {
  const auto plan = plan_allocation({kWithCfg, 100, 0x100002});
  ASSERT_TRUE(plan);
  EXPECT_EQ(plan->access, Access::kReadOnly);
  EXPECT_FALSE(plan->slab);
  EXPECT_EQ(plan->page, k4K);
  EXPECT_EQ(plan_allocation({kWithCfg, kMiB, 0x101101})->page, k2M) << "beside other flags";
  EXPECT_EQ(plan_allocation({kMalloc, 100, 0x100002})->access, Access::kReadWrite);
}

TEST(SizeRules, A950DoesNotPad) {
  const Profile& profile = profiles()[2];
  ASSERT_EQ(profile.name, "950");
  EXPECT_EQ(plan_allocation({kMalloc, kMiB, 0}, profile)->page, k4K);
  EXPECT_EQ(plan_allocation({kMalloc, kMiB + 1, 0}, profile)->page, k2M);
  EXPECT_EQ(plan_allocation({kMalloc, 33, 2}, profile)->reported_size, 64U);
}

TEST(SizeRules, ManagedMemoryComesInStepsOf2MiBEvenOnSmallPages) {
  const auto plan = plan_allocation({AllocCall::kManaged, 2 * kMiB + 1, 0});
  ASSERT_TRUE(plan);
  EXPECT_EQ(plan->reported_size, 4 * kMiB);
  EXPECT_EQ(plan->file_size, 4 * kMiB);
  EXPECT_EQ(on_small_pages(*plan).file_size, 4 * kMiB);
  EXPECT_EQ(on_small_pages(*plan).page, k4K);
}

}  // namespace
}  // namespace hufu::memory
