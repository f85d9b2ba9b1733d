#include "memory/pool.h"

#include <cstring>
#include <map>
#include <random>

#include <gtest/gtest.h>

namespace hufu::memory {
namespace {

constexpr std::uint64_t kCapacity = 64 * kMiB;

// What the test says of the order of work.
class Said final : public LineOrder {
 public:
  std::map<Line, std::uint64_t> before;
  std::map<Line, std::uint64_t> over;

  std::uint64_t precedes(Line other) const override {
    const auto found = before.find(other);
    return found == before.end() ? 0 : found->second;
  }
  std::uint64_t passed(Line other) const override {
    const auto found = over.find(other);
    return found == over.end() ? 0 : found->second;
  }
};

class PoolTest : public testing::Test {
 protected:
  std::unique_ptr<Pool> make(std::uint64_t size, std::uint64_t cut = kPoolCut) {
    auto pool =
        Pool::make({.source = source_, .registry = registry_, .shelf = shelf_, .usage = usage_},
                   {.device = 0, .size = size, .cut = cut, .id = ++ids_});
    EXPECT_TRUE(pool) << pool.error().what();
    return std::move(*pool);
  }
  std::byte* take(Pool& pool, std::uint64_t size, Line line = 1) {
    const auto grant = pool.allocate(size, line, said_);
    EXPECT_TRUE(grant) << grant.error().what();
    if (!grant) return nullptr;
    EXPECT_EQ(grant->wait_for, kAnybody);
    return static_cast<std::byte*>(grant->pointer);
  }
  static void give(Pool& pool, const void* pointer, Line line = 1, std::uint64_t ticket = 1) {
    const auto span = pool.retire(reinterpret_cast<std::uintptr_t>(pointer));
    ASSERT_TRUE(span) << span.error().what();
    pool.give(*span, line, ticket);
  }
  std::uint64_t charged() { return kCapacity - source_.capacity(0)->free; }

