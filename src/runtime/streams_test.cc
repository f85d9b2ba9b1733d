#include "runtime/streams.h"

#include <array>
#include <atomic>
#include <chrono>
#include <set>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "runtime/gate.h"

namespace hufu::runtime {
namespace {

constexpr ContextId kHere{.device = 0, .life = 1};
constexpr ContextId kThere{.device = 1, .life = 2};
constexpr std::chrono::milliseconds kLittle{20};

Deadline soon() { return std::chrono::steady_clock::now() + kLittle; }

class StreamsOf : public testing::Test {
 protected:
  StreamHandle create(const ContextId& context = kHere) {
    const auto made = streams_.create(context);
    EXPECT_TRUE(made) << made.error().what();
    return *made;
  }
  void issue(StreamHandle stream, HostTask task) {
    const auto issued = streams_.issue(stream, kHere, Where::kQueued,
                                       [&](Stream&) -> Result<Task> { return Task(task); });
    ASSERT_TRUE(issued) << issued.error().what();
  }
  void issue(StreamHandle stream, Gate& gate) { issue(stream, gate.task()); }
  // Before the gate goes, nobody may stand in it.
  void finish(Gate& gate) {
    gate.open();
    EXPECT_TRUE(streams_.synchronize_device(0, {}));
  }
  Result<void> synchronize(StreamHandle stream, Deadline deadline = {}) {
    return streams_.synchronize(stream, kHere, deadline);
  }
  Errc error_of(StreamHandle stream, const ContextId& context = kHere) {
    const auto idle = streams_.idle(stream, context);
    EXPECT_FALSE(idle);
    return idle ? Errc::kSystem : idle.error().code;
  }

