// SIGKILL at moments nobody chose, a thousand times. Afterwards the broker keeps nothing: no byte,
// no share, no descriptor; nobody hung, and the log is whole (TestBroker looks at that).

#include <poll.h>

#include <chrono>
#include <cstdlib>
#include <optional>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "churn.h"
#include "support/audit_reader.h"
#include "support/probe.h"
#include "support/wire_session.h"

namespace hufu::test {
namespace {

using std::chrono::steady_clock;

constexpr int kDevices = 2;

// HUFU_TEST_SEED repeats a run as far as the kernel's scheduler lets it.
std::uint64_t seed_of_this_run() {
  const char* chosen = ::getenv("HUFU_TEST_SEED");
  const std::uint64_t seed =
      chosen != nullptr ? std::strtoull(chosen, nullptr, 10) : std::random_device{}();
  ::testing::Test::RecordProperty("seed", std::to_string(seed));
  std::printf("HUFU_TEST_SEED=%llu\n", static_cast<unsigned long long>(seed));
  return seed;
}

// HUFU_TEST_KILLS: more of them, for a soak.
int kills_of_this_run() {
  const char* chosen = ::getenv("HUFU_TEST_KILLS");
  return chosen != nullptr ? std::atoi(chosen) : rounds(1000);
}

// Workers, each killed when it has made as many steps as chance says; another takes its seat.
class Storm {
 public:
  Storm(const TestBroker& broker, std::uint64_t seed)
      : broker_(broker), path_(broker.directory() + "/board"), board_(path_), random_(seed) {
    for (std::size_t i = 0; i < kWorkers; ++i) {
      seats_.emplace_back();
      sit_down(i);
    }
  }

  ~Storm() {
    for (Sitting& seat : seats_)
      seat.worker->kill();
  }
  Storm(const Storm&) = delete;
  Storm& operator=(const Storm&) = delete;

  void kill(int times) {
    for (int killed = 0; killed < times;) {
      for (std::size_t i = 0; i < kWorkers; ++i) {
        if (!ready_to_die(i)) continue;
        ASSERT_EQ(seats_[i].worker->kill(), Ending::killed(SIGKILL));
        granted_ += board_->seats[i].granted;
        sit_down(i);
        if (++killed == times) return;
      }
      wait_a_moment();
      ASSERT_FALSE(::testing::Test::HasFailure());
    }
  }
  // Those who are left do a bit more and then leave in good order: nobody is stuck.
  void end_in_good_order() {
    board_->stop = 1;
    for (std::size_t i = 0; i < kWorkers; ++i) {
      EXPECT_EQ(seats_[i].worker->wait(), Ending::exited(0));
      EXPECT_EQ(board_->seats[i].failed, 0U) << board_->seats[i].text.data();
    }
    seats_.clear();
  }
  std::uint64_t granted() const { return granted_; }

 private:
  static constexpr std::size_t kWorkers = 6;
  struct Sitting {
    std::optional<Helper> worker;
    std::uint64_t last_step = 0;
    steady_clock::time_point since;
  };

  void sit_down(std::size_t seat) {
    auto& place = board_->seats[seat];
    place.steps = 0;
    place.granted = 0;
    // One in eight dies before it has done anything, somewhere between exec and HELLO.
    const std::uint64_t last = random_() % 8 == 0 ? 0 : 1 + random_() % 50;
    constexpr std::uint64_t kTooLate = 20;
    place.most = last + kTooLate;
    seats_[seat].worker.reset();
    seats_[seat].worker.emplace(start_churn(broker_, path_, seat, random_()));
    seats_[seat].last_step = last;
    seats_[seat].since = steady_clock::now();
  }

  bool ready_to_die(std::size_t seat) {
    auto& place = board_->seats[seat];
    if (place.failed != 0) {
      ADD_FAILURE() << "worker " << seat << ": " << place.text.data();
      return false;
    }
    if (wait_readable(seats_[seat].worker->pidfd(), std::chrono::milliseconds(0))) {
      ADD_FAILURE() << "worker " << seat << " " << to_string(seats_[seat].worker->wait())
                    << " by itself";
      return false;
    }
    if (place.steps >= seats_[seat].last_step) return true;
    if (steady_clock::now() - seats_[seat].since > kDeadline) {
      throw Stuck("a worker hangs: " + what_it_does(seats_[seat].worker->pid()));
    }
    return false;
  }

