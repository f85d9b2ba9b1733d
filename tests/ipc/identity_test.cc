// Who asks: the process that connected and no other, whatever descriptors travelled where.

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <string_view>

#include <gtest/gtest.h>

#include "base/units.h"
#include "os/memfd.h"
#include "support/audit_reader.h"
#include "support/probe.h"
#include "support/test_broker.h"
#include "support/wire_session.h"

namespace hufu::test {
namespace {

constexpr std::uint64_t kPage = 4 * kKiB;
constexpr std::uint32_t kSomeUser = 61001;
constexpr std::uint32_t kOtherUser = 61002;

class Identity : public ::testing::Test {
 protected:
  void SetUp() override { broker.start(); }
  TestBroker broker;
};

// The same, for what takes other users to show.
class Users : public Identity {
 protected:
  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "only root can start processes of other users";
    Identity::SetUp();
  }
};

// A05
TEST_F(Identity, AForkedChildIsNotItsParent) {
  WirePeer parent(broker.helper("wire"));
  parent.must("hello");
  parent.helper.tell("fork");
  EXPECT_EQ(WirePeer::parse(parent.helper.hear()).reason, Reason::kIdentityChanged);
  EXPECT_EQ(parent.helper.hear(), "ok closed");
  EXPECT_TRUE(parent.run("stat").hung_up());
  expect_one(broker.records(), {.reason = Reason::kIdentityChanged, .pid = parent.pid()});
}

// A06
TEST_F(Identity, AConnectionThatWasPassedOnIsClosed) {
  WirePeer owner(broker.helper("wire"));
  owner.must("hello");
  const auto made = owner.share_block(kPage, 1, wire::kAnyProcess);
  const auto number = static_cast<int>(owner.run("socket").value(0));
  UniqueFd taken(static_cast<int>(::syscall(SYS_pidfd_getfd, owner.helper.pidfd(), number, 0)));
  ASSERT_TRUE(taken) << "pidfd_getfd: " << errno;

  WireClient thief(std::move(taken));
  const auto reply = thief.ask(wire::Import{.key = key_of(made.key)});
  EXPECT_EQ(reply.reason(), Reason::kIdentityChanged);
  EXPECT_TRUE(reply.fds.empty());
  EXPECT_EQ(reply.refusal->number[1], static_cast<std::uint64_t>(::getpid()));
  EXPECT_TRUE(thief.hung_up());
  EXPECT_TRUE(owner.run("stat").hung_up());
  // With the session went what it owned.
  WireSession observer(broker.socket());
  EXPECT_EQ(observer.stat().used, 0U);
}

TEST_F(Identity, ASecondHelloOfAProcessEndsItsFirstSession) {
  WirePeer peer(broker.helper("wire"));
  peer.must("hello");
  const auto made = peer.share_block(kPage, 1, wire::kAnyProcess);
  peer.must("connect");
  peer.must("hello");
  EXPECT_EQ(peer.run("import " + made.key).reason, Reason::kExportEnded);
  EXPECT_EQ(peer.run("stat").value(0), 0U);
}

TEST_F(Identity, ADescriptorNeverReachesTheBroker) {
  auto gift = os::make_memfd("hufu-test-gift", kPage, os::Backing::kShmem);
  ASSERT_TRUE(gift);
  std::vector<UniqueFd> gifts;
  gifts.push_back(std::move(*gift));
  WireClient client(broker.socket());
  ASSERT_TRUE(client.ask(wire::Hello{}).body);
  const auto stat = wire::encode(wire::Kind::kStat, 0, 2, wire::Stat{});
  const auto sent = os::send(client.socket(), stat.view(), gifts);
  if (sent) {  // Before Linux 6.16 the broker has to close it by itself, and the connection too.
    EXPECT_TRUE(client.hung_up());
  } else {
    EXPECT_EQ(sent.error().sys_errno, EPERM);
  }
  const auto held = descriptors_of(broker.pid());
  EXPECT_FALSE(held.empty());
  EXPECT_TRUE(std::ranges::none_of(held, [](const std::string& target) {
    return target.find("hufu-test-gift") != std::string::npos;
  }));
}

// A07
TEST_F(Users, AProcessThatBecomesAnotherUserIsNobody) {
  broker.open_to_other_users();
  WirePeer peer(broker.helper("wire"));
  peer.must("hello");
  peer.must(fmt::format("become {}", kSomeUser));
  const auto refused = peer.run("stat");
  EXPECT_EQ(refused.reason, Reason::kIdentityChanged);
  EXPECT_EQ(refused.number[2], 0U);
  EXPECT_EQ(refused.number[3], kSomeUser);
  EXPECT_TRUE(peer.run("stat").hung_up());
  expect_one(broker.records(), {.reason = Reason::kIdentityChanged, .pid = peer.pid()});
}

TEST_F(Users, OthersDoNotEvenReachAPersonalBroker) {
  Helper stranger = broker.helper("wire", kSomeUser);
  EXPECT_EQ(stranger.ask("connect"), fmt::format("error {}", EACCES));
}

TEST_F(Users, AKeyIsWorthNothingToAnotherUser) {
  broker.open_to_other_users();
  WirePeer exporter(broker.helper("wire", kSomeUser));
  WirePeer importer(broker.helper("wire", kOtherUser));
  exporter.must("hello");
  importer.must("hello");
  const auto made = exporter.share_block(kPage, 1, wire::kAnyProcess);
  const auto refused = importer.run("import " + made.key);
  EXPECT_EQ(refused.reason, Reason::kOtherUser);
  EXPECT_EQ(refused.number[0], kOtherUser);
  EXPECT_EQ(refused.number[1], kSomeUser);
  // Nor does the list help, nor being root.
  exporter.must(fmt::format("list {} {}", exporter.share_block(kPage, 1).key, importer.pid()));
  WireSession root(broker.socket());
  EXPECT_EQ(root.import(made.key).reason(), Reason::kOtherUser);
  expect_one(broker.records(), {.asked = audit::Type::kImport,
                                .reason = Reason::kOtherUser,
                                .uid = kOtherUser,
                                .pid = importer.pid(),
                                .owner_pid = exporter.pid()});
}

}  // namespace
}  // namespace hufu::test