  LocalSource source_{{.count = 1, .capacity = kCapacity}};
  AddressRegistry registry_;
  SpanShelf shelf_;
  Usage usage_{1};
  Said said_;
  std::uint64_t ids_ = 0;
};

TEST_F(PoolTest, IsChargedAndCountedByTheUnit) {
  const auto pool = make(16 * kMiB);
  EXPECT_EQ(charged(), 0U);
  const std::byte* small = take(*pool, 100);
  EXPECT_EQ(pool->statistics().used, 128U);
  EXPECT_EQ(pool->statistics().reserved, kPoolUnit);
  EXPECT_EQ(charged(), kPoolUnit);
  const std::byte* large = take(*pool, 3 * kMiB);
  EXPECT_EQ(pool->statistics().used, 128 + 3 * kMiB);
  EXPECT_EQ(pool->statistics().reserved, 2 * kPoolUnit);
  EXPECT_EQ(charged(), 2 * kPoolUnit);
  give(*pool, small, kAnybody);
  give(*pool, large, kAnybody);
  EXPECT_EQ(pool->statistics().used, 0U);
  EXPECT_EQ(pool->statistics().used_high, 128 + 3 * kMiB);
  EXPECT_EQ(pool->statistics().reserved, 2 * kPoolUnit);
}

TEST_F(PoolTest, TrimmedMemoryIsNotChargedAndReadsZeros) {
  const auto pool = make(16 * kMiB);
  std::byte* memory = take(*pool, 4 * kMiB);
  std::memset(memory, 0x5a, 4 * kMiB);
  give(*pool, memory, kAnybody);
  ASSERT_TRUE(pool->trim(kPoolUnit));
  EXPECT_EQ(charged(), kPoolUnit);
  EXPECT_EQ(memory[0], std::byte{0x5a}) << "the end goes first";
  EXPECT_EQ(memory[2 * kMiB], std::byte{0});
  ASSERT_TRUE(pool->trim(0));
  EXPECT_EQ(charged(), 0U);
  EXPECT_EQ(memory[0], std::byte{0});
}

TEST_F(PoolTest, AUnitInUseIsNotTrimmed) {
  const auto pool = make(16 * kMiB);
  std::byte* first = take(*pool, kPoolUnit);
  std::byte* second = take(*pool, 64);
  std::byte* third = take(*pool, 3 * kPoolUnit);
  std::memset(second, 0x5a, 64);
  give(*pool, first, kAnybody);
  give(*pool, third, 1, 5);  // Somebody may still use it.
  ASSERT_TRUE(pool->trim(0));
  EXPECT_EQ(pool->statistics().reserved, 4 * kPoolUnit);
  pool->synchronized(1, 5);
  ASSERT_TRUE(pool->trim(0));
  EXPECT_EQ(pool->statistics().reserved, kPoolUnit);
  EXPECT_EQ(second[63], std::byte{0x5a});
}

TEST_F(PoolTest, WhatALineFreedItHasAgainAtOnceAndNobodyElse) {
  const auto pool = make(16 * kMiB);
  const std::byte* memory = take(*pool, kMiB);
  give(*pool, memory, 1, 10);
  EXPECT_NE(take(*pool, kMiB, 2), memory);
  EXPECT_EQ(take(*pool, kMiB, 1), memory);
}

TEST_F(PoolTest, OthersHaveItWhenItsRulesAllowAndTheOrderOfWorkDoes) {
  const auto pool = make(16 * kMiB);
  const std::byte* memory = take(*pool, kPoolUnit);
  give(*pool, memory, 1, 10);

  said_.before[1] = 10;
  said_.over[1] = 10;
  const std::byte* fresh = take(*pool, kPoolUnit, 2);
  EXPECT_NE(fresh, memory) << "no rule allows it";

  pool->rules = {.follow_events = true};
  said_.before[1] = 9;
  EXPECT_NE(take(*pool, kPoolUnit, 2), memory) << "not after all of it";
  said_.before[1] = 10;
  EXPECT_EQ(take(*pool, kPoolUnit, 2), memory);

  give(*pool, memory, 1, 20);
  pool->rules = {.opportunistic = true};
  said_.over[1] = 19;
  EXPECT_NE(take(*pool, kPoolUnit, 2), memory) << "not over yet";
  said_.over[1] = 20;
  EXPECT_EQ(take(*pool, kPoolUnit, 2), memory);
}

TEST_F(PoolTest, TheLastResortIsToWait) {
  const auto pool = make(4 * kMiB);
  const std::byte* early = take(*pool, kPoolUnit);
  const std::byte* late = take(*pool, kPoolUnit);
  give(*pool, late, 1, 20);
  give(*pool, early, 3, 10);
  const auto refused = pool->allocate(kPoolUnit, 2, said_);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Errc::kPool);
  EXPECT_NE(refused.error().what().find("4194304 were freed on streams"), std::string_view::npos)
      << refused.error().what();
  pool->rules = {.internal_dependencies = true};
  const auto grant = pool->allocate(kPoolUnit, 2, said_);
  ASSERT_TRUE(grant) << grant.error().what();
  EXPECT_EQ(grant->pointer, early) << "it is over soonest";
  EXPECT_EQ(grant->wait_for, 3);
  EXPECT_EQ(grant->ticket, 10U);
}

TEST_F(PoolTest, FreeingWhatIsNotTheStartOfAnAllocationSaysWhatItIs) {
  const auto pool = make(4 * kMiB);
  const auto address = reinterpret_cast<std::uintptr_t>(take(*pool, 1000));
  const auto why = [&](std::uintptr_t wrong) {
    const auto span = pool->retire(wrong);
    EXPECT_FALSE(span);
    EXPECT_EQ(span.error().code, Errc::kInvalidValue);
    return std::string(span.error().what());
  };
  EXPECT_NE(why(address + 64).find("64 bytes into the 1024-byte allocation"), std::string::npos);
  EXPECT_NE(why(address + 1).find("does not start"), std::string::npos);
  EXPECT_NE(why(address + 1024).find("nothing is in use"), std::string::npos);
  EXPECT_NE(why(address + 4 * kMiB + 10).find("nothing is in use"), std::string::npos);
  ASSERT_TRUE(pool->retire(address));
  EXPECT_NE(why(address).find("freed before"), std::string::npos);
}

TEST_F(PoolTest, WhatTheDeviceCannotGiveIsRefusedAndLeavesNothingBehind) {
  const auto pool = make(kCapacity);
  const auto other = make(kCapacity);
  take(*other, kCapacity - kPoolUnit);
  take(*pool, kPoolUnit);
  const auto refused = pool->allocate(kPoolUnit, 1, said_);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Errc::kOutOfMemory);
  EXPECT_EQ(pool->statistics().reserved, kPoolUnit);
  EXPECT_EQ(pool->statistics().used, kPoolUnit);
  EXPECT_EQ(charged(), kCapacity);
}

TEST_F(PoolTest, ItsEndGivesEverythingBack) {
  auto pool = make(16 * kMiB);
  std::byte* memory = take(*pool, 4 * kMiB);
  const auto address = reinterpret_cast<std::uintptr_t>(memory);
  {
    const RetiredPool retired = pool->retire_all();
    EXPECT_FALSE(registry_.find(address));
    EXPECT_EQ(charged(), 4 * kMiB);
    memory[0] = std::byte{1};  // Work that was queued before.
  }
  EXPECT_EQ(charged(), 0U);
}

