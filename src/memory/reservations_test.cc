#include "memory/reservations.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <future>
#include <map>
#include <optional>
#include <random>
#include <string_view>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

namespace hufu::memory {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::uint64_t kUnit = Reservations::kUnit;

bool mentions(const Error& error, std::string_view word) {
  return error.what().find(word) != std::string_view::npos;
}

class ReservationsTest : public testing::Test {
 protected:
  static constexpr std::uint64_t kCapacity = 512 * kMiB;

  std::byte* reserve(std::uint64_t size) {
    const auto made = all_.reserve(size, nullptr);
    EXPECT_TRUE(made) << made.error().what();
    return static_cast<std::byte*>(*made);
  }
  std::shared_ptr<Physical> make(std::uint64_t size = kUnit) {
    const auto handle = memory_.allocate({.size = size});
    EXPECT_TRUE(handle) << handle.error().what();
    auto physical = *memory_.find(*handle);
    EXPECT_TRUE(memory_.free(*handle).has_value());  // From here on it is the mapping's.
    return physical;
  }
  Result<void> map(std::byte* at, std::shared_ptr<Physical> physical,
                   os::Touch touch = os::Touch::kReadWrite) {
    const std::uint64_t size = physical->spec().size;
    return all_.map(at, size, std::move(physical), touch, Clock::now());
  }
  // For nobody's sake any longer.
  bool unmap(std::byte* at) { return all_.unmap(at).has_value(); }
  std::uint64_t used() { return kCapacity - source_.capacity(0)->free; }

  LocalSource source_{{.count = 2, .capacity = kCapacity}};
  Heap heap_{source_, 2};
  PhysicalMemory memory_{source_, heap_, Hugetlb::kNever};
  Reservations all_{heap_.registry()};
};

TEST_F(ReservationsTest, ARangeIsRoundedAndAlignedByItsSize) {
  EXPECT_TRUE(is_aligned(reinterpret_cast<std::uintptr_t>(reserve(1)), kUnit));
  std::byte* giant = reserve(kGiB + 1);
  EXPECT_TRUE(is_aligned(reinterpret_cast<std::uintptr_t>(giant), kGiB));
  EXPECT_TRUE(map(giant + 2 * kGiB - kUnit, make()));
  EXPECT_FALSE(map(giant + 2 * kGiB, make()));
  EXPECT_FALSE(all_.reserve(~std::uint64_t{0}, nullptr));
}

TEST_F(ReservationsTest, AMappingIsMemoryLikeAnyOtherUntilItIsUnmapped) {
  std::byte* base = reserve(3 * kUnit);
  EXPECT_FALSE(heap_.describe(base));
  ASSERT_TRUE(map(base + kUnit, make()));
  EXPECT_FALSE(heap_.describe(base + kUnit - 1));
  EXPECT_FALSE(heap_.describe(base + 2 * kUnit));
  const auto region = heap_.describe(base + kUnit + 5);
  ASSERT_TRUE(region);
  EXPECT_EQ(region->kind, RegionKind::kMapped);
  EXPECT_EQ(region->base, reinterpret_cast<std::uintptr_t>(base + kUnit));
  EXPECT_EQ(region->reported, kUnit);
  std::memset(base + kUnit, 1, kUnit);
  ASSERT_TRUE(unmap(base + kUnit));
  EXPECT_FALSE(heap_.describe(base + kUnit + 5));
  EXPECT_EQ(used(), 0U);
}

TEST_F(ReservationsTest, AMappingCannotBeFreedAsAnAllocation) {
  std::byte* base = reserve(kUnit);
  ASSERT_TRUE(map(base, make()));
  const auto refused = heap_.retire(base);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Errc::kInvalidValue);
  EXPECT_TRUE(mentions(refused.error(), "aclrtUnmapMem"));
  base[0] = std::byte{1};
}

