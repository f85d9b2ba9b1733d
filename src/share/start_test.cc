// The client with the real hufud, found beside this program, started on demand.

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/units.h"
#include "os/process.h"
#include "share/client.h"
#include "share/imports.h"
#include "share/scoped_environment.h"

namespace hufu::share {
namespace {

constexpr std::uint64_t kPage = bytes_of(PageSize::k4KiB);
constexpr std::array<wire::MintSpec, 1> kOnePage = {wire::MintSpec{kPage, kPage, 0}};

class StartOnDemand : public ::testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/hufu-test-XXXXXX";
    directory_ = ::mkdtemp(name);
    environment_.set("HUFU_HUFUD", std::nullopt);
    environment_.set("HUFU_AUDIT_DIR", directory_ + "/audit");
    environment_.set("HUFU_IDLE_MS", "2000");  // For the day this test crashes.
    environment_.set("HUFU_BROKER", "unix:" + directory_ + "/broker.sock");
    environment_.set("HUFU_TIMEOUT_MS", "20000");
  }
  void TearDown() override {
    for (const std::int32_t pid : brokers_)
      end(pid, SIGTERM);
    std::filesystem::remove_all(directory_);
  }

  static BrokerAddress address() {
    const auto chosen = choose_broker();
    EXPECT_TRUE(chosen);
    return *chosen;
  }

  // Its pid; ended with the test.
  std::int32_t broker_of(Client& client) {
    const auto session = client.session();
    EXPECT_TRUE(session) << session.error().what();
    if (!session) return 0;
    brokers_.insert(session->broker_pid);
    return session->broker_pid;
  }

  // Sends the signal and waits for the end; nothing when there is no such process.
  void end(std::int32_t pid, int signal) {
    const auto process = os::open_pidfd(pid);
    if (!process) return;
    ::kill(pid, signal);
    pollfd poller{.fd = process->get(), .events = POLLIN, .revents = 0};
    constexpr int kLongMs = 20'000;
    EXPECT_EQ(::poll(&poller, 1, kLongMs), 1) << "broker " << pid << " does not end";
  }

  ScopedEnvironment environment_;
  std::string directory_;
  std::set<std::int32_t> brokers_;
};

TEST_F(StartOnDemand, TheFirstCallStartsABrokerThatIsNotOurChild) {
  Client client(address());
  const std::int32_t broker = broker_of(client);
  ASSERT_GT(broker, 0);
  EXPECT_NE(::getsid(broker), ::getsid(0));
  EXPECT_EQ(::waitpid(-1, nullptr, __WALL | WNOHANG), -1);
  EXPECT_EQ(client.session()->peer_pid, ::getpid());
}

TEST_F(StartOnDemand, ManyStartersMeetOneBroker) {
  constexpr int kStarters = 6;
  int go[2];
  int told[2];
  ASSERT_EQ(::pipe2(go, O_CLOEXEC), 0);
  ASSERT_EQ(::pipe2(told, O_CLOEXEC), 0);
  std::vector<pid_t> children;
  for (int i = 0; i < kStarters; ++i) {
    const pid_t child = ::fork();
    if (child == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      ::close(go[1]);
      char byte = 0;
      (void)!::read(go[0], &byte, 1);  // All at once, when the last writer closes.
      Client client(address());
      const auto session = client.session();
      const std::int32_t pid = session ? session->broker_pid : -1;
      if (!session) ::fprintf(stderr, "%s\n", session.error().text.data());
      (void)!::write(told[1], &pid, sizeof(pid));
      ::_exit(0);
    }
    children.push_back(child);
  }
  ::close(go[0]);
  ::close(go[1]);
  for (int i = 0; i < kStarters; ++i) {
    std::int32_t pid = 0;
    ASSERT_EQ(::read(told[0], &pid, sizeof(pid)), static_cast<ssize_t>(sizeof(pid)));
    brokers_.insert(pid);
  }
  for (const pid_t child : children)
    ::waitpid(child, nullptr, 0);
  ::close(told[0]);
  ::close(told[1]);
  EXPECT_EQ(brokers_.size(), 1U);
  EXPECT_FALSE(brokers_.contains(-1));
}

TEST_F(StartOnDemand, ABlockIsSharedByItsKeyUntilItIsFreed) {
  Client client(address());
  ASSERT_GT(broker_of(client), 0);
  const auto minted = client.mint(0, kOnePage);
  ASSERT_TRUE(minted) << minted.error().what();
  const auto& block = (*minted)[0];
  ASSERT_EQ(::pwrite(block.fd.get(), "tiger", 5, 0), 5);
  const auto exported = client.export_range({block.block, 0, kPage, kPage, 0});
  ASSERT_TRUE(exported) << exported.error().what();
  const std::string key(exported->key.data(), exported->key.size());
  EXPECT_EQ(public_id_of(key)->bytes, exported->public_id) << "both sides name it alike";

  Imports imports(client);
  {
    const auto import = imports.open(key.c_str(), 0);
    ASSERT_TRUE(import) << import.error().what();
    EXPECT_EQ(std::string(reinterpret_cast<const char*>(import->base), 5), "tiger");
    EXPECT_EQ(import->key_id, public_id_of(key));
    EXPECT_TRUE(imports.close(key.c_str()));
  }
  EXPECT_EQ(client.list()->size(), 1U);
  EXPECT_TRUE(client.free(block.block, true));
  const auto late = imports.open(key.c_str(), 0);
  ASSERT_FALSE(late);
  EXPECT_EQ(late.error().reason, Reason::kExportEnded) << late.error().what();
}

TEST_F(StartOnDemand, AfterABrokersDeathTheNextCallStartsAnotherAndOldThingsSayWhy) {
  Client client(address());
  Imports imports(client);
  const std::int32_t first = broker_of(client);
  const auto minted = client.mint(0, kOnePage);
  ASSERT_TRUE(minted);
  const auto& block = (*minted)[0];
  ASSERT_EQ(::pwrite(block.fd.get(), "tiger", 5, 0), 5);
  const auto exported = client.export_range({block.block, 0, kPage, kPage, 0});
  ASSERT_TRUE(exported) << exported.error().what();
  const std::string key(exported->key.data(), exported->key.size());
  const auto import = imports.open(key.c_str(), 0);
  ASSERT_TRUE(import) << import.error().what();

  end(first, SIGKILL);
  ASSERT_TRUE(client.stat(0));
  EXPECT_NE(broker_of(client), first);
  const auto refused = client.export_range({block.block, 0, kPage, kPage, 0});
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().what().find(std::to_string(first)), std::string_view::npos);
  EXPECT_EQ(static_cast<char>(import->base[0]), 't') << "mappings stay";
  EXPECT_TRUE(imports.close(key.c_str()));
  const auto foreign = imports.open(key.c_str(), 0);
  ASSERT_FALSE(foreign);
  EXPECT_EQ(foreign.error().reason, Reason::kKeyUnknown);
  EXPECT_NE(foreign.error().what().find("was not issued by the broker at " + directory_),
            std::string_view::npos)
      << foreign.error().what();
}

TEST_F(StartOnDemand, ABrokerThatCannotStartSaysWhy) {
  environment_.set("HUFU_DEVICES", "0");
  Client client(address());
  const auto session = client.session();
  ASSERT_FALSE(session);
  EXPECT_NE(session.error().what().find("HUFU_DEVICES"), std::string_view::npos)
      << session.error().what();
}

}  // namespace
}  // namespace hufu::share