// Whatever happens: what is in use never overlaps, keeps its bytes, is found by each of its
// addresses, and the counts are what they must be.
TEST_F(PoolTest, TenThousandStepsKeepWhatIsAlwaysTrue) {
  constexpr std::uint64_t kSize = 24 * kMiB;
  const auto pool = make(kSize);
  struct Allocation {
    std::byte* memory;
    std::uint64_t size;
    std::byte value;
  };
  std::vector<Allocation> live;
  std::mt19937_64 random(7);
  std::uint64_t used = 0;
  std::uint64_t ticket = 1;
  int refused = 0;
  for (int step = 0; step < 10'000; ++step) {
    const auto line = static_cast<Line>(1 + random() % 3);
    const std::uint64_t what = random() % 100;
    if (what < 50) {
      const std::uint64_t size = 1 + random() % (random() % 20 == 0 ? 5 * kMiB : 20'000U);
      pool->rules = {.follow_events = random() % 2 == 0,
                     .opportunistic = random() % 4 == 0,
                     .internal_dependencies = random() % 2 == 0};
      for (Line other = 1; other <= 3; ++other) {
        said_.before[other] = random() % (ticket + 1);
        said_.over[other] = random() % (ticket + 1);
      }
      const auto grant = pool->allocate(size, line, said_);
      if (!grant) {
        ASSERT_EQ(grant.error().code, Errc::kPool);
        ++refused;
        continue;
      }
      auto* memory = static_cast<std::byte*>(grant->pointer);
      const std::uint64_t rounded = *round_up(size, kPoolCut);
      ASSERT_TRUE(is_aligned(reinterpret_cast<std::uintptr_t>(memory), kPoolCut));
      used += rounded;
      live.push_back({memory, rounded, static_cast<std::byte>(random())});
      std::memset(memory, static_cast<int>(live.back().value), rounded);
    } else if (what < 95 && !live.empty()) {
      std::swap(live[random() % live.size()], live.back());
      const auto [memory, size, value] = live.back();
      live.pop_back();
      ASSERT_EQ(memory[0], value) << step;
      ASSERT_EQ(memory[random() % size], value) << step;
      ASSERT_EQ(memory[size - 1], value) << step;
      const auto address = reinterpret_cast<std::uintptr_t>(memory);
      const auto region = registry_.find(address);
      const auto span = SpanBooks::find(*region, address + random() % size);
      ASSERT_TRUE(span) << step;
      ASSERT_EQ(region->base + span->offset, address);
      ASSERT_EQ(span->size, size);
      give(*pool, memory, line, ++ticket);
      used -= size;
    } else if (what < 98) {
      pool->synchronized(line, ticket);
    } else {
      ASSERT_TRUE(pool->trim(random() % kSize));
    }
    ASSERT_EQ(pool->statistics().used, used);
    ASSERT_EQ(pool->statistics().reserved, charged());
    ASSERT_LE(used, charged());
  }
  EXPECT_GT(refused, 0);
  EXPECT_GT(live.size(), 10U);
}

TEST_F(PoolTest, WhatWasLentIsNeverUsedAgain) {
  const auto pool = make(16 * kMiB);
  std::byte* lent = take(*pool, 3 * 4096);
  const std::byte* behind = take(*pool, 4096);
  const auto part = pool->part(reinterpret_cast<std::uintptr_t>(lent) + 4096, 4096);
  ASSERT_TRUE(part) << part.error().what();
  EXPECT_EQ(part->offset, 4096U);
  pool->lend_part(*part, Access::kReadWrite);
  lent[0] = std::byte{0x5a};
  give(*pool, lent, kAnybody);
  EXPECT_EQ(pool->statistics().used, 4096U);
  give(*pool, behind, kAnybody);
  ASSERT_TRUE(pool->trim(0));
  EXPECT_EQ(lent[0], std::byte{0x5a}) << "who imported it may be reading it";
  for (int i = 0; i < 100; ++i) {
    const std::byte* other = take(*pool, 4096);
    EXPECT_FALSE(other >= lent && other < lent + 3 * 4096);
  }
}

TEST_F(PoolTest, APartForAKeyHasItsPagesToItself) {
  const auto pool = make(16 * kMiB);
  const auto first = reinterpret_cast<std::uintptr_t>(take(*pool, 4096 + 64));
  const auto second = reinterpret_cast<std::uintptr_t>(take(*pool, 2 * 4096));
  EXPECT_TRUE(pool->part(first, 4096));
  EXPECT_EQ(pool->part(first, 4097).error().reason, Reason::kNotAligned);
  EXPECT_EQ(pool->part(second, 64).error().reason, Reason::kNotAligned);
  EXPECT_EQ(pool->part(first, 4096 + 65).error().reason, Reason::kOutOfRange);
  EXPECT_EQ(pool->part(first, 0).error().reason, Reason::kEmptyRange);
  EXPECT_EQ(pool->part(second + 2 * 4096, 1).error().code, Errc::kUnregistered);
  // The page between the two belongs to neither, the next one to the second.
  EXPECT_TRUE(pool->part(second + 4096 - 64, 4096));
}

}  // namespace
}  // namespace hufu::memory