  Deferred deferred_;
  Streams streams_{deferred_};
};

HostTask add_one(std::atomic<int>& count) {
  return {.run =
              [](void* to) {
                static_cast<std::atomic<int>*>(to)->fetch_add(1);
                return std::int32_t{0};
              },
          .argument = &count};
}

TEST_F(StreamsOf, NullStandsForTheDefaultStream) {
  EXPECT_TRUE(streams_.idle(nullptr, kHere));
  const StreamHandle standard = *streams_.default_of(kHere);
  EXPECT_EQ(*streams_.default_of(kHere), standard);
  EXPECT_NE(*streams_.default_of(kThere), standard);
  EXPECT_TRUE(streams_.idle(standard, kHere));
  EXPECT_EQ(streams_.destroy(standard, kHere, Destroy::kByForce).error().code, Errc::kInvalidValue);
}

TEST_F(StreamsOf, ADestroyedHandleIsNeverValidAgain) {
  std::set<StreamHandle> destroyed;
  for (int i = 0; i < 1000; ++i) {
    const StreamHandle stream = create();
    EXPECT_FALSE(destroyed.contains(stream));
    EXPECT_TRUE(streams_.destroy(stream, kHere, Destroy::kAfterItsWork));
    EXPECT_EQ(streams_.destroy(stream, kHere, Destroy::kAfterItsWork).error().code,
              Errc::kInvalidHandle);
    EXPECT_EQ(error_of(stream), Errc::kInvalidHandle);
    destroyed.insert(stream);
  }
}

TEST_F(StreamsOf, GarbageIsLookedUpAndNotFollowed) {
  int local = 0;
  const auto real = reinterpret_cast<std::uintptr_t>(create());
  for (void* garbage : {reinterpret_cast<void*>(0x1), reinterpret_cast<void*>(~std::uintptr_t{0}),
                        static_cast<void*>(&local), reinterpret_cast<void*>(real + 1),
                        reinterpret_cast<void*>(real + 64)}) {
    EXPECT_EQ(error_of(garbage), Errc::kInvalidHandle);
    EXPECT_EQ(streams_.destroy(garbage, kHere, Destroy::kByForce).error().code,
              Errc::kInvalidHandle);
  }
}

TEST_F(StreamsOf, BelongToOneContextAndEndWithIt) {
  const StreamHandle stream = create();
  const StreamHandle other = create(kThere);
  EXPECT_EQ(error_of(stream, kThere), Errc::kForeignStream);
  EXPECT_EQ(streams_.destroy(stream, kThere, Destroy::kByForce).error().code, Errc::kForeignStream);
  streams_.end(kHere, kLittle);
  EXPECT_EQ(error_of(stream), Errc::kInvalidHandle);
  EXPECT_TRUE(streams_.idle(other, kThere));
}

TEST_F(StreamsOf, ADeviceHasSoManyAndNoMore) {
  std::vector<StreamHandle> made;
  for (std::size_t i = 0; i < Streams::kMostPerDevice; ++i)
    made.push_back(create());
  EXPECT_EQ(streams_.create(kHere).error().code, Errc::kNoStream);
  EXPECT_TRUE(streams_.create(kThere));
  EXPECT_TRUE(streams_.destroy(made.back(), kHere, Destroy::kAfterItsWork));
  EXPECT_TRUE(streams_.create(kHere));
}

struct Order {
  std::vector<int>* done;
  int number;
};

TEST_F(StreamsOf, DoWhatTheyWereToldInThatOrder) {
  const StreamHandle stream = create();
  constexpr int kTasks = 5000;  // Several times round the ring.
  std::vector<int> done;
  std::vector<Order> orders;
  for (int i = 0; i < kTasks; ++i)
    orders.push_back({.done = &done, .number = i});
  for (Order& order : orders) {
    issue(stream, {.run =
                       [](void* argument) {
                         const auto* mine = static_cast<Order*>(argument);
                         mine->done->push_back(mine->number);
                         return std::int32_t{0};
                       },
                   .argument = &order});
  }
  ASSERT_TRUE(synchronize(stream));
  ASSERT_EQ(done.size(), static_cast<std::size_t>(kTasks));
  for (int i = 0; i < kTasks; ++i)
    ASSERT_EQ(done[static_cast<std::size_t>(i)], i);
}

TEST_F(StreamsOf, OneThatStandsStillHoldsUpNoOther) {
  constexpr int kStuck = 20;
  Gate gate;
  for (int i = 0; i < kStuck; ++i)
    issue(create(), gate);
  gate.wait_reached(kStuck);  // All of them are being run, on however few processors.
  std::atomic<int> count = 0;
  const StreamHandle free = create();
  issue(free, add_one(count));
  EXPECT_TRUE(synchronize(free));
  EXPECT_EQ(count, 1);
  EXPECT_LE(streams_.threads(), kStuck + std::max(2U, std::thread::hardware_concurrency()) + 1);
  finish(gate);
}

TEST_F(StreamsOf, AShortTaskOnAnIdleStreamIsDoneByItsIssuer) {
  std::array<char, 64> memory{};
  const StreamHandle stream = create();
  const auto fill = [&](Stream&) -> Result<Task> {
    return Task(FillTask{.to = memory.data(), .count = memory.size(), .value = 7});
  };
  ASSERT_TRUE(streams_.issue(stream, kHere, Where::kHereIfIdle, fill));
  EXPECT_EQ(memory[63], 7);
  EXPECT_TRUE(*streams_.idle(stream, kHere));
  EXPECT_EQ(streams_.threads(), 0U);
}

TEST_F(StreamsOf, AShortTaskComesAfterWhatWasQueuedBefore) {
  std::array<char, 64> memory{};
  const StreamHandle stream = create();
  Gate gate;
  issue(stream, gate);
  gate.wait_reached();
  ASSERT_TRUE(streams_.issue(stream, kHere, Where::kHereIfIdle, [&](Stream&) -> Result<Task> {
    return Task(FillTask{.to = memory.data(), .count = memory.size(), .value = 7});
  }));
  EXPECT_EQ(memory[63], 0);
  EXPECT_FALSE(*streams_.idle(stream, kHere));
  gate.open();
  ASSERT_TRUE(synchronize(stream));
  EXPECT_EQ(memory[63], 7);
}

TEST_F(StreamsOf, WhatIsRefusedLeavesNoGap) {
  const StreamHandle stream = create();
  Gate gate;
  issue(stream, gate);
  const auto refused = [](Stream&) -> Result<Task> {
    return fail(Errc::kRefused, Reason::kNone, "no");
  };
  EXPECT_EQ(streams_.issue(stream, kHere, Where::kQueued, refused).error().code, Errc::kRefused);
  gate.open();
  EXPECT_TRUE(synchronize(stream));
  EXPECT_EQ(streams_.issue(stream, kHere, Where::kHereIfIdle, refused).error().code,
            Errc::kRefused);
  std::atomic<int> count = 0;
  issue(stream, add_one(count));
  EXPECT_TRUE(synchronize(stream));
  EXPECT_EQ(count, 1);
}

TEST_F(StreamsOf, TheFirstFailureIsToldOnceAndTheWorkGoesOn) {
  const StreamHandle stream = create();
  Gate first;
  Gate second;
  first.open(507035);
  second.open(507015);
  std::atomic<int> count = 0;
  issue(stream, first);
  issue(stream, second);
  issue(stream, add_one(count));
  const auto failed = synchronize(stream);
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().code, Errc::kTaskFailed);
  EXPECT_EQ(failed.error().task_code, 507035);
  EXPECT_EQ(count, 1);
  EXPECT_TRUE(synchronize(stream));
}

TEST_F(StreamsOf, WaitingEndsAtItsDeadline) {
  const StreamHandle stream = create();
  Gate gate;
  issue(stream, gate);
  EXPECT_EQ(synchronize(stream, soon()).error().code, Errc::kTimedOut);
  EXPECT_EQ(streams_.synchronize_device(0, soon()).error().code, Errc::kTimedOut);
  EXPECT_TRUE(streams_.synchronize_device(1, soon()));
  gate.open();
  EXPECT_TRUE(synchronize(stream));
}

TEST_F(StreamsOf, DestroyingWaitsForTheWork) {
  const StreamHandle stream = create();
  std::atomic<int> count = 0;
  for (int i = 0; i < 100; ++i)
    issue(stream, add_one(count));
  ASSERT_TRUE(streams_.destroy(stream, kHere, Destroy::kAfterItsWork));
  EXPECT_EQ(count, 100);
}

TEST_F(StreamsOf, DestroyedByForceItStillDoesItsWork) {
  const StreamHandle stream = create();
  Gate gate;
  std::atomic<int> count = 0;
  issue(stream, gate);
  issue(stream, add_one(count));
  ASSERT_TRUE(streams_.destroy(stream, kHere, Destroy::kByForce));
  EXPECT_EQ(error_of(stream), Errc::kInvalidHandle);
  EXPECT_EQ(count, 0);
  gate.open();
  EXPECT_TRUE(streams_.synchronize_device(0, {}));
  EXPECT_EQ(count, 1);
}

TEST_F(StreamsOf, AContextsEndWaitsForWorkThatGetsOn) {
  std::atomic<int> count = 0;
  const StreamHandle stream = create();
  for (int i = 0; i < 1000; ++i)
    issue(stream, add_one(count));
  streams_.end(kHere, std::chrono::seconds(30));
  EXPECT_EQ(count, 1000);
}

TEST_F(StreamsOf, AContextsEndDoesNotWaitForWorkThatStandsStill) {
  Gate gate;
  issue(create(), gate);
  streams_.end(kHere, kLittle);
  finish(gate);
}

TEST_F(StreamsOf, AFullQueueMakesTheIssuerWait) {
  const StreamHandle stream = create();
  Gate gate;
  std::atomic<int> issued = 0;
  std::atomic<int> count = 0;
  issue(stream, gate);
  constexpr int kMore = 3 * static_cast<int>(Stream::kDepth);
  std::thread issuer([&] {
    for (int i = 0; i < kMore; ++i) {
      issue(stream, add_one(count));
      issued.fetch_add(1);
    }
  });
  while (issued != static_cast<int>(Stream::kDepth) - 1)
    std::this_thread::yield();
  EXPECT_EQ(synchronize(stream, soon()).error().code, Errc::kTimedOut);
  EXPECT_EQ(issued, static_cast<int>(Stream::kDepth) - 1);
  gate.open();
  issuer.join();
  EXPECT_TRUE(synchronize(stream));
  EXPECT_EQ(count, kMore);
}

// Each task checks that it comes after its issuer's last one on the same stream.
struct Step {
  std::atomic<int>* last;
  int number;
  std::atomic<int>* out_of_order;
};

std::int32_t take_step(void* argument) {
  const auto* step = static_cast<Step*>(argument);
  if (step->last->exchange(step->number) != step->number - 1) step->out_of_order->fetch_add(1);
  return 0;
}

TEST_F(StreamsOf, SixtyFourStreamsOfEightThreadsKeepTheirOrders) {
  constexpr std::size_t kStreams = 64;
  constexpr std::size_t kThreads = 8;
  constexpr int kSteps = 50;
  std::vector<StreamHandle> handles;
  for (std::size_t i = 0; i < kStreams; ++i)
    handles.push_back(create());
  std::atomic<int> out_of_order = 0;
  std::vector<std::array<std::atomic<int>, kStreams>> last(kThreads);
  std::vector<std::vector<Step>> steps(kThreads);
  std::vector<std::thread> threads;
  for (std::size_t thread = 0; thread < kThreads; ++thread) {
    steps[thread].reserve(kSteps * kStreams);
    threads.emplace_back([&, thread] {
      for (int step = 1; step <= kSteps; ++step) {
        for (std::size_t stream = 0; stream < kStreams; ++stream) {
          steps[thread].push_back(
              {.last = &last[thread][stream], .number = step, .out_of_order = &out_of_order});
          issue(handles[stream], {.run = take_step, .argument = &steps[thread].back()});
          if (step % 7 == 0) {
            EXPECT_TRUE(synchronize(handles[stream]));
          }
        }
      }
    });
  }
  for (std::thread& thread : threads)
    thread.join();
  ASSERT_TRUE(streams_.synchronize_device(0, {}));
  EXPECT_EQ(out_of_order, 0);
  for (const auto& of_thread : last) {
    for (const auto& number : of_thread)
      EXPECT_EQ(number, kSteps);
  }
}

TEST_F(StreamsOf, ASynchronousPieceOfWorkComesAfterItsThreadsOwn) {
  const StreamHandle stream = create();
  std::atomic<int> count = 0;
  for (int i = 0; i < 100; ++i)
    issue(stream, add_one(count));
  {
    const Streams::Lane lane(streams_);
    EXPECT_EQ(count, 100);
  }
  // Another thread's is not waited for.
  Gate gate;
  std::thread([&] { issue(stream, gate); }).join();
  { const Streams::Lane lane(streams_); }
  finish(gate);
}

}  // namespace
}  // namespace hufu::runtime
