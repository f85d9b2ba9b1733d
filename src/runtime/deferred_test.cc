#include "runtime/deferred.h"

#include <array>
#include <atomic>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace hufu::runtime {
namespace {

// Something that counts its end, and can be moved.
class Ended {
 public:
  explicit Ended(std::atomic<int>& count) : count_(&count) {}
  ~Ended() {
    if (count_ != nullptr) count_->fetch_add(1);
  }
  Ended(Ended&& other) noexcept : count_(std::exchange(other.count_, nullptr)) {}
  Ended& operator=(Ended&&) = delete;
  Ended(const Ended&) = delete;
  Ended& operator=(const Ended&) = delete;

 private:
  std::atomic<int>* count_;
};

Stamp begin(Progress& line) { return {.line = &line, .ticket = line.issued.fetch_add(1) + 1}; }

void go_on(Progress& line, Deferred& deferred) {
  const std::uint64_t done = line.done.fetch_add(1) + 1;
  if (done >= line.awaited.load()) deferred.passed(line);
  deferred.settle();
}

TEST(Deferred, WithNothingUnderWayTheEndIsNow) {
  std::atomic<int> ended = 0;
  Deferred deferred;
  deferred.end_after({}, Ended(ended));
  EXPECT_EQ(ended, 1);
  EXPECT_EQ(deferred.pending(), 0U);
}

TEST(Deferred, WaitsForTheLastOfItsStamps) {
  std::atomic<int> ended = 0;
  Deferred deferred;
  std::array<Progress, 3> lines;
  const std::array stamps = {begin(lines[0]), begin(lines[1]), begin(lines[2])};
  deferred.end_after(stamps, Ended(ended));
  EXPECT_EQ(deferred.pending(), 1U);
  go_on(lines[1], deferred);
  go_on(lines[0], deferred);
  EXPECT_EQ(ended, 0);
  go_on(lines[2], deferred);
  EXPECT_EQ(ended, 1);
  EXPECT_EQ(deferred.pending(), 0U);
}

TEST(Deferred, FlushEndsWhatIsDoneThoughNobodyHasSaidSoYet) {
  std::atomic<int> ended = 0;
  Deferred deferred;
  Progress line;
  const std::array stamps = {begin(line)};
  deferred.end_after(stamps, Ended(ended));
  line.done.fetch_add(1);  // A worker between "done" and passed().
  EXPECT_TRUE(deferred.flush({}));
  EXPECT_EQ(ended, 1);
  EXPECT_EQ(deferred.pending(), 0U);
  deferred.passed(line);
  EXPECT_EQ(ended, 1);
}

TEST(Deferred, ALineThatStandsStillDelaysOnlyWhatIsStampedWithIt) {
  std::atomic<int> stuck = 0;
  std::atomic<int> free = 0;
  Deferred deferred;
  Progress standing;
  Progress going;
  const std::array both = {begin(standing), begin(going)};
  deferred.end_after(both, Ended(stuck));
  for (int i = 0; i < 10; ++i) {
    const std::array one = {begin(going)};
    deferred.end_after(one, Ended(free));
  }
  for (int i = 0; i < 11; ++i)
    go_on(going, deferred);
  EXPECT_EQ(free, 10);
  EXPECT_EQ(stuck, 0);
  go_on(standing, deferred);
  EXPECT_EQ(stuck, 1);
}

TEST(Deferred, WhatIsIssuedLaterIsNotWaitedFor) {
  std::atomic<int> ended = 0;
  Deferred deferred;
  Progress line;
  const std::array stamps = {begin(line)};
  begin(line);
  deferred.end_after(stamps, Ended(ended));
  go_on(line, deferred);
  EXPECT_EQ(ended, 1);
}

TEST(Deferred, AStampThatHasPassedAlreadyIsNotWaitedFor) {
  std::atomic<int> ended = 0;
  Deferred deferred;
  Progress line;
  const std::array stamps = {begin(line)};
  go_on(line, deferred);
  deferred.end_after(stamps, Ended(ended));
  EXPECT_EQ(ended, 1);
}

TEST(Deferred, NothingIsLostBetweenThreads) {
  constexpr int kRounds = 2000;
  std::atomic<int> ended = 0;
  Deferred deferred;
  std::array<Progress, 2> lines;
  std::vector<std::thread> threads;
  for (Progress& line : lines) {
    threads.emplace_back([&] {
      for (int i = 0; i < kRounds; ++i) {
        begin(line);
        go_on(line, deferred);
      }
    });
  }
  threads.emplace_back([&] {
    for (int i = 0; i < kRounds; ++i) {
      const std::array stamps = {Stamp{.line = lines.data(), .ticket = lines[0].issued.load()},
                                 Stamp{.line = &lines[1], .ticket = lines[1].issued.load()}};
      deferred.end_after(stamps, Ended(ended));
    }
  });
  for (std::thread& thread : threads)
    thread.join();
  EXPECT_TRUE(deferred.flush({}));
  EXPECT_EQ(ended, kRounds);
  EXPECT_EQ(deferred.pending(), 0U);
}

}  // namespace
}  // namespace hufu::runtime