TEST_F(ReservationsTest, OnlyWholePhysicalMemoryIsMappedAndOnlyWhereNothingIs) {
  std::byte* base = reserve(4 * kUnit);
  auto two = make(2 * kUnit);
  const auto code = [&](std::byte* at, std::uint64_t size) {
    return all_.map(at, size, two, os::Touch::kReadWrite, Clock::now()).error().code;
  };
  EXPECT_EQ(code(base + 4096, 2 * kUnit), Errc::kRefused);
  EXPECT_EQ(code(base, 2 * kUnit - 1), Errc::kRefused);
  EXPECT_EQ(code(base, kUnit), Errc::kInvalidValue);
  EXPECT_EQ(code(base, 3 * kUnit), Errc::kInvalidValue);
  EXPECT_EQ(code(base + 3 * kUnit, 2 * kUnit), Errc::kRefused);
  ASSERT_TRUE(map(base + kUnit, two));
  for (const std::uint64_t at : {0U, 1U, 2U})
    EXPECT_EQ(code(base + at * kUnit, 2 * kUnit), Errc::kRefused) << at;
  EXPECT_TRUE(map(base, make()));
  EXPECT_TRUE(map(base + 3 * kUnit, make()));
}

TEST_F(ReservationsTest, PhysicalMemoryMayBeMappedTwiceAndIsTheSame) {
  std::byte* base = reserve(2 * kUnit);
  auto physical = make();
  ASSERT_TRUE(map(base, physical));
  ASSERT_TRUE(map(base + kUnit, physical));
  base[3] = std::byte{42};
  EXPECT_EQ(base[kUnit + 3], std::byte{42});
  ASSERT_TRUE(unmap(base));
  EXPECT_EQ(base[kUnit + 3], std::byte{42});
  physical.reset();
  EXPECT_EQ(used(), kUnit);
  ASSERT_TRUE(unmap(base + kUnit));
  EXPECT_EQ(used(), 0U);
}

TEST_F(ReservationsTest, ReleaseIsRefusedWhileAnythingIsMapped) {
  std::byte* base = reserve(2 * kUnit);
  ASSERT_TRUE(map(base + kUnit, make()));
  EXPECT_EQ(all_.release(base).error().code, Errc::kRefused);
  EXPECT_EQ(all_.release(base + kUnit).error().code, Errc::kInvalidValue);
  base[kUnit] = std::byte{1};
  ASSERT_TRUE(unmap(base + kUnit));
  EXPECT_TRUE(all_.release(base));
  EXPECT_EQ(all_.release(base).error().code, Errc::kInvalidValue);
  EXPECT_EQ(map(base, make()).error().code, Errc::kRefused);
}

TEST_F(ReservationsTest, UnmapTakesTheStartOfAMappingOnce) {
  std::byte* base = reserve(2 * kUnit);
  EXPECT_EQ(all_.unmap(base).error().code, Errc::kRefused);
  ASSERT_TRUE(map(base, make(2 * kUnit)));
  EXPECT_EQ(all_.unmap(base + kUnit).error().code, Errc::kRefused);
  EXPECT_EQ(all_.unmap(base + 1).error().code, Errc::kInvalidValue);
  EXPECT_TRUE(unmap(base));
  EXPECT_EQ(all_.unmap(base).error().code, Errc::kRefused);
}

TEST_F(ReservationsTest, WithoutAccessItIsInTheRegistryAsSuch) {
  std::byte* base = reserve(kUnit);
  ASSERT_TRUE(map(base, make(), os::Touch::kNothing));
  EXPECT_EQ(heap_.describe(base)->access, Access::kNone);
  EXPECT_FALSE(*all_.allowed(base, {.device = 0}));
  EXPECT_EQ(all_.allow(base, kUnit / 2, {{.device = 0}}).error().code, Errc::kRefused);
  EXPECT_EQ(all_.allow(base + 4096, kUnit, {{.device = 0}}).error().code, Errc::kRefused);
  ASSERT_TRUE(all_.allow(base, kUnit, {{.device = 1}}));
  EXPECT_EQ(heap_.describe(base)->access, Access::kReadWrite);
  EXPECT_TRUE(*all_.allowed(base, {.device = 1}));
  EXPECT_FALSE(*all_.allowed(base, {.device = 0}));
  EXPECT_FALSE(*all_.allowed(base, {}));
  base[0] = std::byte{1};
  ASSERT_TRUE(all_.allow(base, kUnit, {{.device = 1}, {}}));  // Once more is fine.
  EXPECT_TRUE(*all_.allowed(base, {}));
}

