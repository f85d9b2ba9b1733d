// The broker's place: however many start, stop and crash at once, one socket has one broker, and
// whoever connected is served.

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>

#include <gtest/gtest.h>

#include "os/process.h"
#include "os/socket.h"
#include "support/test_broker.h"
#include "support/wire_session.h"

namespace hufu::test {
namespace {

// Waits until one of two processes has ended, and says which.
std::size_t first_to_end(const std::array<TestBroker::Launch, 2>& both) {
  std::array<pollfd, 2> pollers{};
  for (std::size_t i = 0; i < both.size(); ++i)
    pollers[i] = {.fd = both[i].process.pidfd(), .events = POLLIN, .revents = 0};
  const auto ms = std::chrono::milliseconds(kDeadline).count();
  if (::poll(pollers.data(), pollers.size(), static_cast<int>(ms)) <= 0) {
    throw Stuck("two brokers run for one socket, and neither leaves");
  }
  return pollers[0].revents != 0 ? 0 : 1;
}

// A16
TEST(Place, OfTwoBrokersStartedAtOnceExactlyOneStays) {
  TestBroker broker;
  for (int round = 0; round < rounds(200); ++round) {
    SCOPED_TRACE(round);
    std::array launched = {broker.launch(), broker.launch()};
    for (const auto& launch : launched)
      ASSERT_EQ(launch.announcement(), "ready\n");
    const std::size_t loser = first_to_end(launched);
    auto& winner = launched[1 - loser];
    ASSERT_EQ(launched[loser].process.wait(), Ending::exited(0));
    WireClient client(broker.socket());
    const auto hello = client.ask(wire::Hello{});
    ASSERT_TRUE(hello.body);
    ASSERT_EQ(hello.body->broker_pid, winner.process.pid());
    // The next two find what either end leaves behind.
    broker.adopt(std::move(winner));
    round % 2 == 0 ? broker.kill() : broker.stop();
  }
}

TEST(Place, IsTakenFromABrokerThatWasKilled) {
  TestBroker broker;
  broker.start();
  broker.kill();
  ASSERT_EQ(::access(broker.socket().c_str(), F_OK), 0) << "no stale socket, nothing to test";
  broker.start();
  WireSession session(broker.socket());
  EXPECT_EQ(session.stat().used, 0U);
}

TEST(Place, ASecondBrokerIsContentWithTheFirst) {
  TestBroker broker;
  broker.start();
  const pid_t first = broker.pid();
  auto second = broker.launch();
  EXPECT_EQ(second.announcement(), "ready\n");
  EXPECT_EQ(second.process.wait(), Ending::exited(0));
  EXPECT_EQ(broker.pid(), first);
}

TEST(Place, IsLeftWhenNobodyHasAskedForAWhile) {
  TestBroker broker({.idle_ms = 1});
  broker.start();
  broker.wait_ended();
  EXPECT_NE(::access(broker.socket().c_str(), F_OK), 0) << "the socket was left behind";
}

// Nobody could find it, nor start another one there: there is nothing to stay for.
TEST(Place, IsLeftWhenItsDirectoryIsGone) {
  TestBroker broker({.idle_ms = 500});
  broker.start();
  const std::string gone = broker.directory() + ".gone";
  ASSERT_EQ(::rename(broker.directory().c_str(), gone.c_str()), 0);
  broker.wait_ended();
  ASSERT_EQ(::rename(gone.c_str(), broker.directory().c_str()), 0);
}

TEST(Place, IsKeptWhileAnybodyIsConnected) {
  TestBroker broker({.idle_ms = 1});
  WirePeer peer(broker.helper("wire"));
  do {  // It may leave before we come.
    broker.start();
  } while (peer.helper.ask("connect") != "ok");
  peer.must("hello");
  const pid_t serving = broker.pid();
  const auto pidfd = os::open_pidfd(serving);
  ASSERT_TRUE(pidfd);
  // Many times as long as it would wait for somebody to come.
  EXPECT_FALSE(wait_readable(pidfd->get(), std::chrono::milliseconds(50)));
  peer.kill();
  broker.wait_ended();
}

TEST(Place, ALeavingBrokerLosesNobodyWhoConnected) {
  TestBroker broker({.idle_ms = 1});
  // Feels its way to the moment of leaving and stays there: an eighth later after each connection
  // that was made, a quarter earlier when the broker had gone.
  using std::chrono::microseconds;
  microseconds wait{500};
  int met = 0;
  int missed = 0;
  for (int round = 0; round < rounds(400); ++round) {
    const auto end = std::chrono::steady_clock::now() + wait;
    while (std::chrono::steady_clock::now() < end) {
    }
    auto connected = os::connect_to(broker.socket());
    if (connected) {
      WireClient client(std::move(*connected));
      ASSERT_TRUE(client.ask(wire::Hello{}).body) << "connected, not served, in round " << round;
      wait += wait / 8;
      ++met;
      continue;
    }
    const int why = connected.error().sys_errno;
    ASSERT_TRUE(why == ENOENT || why == ECONNREFUSED) << connected.error().what();
    broker.start();
    wait -= wait / 4;
    ++missed;
  }
  EXPECT_GT(met, 0);
  EXPECT_GT(missed, 1) << "the broker never left, so nothing was tested";
}

}  // namespace
}  // namespace hufu::test
