#include "os/event_loop.h"

#include <csignal>

#include <gtest/gtest.h>

namespace hufu::os {
namespace {

// The kernel sends SIGIO to who holds a lease when somebody opens the file, and its default action
// ends the process: anybody who can open a block could end the broker in the middle of a probe.
TEST(TerminationSignals, AreReadAndTheOnesThatOthersCanCauseDoNothing) {
  const auto signals = termination_signals();
  ASSERT_TRUE(signals) << signals.error().what();
  EXPECT_EQ(::raise(SIGIO), 0);
  EXPECT_EQ(::raise(SIGPIPE), 0);

  auto loop = EventLoop::make();
  ASSERT_TRUE(loop);
  ASSERT_TRUE(loop->watch(signals->get(), 7));
  const auto none = loop->wait(std::chrono::milliseconds(0));
  ASSERT_TRUE(none);
  EXPECT_TRUE(none->empty());
  EXPECT_EQ(::raise(SIGTERM), 0);
  const auto one = loop->wait(std::chrono::milliseconds(0));
  ASSERT_TRUE(one);
  ASSERT_EQ(one->size(), 1U);
  EXPECT_EQ((*one)[0].token, 7U);
}

}  // namespace
}  // namespace hufu::os