// Asks the kernel, so that a fault is an answer.
bool readable(const std::byte* at) {
  int ends[2];
  if (::pipe(ends) != 0) return true;
  const bool can = ::write(ends[1], at, 1) == 1;
  ::close(ends[0]);
  ::close(ends[1]);
  return can;
}

TEST_F(ReservationsTest, ATouchWithoutAccessOrAfterUnmapFaults) {
  std::byte* base = reserve(2 * kUnit);
  ASSERT_TRUE(map(base, make(), os::Touch::kNothing));
  ASSERT_TRUE(map(base + kUnit, make()));
  EXPECT_FALSE(readable(base));
  EXPECT_TRUE(readable(base + kUnit));
  ASSERT_TRUE(unmap(base + kUnit));
  EXPECT_FALSE(readable(base + kUnit));
  ASSERT_TRUE(all_.allow(base, kUnit, {{.device = 0}}));
  EXPECT_TRUE(readable(base));
}

TEST_F(ReservationsTest, PhysicalMemoryIsUnusedWhenOnlyWhatLeavesKeepsIt) {
  std::byte* base = reserve(2 * kUnit);
  const auto handle = *memory_.allocate({.size = kUnit});
  auto physical = *memory_.find(handle);
  ASSERT_TRUE(map(base, physical));
  ASSERT_TRUE(map(base + kUnit, physical));
  ASSERT_TRUE(memory_.free(handle));
  std::optional<Reservations::Leaving> leaving(std::move(*all_.unmap(base)));
  EXPECT_FALSE(physical->unused());
  std::optional<Reservations::Leaving> last(std::move(*all_.unmap(base + kUnit)));
  EXPECT_TRUE(physical->unused());
  EXPECT_EQ(memory_.retain(physical), handle);
  EXPECT_FALSE(physical->unused());
  ASSERT_TRUE(memory_.free(handle));
}

TEST_F(ReservationsTest, WhatIsLeavingIsDeadForCallsAndStillThereForWork) {
  std::byte* base = reserve(kUnit);
  ASSERT_TRUE(map(base, make()));
  base[0] = std::byte{5};
  std::optional<Reservations::Leaving> leaving(std::move(*all_.unmap(base)));
  EXPECT_FALSE(heap_.describe(base));
  EXPECT_FALSE(all_.mapped_at(base));
  EXPECT_FALSE(all_.allowed(base, {}));
  EXPECT_EQ(base[0], std::byte{5});
  EXPECT_EQ(used(), kUnit);
  const auto refused = map(base, make());
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Errc::kRefused);
  EXPECT_TRUE(mentions(refused.error(), "queued"));
  leaving.reset();
  EXPECT_EQ(used(), 0U);
  EXPECT_TRUE(map(base, make()));
}

TEST_F(ReservationsTest, WhoMapsWhereSomethingIsLeavingWaitsForItsEnd) {
  std::byte* base = reserve(kUnit);
  ASSERT_TRUE(map(base, make()));
  base[0] = std::byte{5};
  std::optional<Reservations::Leaving> leaving(std::move(*all_.unmap(base)));
  std::promise<void> begun;
  auto mapped = std::async(std::launch::async, [&, physical = make()]() mutable {
    begun.set_value();
    return all_
        .map(base, kUnit, std::move(physical), os::Touch::kReadWrite,
             Clock::now() + std::chrono::minutes(1))
        .has_value();
  });
  begun.get_future().wait();
  EXPECT_EQ(base[0], std::byte{5});
  leaving.reset();
  EXPECT_TRUE(mapped.get());
  EXPECT_EQ(base[0], std::byte{0});
}

TEST_F(ReservationsTest, AReleasedRangesAddressesStayTakenWhileSomethingLeaves) {
  std::byte* base = reserve(kUnit);
  ASSERT_TRUE(map(base, make()));
  base[0] = std::byte{5};
  std::optional<Reservations::Leaving> leaving(std::move(*all_.unmap(base)));
  ASSERT_TRUE(all_.release(base));
  EXPECT_FALSE(all_.reserve(kUnit, base));
  EXPECT_EQ(base[0], std::byte{5});
  leaving.reset();
  const auto again = all_.reserve(kUnit, base);
  EXPECT_TRUE(again) << again.error().what();
}

