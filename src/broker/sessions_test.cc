// The plays that need no fuzzer: random ones, and the same ones each time.

#include <cstdlib>
#include <optional>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "broker/session_play.h"

namespace hufu::broker {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr std::uint64_t kSeeds = 150;
#else
constexpr std::uint64_t kSeeds = 1'000;
#endif

// HUFU_TEST_PLAYS: so many thousand, for a soak.
std::uint64_t seeds() {
  // NOLINTNEXTLINE(concurrency-mt-unsafe): nothing here sets the environment.
  const char* thousands = std::getenv("HUFU_TEST_PLAYS");
  return thousands == nullptr ? kSeeds : 1'000 * std::strtoull(thousands, nullptr, 10);
}

TEST(SessionPlays, OfAnySortLeaveTheBooksTrue) {
  std::optional<Stage> stage;
  SessionPlay::Tally sum;
  for (std::uint64_t seed = 1; seed <= seeds(); ++seed) {
    if (seed % 1'000 == 1) stage.emplace();  // Its log would grow without end.
    std::mt19937_64 random(seed);
    std::vector<std::uint8_t> script(50 + random() % 1'400);
    for (std::uint8_t& byte : script)
      byte = static_cast<std::uint8_t>(random());
    SessionPlay play(*stage, script);
    ASSERT_EQ(play.run(), "") << "seed " << seed;
    sum.granted += play.tally().granted;
    sum.refused += play.tally().refused;
    sum.repeated += play.tally().repeated;
    sum.told += play.tally().told;
    sum.superseded += play.tally().superseded;
    sum.over_quota += play.tally().over_quota;
    sum.put_off += play.tally().put_off;
    sum.by_handle += play.tally().by_handle;
    sum.charged += play.tally().charged;
  }
  // They were about something.
  EXPECT_GT(sum.granted, kSeeds);
  EXPECT_GT(sum.refused, kSeeds);
  EXPECT_GT(sum.repeated, kSeeds);
  EXPECT_GT(sum.superseded, kSeeds / 4);
  EXPECT_GT(sum.over_quota, kSeeds / 4);
  EXPECT_GT(sum.told, kSeeds / 20);
  EXPECT_GT(sum.put_off, kSeeds / 20);
  EXPECT_GT(sum.by_handle, kSeeds / 20);
  EXPECT_GT(sum.charged, kSeeds / 20);
}

}  // namespace
}  // namespace hufu::broker