  // Until a worker ends, which none should, and not longer than a step takes.
  void wait_a_moment() {
    std::vector<pollfd> pollers;
    for (const Sitting& seat : seats_)
      pollers.push_back({.fd = seat.worker->pidfd(), .events = POLLIN, .revents = 0});
    constexpr std::uint64_t kStepNs = 300'000;
    const timespec moment{.tv_sec = 0, .tv_nsec = static_cast<long>(random_() % kStepNs)};
    (void)::ppoll(pollers.data(), pollers.size(), &moment, nullptr);
  }

  const TestBroker& broker_;
  std::string path_;
  ChurnBoard board_;
  std::mt19937_64 random_;
  std::vector<Sitting> seats_;
  std::uint64_t granted_ = 0;
};

// What the broker has open for clients: the log's files come and go by themselves.
std::vector<std::string> descriptors_for_clients(pid_t broker) {
  auto open = descriptors_of(broker);
  std::erase_if(open, [](const std::string& to) {
    return !to.starts_with("socket:") && !to.starts_with("/memfd:") && to != "anon_inode:[pidfd]";
  });
  return open;
}

// The broker learns of deaths as events, and closes files in a thread of its own: each question is
// a turn of its loop.
void expect_nothing_kept(WireSession& observer, pid_t broker, std::size_t descriptors_before) {
  const auto end = steady_clock::now() + kDeadline;
  const auto kept = [&] {
    std::string text;
    for (std::uint32_t device = 0; device < kDevices; ++device) {
      const auto stat = observer.stat(device);
      if (stat.used != 0) text += fmt::format("{} bytes on device {}; ", stat.used, device);
    }
    const auto first = observer.client.ask(wire::List{.after = 0});
    if (!first.body || first.body->share != 0) text += "a share is listed; ";
    const auto open = descriptors_for_clients(broker);
    if (open.size() != descriptors_before) {
      text += fmt::format("{} descriptors, {} before:", open.size(), descriptors_before);
      for (const std::string& descriptor : open)
        text += " " + descriptor;
    }
    return text;
  };
  std::string last = kept();
  while (!last.empty() && steady_clock::now() < end)
    last = kept();
  EXPECT_EQ(last, "");
}

TEST(KillStorm, AThousandDeathsLeaveNothingBehind) {
  TestBroker broker({.devices = kDevices});
  broker.start();
  WireSession observer(broker.socket());
  observer.stat();  // The broker has put away what it sent with HELLO's answer.
  const pid_t pid = broker.pid();
  const std::size_t before = descriptors_for_clients(pid).size();
  {
    Storm storm(broker, seed_of_this_run());
    ASSERT_NO_FATAL_FAILURE(storm.kill(kills_of_this_run()));
    // It was about sharing: with nothing granted it would prove little. Under a sanitizer a process
    // gets less done before it is killed.
    constexpr std::uint64_t kKillsToAGrant = kSanitized ? 20 : 4;
    EXPECT_GT(storm.granted(), static_cast<std::uint64_t>(kills_of_this_run()) / kKillsToAGrant);
  }
  expect_nothing_kept(observer, pid, before);
  EXPECT_EQ(broker.pid(), pid) << "the broker was replaced";
}

TEST(KillStorm, WhoSurvivesItGoesOnAndLeavesNothingEither) {
  TestBroker broker({.devices = kDevices});
  broker.start();
  WireSession observer(broker.socket());
  observer.stat();  // The broker has put away what it sent with HELLO's answer.
  const pid_t pid = broker.pid();
  const std::size_t before = descriptors_for_clients(pid).size();
  {
    Storm storm(broker, seed_of_this_run());
    ASSERT_NO_FATAL_FAILURE(storm.kill(rounds(50)));
    storm.end_in_good_order();
  }
  expect_nothing_kept(observer, pid, before);
}

}  // namespace
}  // namespace hufu::test