TEST_F(ReservationsTest, ARangeThatIsWantedSomewhereIsThereOrAnInvalidValue) {
  std::byte* base = reserve(2 * kUnit);
  EXPECT_EQ(all_.reserve(kUnit, base + kUnit).error().code, Errc::kInvalidValue);
  EXPECT_EQ(all_.reserve(kUnit, base + 4096).error().code, Errc::kInvalidValue);
  ASSERT_TRUE(all_.release(base));
  EXPECT_EQ(*all_.reserve(kUnit, base), base);
}

// --- Against a model -----------------------------------------------------------------------------

TEST_F(ReservationsTest, RandomHistoriesAgreeWithAModel) {
  struct Mapped {
    std::uint64_t units;
    std::byte tag;
    bool touch;
  };
  struct RangeModel {
    std::uint64_t units;
    std::map<std::uint64_t, Mapped> mapped;  // By unit.
  };
  std::map<std::byte*, RangeModel> ranges;
  std::map<std::byte, PhysicalHandle> handles;  // By what is written in them.
  std::map<std::byte, std::uint64_t> sizes;
  std::map<std::byte, int> mappings;
  std::mt19937_64 random(20261130);
  const auto any = [&](std::uint64_t below) { return random() % below; };
  const auto nth = [](auto& of, std::uint64_t n) {
    return std::next(of.begin(), static_cast<std::ptrdiff_t>(n));
  };

  const char* wanted = std::getenv("HUFU_HISTORY_STEPS");  // NOLINT(concurrency-mt-unsafe)
  const int steps = wanted == nullptr ? 10000 : std::atoi(wanted);
  std::uint64_t refusals = 0;
  std::uint64_t successes = 0;
  std::uint8_t next_tag = 1;
  for (int step = 0; step < steps; ++step) {
    switch (std::min<std::uint64_t>(any(32), 20)) {
      case 0: {
        if (ranges.size() == 6) break;
        const std::uint64_t units = 1 + any(8);
        ranges[reserve(units * kUnit)] = {.units = units, .mapped = {}};
        break;
      }
      case 1: {
        if (ranges.empty()) break;
        const auto range = nth(ranges, any(ranges.size()));
        ASSERT_EQ(all_.release(range->first).has_value(), range->second.mapped.empty());
        if (range->second.mapped.empty()) ranges.erase(range);
        break;
      }
      case 2: {
        while (next_tag == 0 || sizes.contains(static_cast<std::byte>(next_tag)))
          ++next_tag;
        if (sizes.size() == 16) break;
        const auto tag = static_cast<std::byte>(next_tag);
        const std::uint64_t units = 1 + any(3);
        // Of small pages: making huge ones takes longest of all.
        const auto handle = memory_.allocate({.size = units * kUnit, .page = PageSize::k4KiB});
        ASSERT_TRUE(handle) << handle.error().what();
        handles[tag] = *handle;
        sizes[tag] = units;
        mappings[tag] = 0;
        std::byte* window = reserve(units * kUnit);
        ASSERT_TRUE(map(window, *memory_.find(*handle)));
        for (std::uint64_t unit = 0; unit < units; ++unit)
          window[unit * kUnit + 77] = tag;
        ASSERT_TRUE(unmap(window));
        ASSERT_TRUE(all_.release(window));
        break;
      }
      case 3: {
        if (handles.empty()) break;
        const auto handle = nth(handles, any(handles.size()));
        const std::byte tag = handle->first;
        ASSERT_TRUE(memory_.free(handle->second));
        handles.erase(handle);
        if (mappings[tag] == 0) {
          sizes.erase(tag);
          mappings.erase(tag);
        }
        break;
      }
      case 4:
      case 5:
      case 6:
      case 7:
      case 8:
      case 9:
      case 10:
      case 11: {
        if (ranges.empty() || handles.empty()) break;
        const auto range = nth(ranges, any(ranges.size()));
        const auto handle = nth(handles, any(handles.size()));
        const std::uint64_t units = sizes[handle->first];
        const std::uint64_t at = any(range->second.units);
        bool fits = at + units <= range->second.units;
        for (const auto& [other, mapped] : range->second.mapped)
          fits = fits && (other >= at + units || at >= other + mapped.units);
        const bool touch = any(4) != 0;
        const auto done = map(range->first + at * kUnit, *memory_.find(handle->second),
                              touch ? os::Touch::kReadWrite : os::Touch::kNothing);
        ASSERT_EQ(done.has_value(), fits);
        (fits ? successes : refusals) += 1;
        if (!fits) break;
        range->second.mapped[at] = {.units = units, .tag = handle->first, .touch = touch};
        ++mappings[handle->first];
        break;
      }
      case 12:
      case 13:
      case 14:
      case 15:
      case 16:
      case 17: {
        if (ranges.empty()) break;
        const auto range = nth(ranges, any(ranges.size()));
        const std::uint64_t at = any(range->second.units);
        const auto mapped = range->second.mapped.find(at);
        const bool there = mapped != range->second.mapped.end();
        ASSERT_EQ(unmap(range->first + at * kUnit), there);
        if (!there) break;
        const std::byte tag = mapped->second.tag;
        if (--mappings[tag] == 0 && !handles.contains(tag)) {
          sizes.erase(tag);
          mappings.erase(tag);
        }
        range->second.mapped.erase(mapped);
        break;
      }
      default: {  // Everything that is mapped shows what it should.
        std::uint64_t bytes = 0;
        for (const auto& [tag, units] : sizes)
          bytes += units * kUnit;
        ASSERT_EQ(used(), bytes);
        for (const auto& [base, range] : ranges) {
          for (const auto& [at, mapped] : range.mapped) {
            const std::byte* last = base + (at + mapped.units - 1) * kUnit + 77;
            const auto region = heap_.describe(last);
            ASSERT_TRUE(region);
            ASSERT_EQ(region->base, reinterpret_cast<std::uintptr_t>(base + at * kUnit));
            ASSERT_EQ(region->access == Access::kReadWrite, mapped.touch);
            ASSERT_TRUE(!mapped.touch || *last == mapped.tag);
          }
        }
      }
    }
  }
  EXPECT_GT(refusals, static_cast<std::uint64_t>(steps) / 100);
  EXPECT_GT(successes, static_cast<std::uint64_t>(steps) / 100);
}

