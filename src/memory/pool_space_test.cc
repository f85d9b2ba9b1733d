#include "memory/pool_space.h"

#include <algorithm>
#include <map>
#include <random>

#include <gtest/gtest.h>

namespace hufu::memory {
namespace {

using Span = PoolSpace::Span;

PoolSpace space_of(std::uint64_t granules) { return std::move(*PoolSpace::make(granules)); }

std::vector<Span> sorted(std::vector<Span> spans) {
  std::sort(spans.begin(), spans.end(),
            [](const Span& a, const Span& b) { return a.start < b.start; });
  return spans;
}

TEST(PoolSpace, TakesTheClosestFit) {
  PoolSpace space = space_of(100'000);
  space.take({.start = 0, .count = 100'000}, 100'000);
  // Free: 3, 5 and 2000 granules, apart.
  space.give({.start = 10, .count = 5}, kAnybody, 0);
  space.give({.start = 20, .count = 3}, kAnybody, 0);
  space.give({.start = 5'000, .count = 2'000}, kAnybody, 0);
  EXPECT_EQ(space.closest(kAnybody, 3), (Span{.start = 20, .count = 3}));
  EXPECT_EQ(space.closest(kAnybody, 4), (Span{.start = 10, .count = 5}));
  EXPECT_EQ(space.closest(kAnybody, 6), (Span{.start = 5'000, .count = 2'000}));
  EXPECT_EQ(space.closest(kAnybody, 2'001), std::nullopt);
}

TEST(PoolSpace, NeighboursOfOneLineBecomeOneWithTheLaterStamp) {
  PoolSpace space = space_of(100);
  space.take({.start = 0, .count = 100}, 100);
  space.give({.start = 10, .count = 1}, 3, 7);
  space.give({.start = 12, .count = 10}, 3, 5);
  space.give({.start = 11, .count = 1}, 3, 6);
  ASSERT_EQ(space.spans(3), (std::vector<Span>{{.start = 10, .count = 12}}));
  EXPECT_EQ(space.stamp_of(10), 7U);
  space.give({.start = 9, .count = 1}, 4, 9);
  EXPECT_EQ(space.spans(3).size(), 1U) << "a neighbour of another line is not one with it";
}

TEST(PoolSpace, ALineHasItsSpansForItselfUntilTheyAreReleased) {
  PoolSpace space = space_of(100);
  space.take({.start = 0, .count = 100}, 100);
  space.give({.start = 0, .count = 50}, 3, 10);
  space.give({.start = 60, .count = 10}, 3, 20);
  EXPECT_EQ(space.closest(kAnybody, 1), std::nullopt);
  EXPECT_EQ(space.closest(4, 1), std::nullopt);
  EXPECT_EQ(space.closest_up_to(3, 5, 15), (Span{.start = 0, .count = 50}));
  EXPECT_EQ(space.earliest(3, 10), (Span{.start = 0, .count = 50}));
  std::vector<Span> told;
  space.release(3, 10, [&](const Span& span) { told.push_back(span); });
  EXPECT_EQ(told, (std::vector<Span>{{.start = 0, .count = 50}}));
  EXPECT_EQ(space.closest(kAnybody, 1), (Span{.start = 0, .count = 50}));
  EXPECT_EQ(space.lines(), (std::vector<Line>{3}));
  space.release(3, 20, [](const Span&) {});
  EXPECT_TRUE(space.lines().empty());
}

// Against one word per granule: what is free for whom is the same, no two free neighbours are of
// one line, and what is closest is the smallest that is large enough.
class Model {
 public:
  explicit Model(std::uint64_t granules) : granules_(granules, kAnybody) {}

  static constexpr int kTaken = -1;
  void set(const Span& span, int owner) {
    std::fill_n(granules_.begin() + static_cast<std::ptrdiff_t>(span.start), span.count, owner);
  }
  std::vector<Span> spans(int owner) const {
    std::vector<Span> all;
    for (std::uint64_t at = 0; at < granules_.size(); ++at) {
      if (granules_[at] != owner) continue;
      if (at != 0 && granules_[at - 1] == owner) {
        ++all.back().count;
      } else {
        all.push_back({.start = at, .count = 1});
      }
    }
    return all;
  }

 private:
  std::vector<int> granules_;
};

TEST(PoolSpace, AgreesWithAModelThatHasAWordForEachGranule) {
  constexpr std::uint64_t kGranules = 4'000;
  constexpr Line kLines = 4;
  PoolSpace space = space_of(kGranules);
  Model model(kGranules);
  std::vector<Span> taken;
  std::mt19937_64 random(42);
  int took = 0;
  int had_a_choice = 0;
  for (int step = 0; step < 100'000; ++step) {
    const auto line = static_cast<Line>(random() % kLines);
    const std::uint64_t what = random() % 100;
    if (what < 52) {
      const std::uint64_t count = 1 + random() % (random() % 50 == 0 ? 1'500U : 40U);
      const auto span = space.closest(line, count);
      if (step % 16 == 0) {
        std::uint64_t smallest = ~std::uint64_t{0};
        int fits = 0;
        for (const Span& free : model.spans(line)) {
          if (free.count < count) continue;
          ++fits;
          smallest = std::min(smallest, free.count);
        }
        had_a_choice += fits > 1 ? 1 : 0;
        ASSERT_EQ(span.has_value(), fits != 0) << step;
        if (span) {
          ASSERT_EQ(span->count, smallest) << step;
        }
      }
      if (!span) continue;
      ++took;
      space.take(*span, count);
      taken.push_back({.start = span->start, .count = count});
      model.set(taken.back(), Model::kTaken);
    } else if (what < 97) {
      if (taken.empty()) continue;
      std::swap(taken[random() % taken.size()], taken.back());
      space.give(taken.back(), line, random() % 1'000);
      model.set(taken.back(), line);
      taken.pop_back();
    } else if (line != kAnybody) {
      space.release(line, ~std::uint64_t{0}, [&](const Span& span) { model.set(span, kAnybody); });
    }
    if (step % 64 != 0) continue;
    for (Line each = 0; each < kLines; ++each) {
      ASSERT_EQ(sorted(space.spans(each)), model.spans(each)) << step << ", line " << each;
    }
  }
  EXPECT_GT(took, 20'000);
  EXPECT_GT(had_a_choice, 500);
}

}  // namespace
}  // namespace hufu::memory
