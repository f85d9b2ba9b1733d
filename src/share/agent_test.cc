#include "share/agent.h"

#include <sys/wait.h>
#include <unistd.h>

#include <condition_variable>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "share/fake_broker.h"

namespace hufu::share {
namespace {

using wire::EventKind;

constexpr std::uint64_t kShare = 42;
constexpr const char* kKey = "KKKKKKKKKKKKKKKKKKKKKKKKKKKKKKKKKKKKKKKKKKKKKKKKKKKKKKKKKKKKKKKK";

// What a callback was told, for a test that waits for it.
class Told {
 public:
  Agent::Told callback() {
    return [this](EventKind what) {
      const std::lock_guard lock(mutex_);
      events_.push_back(what);
      changed_.notify_all();
    };
  }
  // Once there are as many; all there are after a while, when there are fewer.
  std::vector<EventKind> events(std::size_t count) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, std::chrono::seconds(20), [&] { return events_.size() >= count; });
    return events_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<EventKind> events_;
};

class Agents : public ::testing::Test {
 protected:
  // --- For scripts: the request connection is the broker's current one, the agent's lies beside.
  void accept_agent(FakeBroker& fake) {
    UniqueFd requests = fake.take_connection();
    fake.accept();
    const auto asked = fake.expect<wire::Attach>();
    EXPECT_EQ(std::get<wire::Attach>(asked.body).session, FakeBroker::hello().session);
    fake.answer<wire::Attach>(asked, {});
    line = fake.take_connection();
    fake.give_connection(std::move(requests));
  }
  static wire::ListReply share(std::uint32_t importers,
                               wire::ShareState state = wire::ShareState::kLive) {
    wire::ListReply reply{};
    reply.share = kShare;
    reply.importers = importers;
    reply.state = state;
    reply.owner_pid = FakeBroker::hello().peer_pid;
    return reply;
  }
  static wire::Watch answer_watch(FakeBroker& fake, const wire::ListReply& reply) {
    const auto asked = fake.expect<wire::Watch>();
    fake.answer<wire::Watch>(asked, reply);
    return std::get<wire::Watch>(asked.body);
  }
  void tell(EventKind what, std::uint32_t importers = 0) const {
    const auto frame = wire::encode_event(
        {.what = static_cast<std::uint32_t>(what), .importers = importers, .share = kShare});
    EXPECT_TRUE(os::send(line.get(), frame.view(), {}));
  }

  // A script may have to outlive what the test does meanwhile.
  static void until_bye(FakeBroker& fake) { fake.expect<wire::Bye>(); }

  UniqueFd line;
  FakeBroker broker;
  Told told;
};

std::vector<std::string> threads() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/task")) {
    std::ifstream file(entry.path() / "comm");
    names.emplace_back();
    std::getline(file, names.back());
  }
  return names;
}

std::string blocked_signals_of_agent() {
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/task")) {
    std::string name;
    std::ifstream(entry.path() / "comm") >> name;
    if (name != "hufu-agent") continue;
    std::ifstream status(entry.path() / "status");
    for (std::string word; status >> word;) {
      if (word == "SigBlk:" && status >> word) return word;
    }
  }
  return {};
}

TEST_F(Agents, HaveNoThreadBeforeSomebodyListensAndOneAfter) {
  broker.play([this](FakeBroker& fake) {
    fake.open_session();
    accept_agent(fake);
    until_bye(fake);
  });
  {
    Client client(broker.address());
    Agent agent(client);
    ASSERT_TRUE(client.session());
    const auto before = threads();
    EXPECT_EQ(std::count(before.begin(), before.end(), "hufu-agent"), 0);
    ASSERT_TRUE(agent.listen());
    ASSERT_TRUE(agent.listen());
    const auto after = threads();
    EXPECT_EQ(std::count(after.begin(), after.end(), "hufu-agent"), 1);
    // All but SIGKILL and SIGSTOP; glibc keeps 32 and 33 for itself, and blocks them at times.
    constexpr std::uint64_t kAll = 0xfffffffe7ffbfeff;
    EXPECT_EQ(std::stoull(blocked_signals_of_agent(), nullptr, 16) & kAll, kAll);
  }
  const auto ended = threads();
  EXPECT_EQ(std::count(ended.begin(), ended.end(), "hufu-agent"), 0);
}

TEST_F(Agents, BringEventsToTheirCallback) {
  broker.play([this](FakeBroker& fake) {
    fake.open_session();
    accept_agent(fake);
    const auto asked = answer_watch(fake, share(0));
    EXPECT_EQ(asked.mode, wire::WatchMode::kStart);
    tell(EventKind::kImported, 1);
    tell(EventKind::kLastImporterLeft);
    tell(EventKind::kExportEnded);
    until_bye(fake);
  });
  Client client(broker.address());
  Agent agent(client);
  ASSERT_TRUE(agent.set_callback(kKey, told.callback()));
  EXPECT_EQ(told.events(3),
            (std::vector<EventKind>{EventKind::kImported, EventKind::kLastImporterLeft,
                                    EventKind::kExportEnded}));
}