// --- From many threads ---------------------------------------------------------------------------

TEST_F(ReservationsTest, ManyThreadsMapRetainAndUnmapOneRange) {
  constexpr int kThreads = 4;
  constexpr int kRounds = 300;
  std::byte* base = reserve(kThreads * kUnit);
  std::vector<PhysicalHandle> handles;
  for (int i = 0; i < kThreads; ++i)
    handles.push_back(*memory_.allocate({.size = kUnit}));
  std::atomic<int> mapped{0};
  std::atomic<bool> wrong{false};
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < kThreads; ++i) {
      threads.emplace_back([&, i] {
        std::mt19937 random(static_cast<unsigned>(i));
        for (int round = 0; round < kRounds; ++round) {
          std::byte* at = base + random() % kThreads * kUnit;
          const auto physical = memory_.find(handles[random() % kThreads]);
          if (!physical) {
            wrong = true;
            continue;
          }
          // Somebody else may have it mapped, or leaving.
          if (all_.map(at, kUnit, *physical, os::Touch::kReadWrite,
                       Clock::now() + std::chrono::seconds(20))) {
            ++mapped;
          }
          if (const auto there = all_.mapped_at(at)) {
            PhysicalHandle retained = memory_.retain(*there);
            if (!memory_.free(retained)) wrong = true;
          }
          const auto region = heap_.describe(at + 5);
          if (region && region->base != reinterpret_cast<std::uintptr_t>(at)) wrong = true;
          if (const auto left = all_.unmap(at)) --mapped;
        }
      });
    }
  }
  EXPECT_FALSE(wrong);
  int still = 0;
  for (int i = 0; i < kThreads; ++i)
    still += unmap(base + static_cast<std::uint64_t>(i) * kUnit) ? 1 : 0;
  EXPECT_EQ(still, mapped);
  for (PhysicalHandle handle : handles)
    EXPECT_TRUE(memory_.free(handle));
  EXPECT_EQ(used(), 0U);
  EXPECT_TRUE(all_.release(base));
}

}  // namespace
}  // namespace hufu::memory