TEST_F(Agents, TellWhatHappenedWhileTheConnectionWasBroken) {
  broker.play([this](FakeBroker& fake) {
    fake.open_session();
    accept_agent(fake);
    answer_watch(fake, share(1));
    line.reset();  // Cut off.
    accept_agent(fake);
    auto now = share(0, wire::ShareState::kExporterGone);
    now.imports = 1;
    const auto again = answer_watch(fake, now);
    EXPECT_EQ(again.share, kShare);
    EXPECT_EQ(again.key.length, 0) << "keys are not kept";
    until_bye(fake);
  });
  Client client(broker.address());
  Agent agent(client);
  ASSERT_TRUE(agent.set_callback(kKey, told.callback()));
  EXPECT_EQ(told.events(3), (std::vector<EventKind>{EventKind::kExporterGone, EventKind::kImported,
                                                    EventKind::kLastImporterLeft}));
}

TEST_F(Agents, AskAgainForWhoWaitsWhenTheConnectionBreaks) {
  broker.play([this](FakeBroker& fake) {
    fake.open_session();
    accept_agent(fake);
    answer_watch(fake, share(1));
    line.reset();
    accept_agent(fake);
    answer_watch(fake, share(0));  // The event was lost.
    EXPECT_EQ(answer_watch(fake, share(0)).mode, wire::WatchMode::kStop);
    until_bye(fake);
  });
  Client client(broker.address());
  Agent agent(client);
  const auto released = agent.wait_released(kKey, -1);
  ASSERT_TRUE(released) << released.error().what();
  EXPECT_TRUE(*released);
}

TEST_F(Agents, WakeWhoWaitsForTheLastImporter) {
  broker.play([this](FakeBroker& fake) {
    fake.open_session();
    accept_agent(fake);
    answer_watch(fake, share(2));
    tell(EventKind::kImported, 3);
    tell(EventKind::kLastImporterLeft);
    tell(EventKind::kImported, 1);  // Imported again since: it was released all the same.
    EXPECT_EQ(answer_watch(fake, share(1)).mode, wire::WatchMode::kStop);
    until_bye(fake);
  });
  Client client(broker.address());
  Agent agent(client);
  const auto released = agent.wait_released(kKey, -1);
  ASSERT_TRUE(released) << released.error().what();
  EXPECT_TRUE(*released);
}

TEST_F(Agents, SayWhenTheTimeIsOver) {
  broker.play([this](FakeBroker& fake) {
    fake.open_session();
    accept_agent(fake);
    answer_watch(fake, share(2));
    answer_watch(fake, share(2));
    until_bye(fake);
  });
  Client client(broker.address());
  Agent agent(client);
  const auto released = agent.wait_released(kKey, 1);
  ASSERT_TRUE(released) << released.error().what();
  EXPECT_FALSE(*released);
}

TEST_F(Agents, CallWhatGivesMemoryBack) {
  broker.play([this](FakeBroker& fake) {
    fake.open_session();
    accept_agent(fake);
    tell(EventKind::kReturn);
    // As a heap would: the client is free for requests meanwhile.
    fake.answer<wire::Stat>(fake.expect<wire::Stat>(), {});
    until_bye(fake);
  });
  Client client(broker.address());
  Agent agent(client);
  agent.on_return([&] {
    EXPECT_TRUE(client.stat(0));
    told.callback()(EventKind::kReturn);
  });
  ASSERT_TRUE(agent.listen());
  EXPECT_EQ(told.events(1).size(), 1U);
}

TEST_F(Agents, DoNotCallWhatWasCleared) {
  broker.play([this](FakeBroker& fake) {
    fake.open_session();
    accept_agent(fake);
    answer_watch(fake, share(0));
    EXPECT_EQ(answer_watch(fake, share(0)).mode, wire::WatchMode::kStop);
    tell(EventKind::kImported, 1);
    tell(EventKind::kReturn);  // When this one is there, the other was too.
    until_bye(fake);
  });
  Client client(broker.address());
  Agent agent(client);
  Told returned;
  agent.on_return([&] { returned.callback()(EventKind::kReturn); });
  ASSERT_TRUE(agent.set_callback(kKey, told.callback()));
  agent.clear_callback(*public_id_of(kKey));
  EXPECT_EQ(returned.events(1).size(), 1U);
  EXPECT_TRUE(told.events(0).empty());
}

TEST_F(Agents, LeaveNoConnectionToAForkedChild) {
  std::array<int, 2> release{};
  ASSERT_EQ(::pipe(release.data()), 0);
  broker.play([this](FakeBroker& fake) {
    fake.open_session();
    accept_agent(fake);
    until_bye(fake);
    // The parent is gone, its child lives: this end sees the hang-up all the same.
    pollfd poller{.fd = line.get(), .events = POLLIN, .revents = 0};
    EXPECT_EQ(::poll(&poller, 1, 20'000), 1);
  });
  pid_t child = 0;
  {
    Client client(broker.address());
    Agent agent(client);
    ASSERT_TRUE(agent.listen());
    child = ::fork();
    if (child == 0) {
      agent.forget_after_fork();
      client.forget_after_fork();
      char byte = 0;
      ::close(release[1]);
      ::_exit(::read(release[0], &byte, 1) == 0 ? 0 : 1);
    }
  }
  broker.finish();
  ::close(release[1]);
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  ::close(release[0]);
}

}  // namespace
}  // namespace hufu::share
