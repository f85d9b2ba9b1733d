#include "os/socket.h"

#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <string>

#include <gtest/gtest.h>

#include "os/file.h"
#include "os/memfd.h"
#include "os/process.h"

namespace hufu::os {
namespace {

class SocketPair : public ::testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/hufu-test-XXXXXX";
    directory_ = ::mkdtemp(name);
    auto listener = listen_at(path(), 4);
    ASSERT_TRUE(listener) << listener.error().what();
    listener_ = std::move(*listener);
    auto client = connect_to(path());
    ASSERT_TRUE(client) << client.error().what();
    client_ = std::move(*client);
    auto server = accept_from(listener_.get());
    ASSERT_TRUE(server);
    server_ = std::move(*server);
  }
  void TearDown() override {
    ::unlink(path().c_str());
    ::rmdir(directory_.c_str());
  }
  std::string path() const { return directory_ + "/socket"; }

  std::string directory_;
  UniqueFd listener_;
  UniqueFd client_;
  UniqueFd server_;
};

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text));
}

TEST_F(SocketPair, PacketsCarryTheSendersCredentials) {
  ASSERT_TRUE(send(client_.get(), bytes_of("hello"), {}));
  std::array<std::byte, 64> buffer{};
  const auto packet = receive(server_.get(), buffer, nullptr);
  ASSERT_TRUE(packet) << packet.error().what();
  EXPECT_EQ(packet->bytes.size(), 5U);
  ASSERT_TRUE(packet->has_credentials);
  EXPECT_EQ(packet->sender.pid, ::getpid());
  EXPECT_EQ(packet->sender.uid, ::getuid());
}

TEST_F(SocketPair, AListenerThatRefusesStillHandsOutWhoCameBefore) {
  const auto early = connect_to(path());
  ASSERT_TRUE(early);
  refuse_connections(listener_.get());
  const auto late = connect_to(path());
  ASSERT_FALSE(late);
  EXPECT_EQ(late.error().sys_errno, ECONNREFUSED);
  EXPECT_TRUE(accept_from(listener_.get())->valid());
  const auto nobody = accept_from(listener_.get());
  EXPECT_FALSE(nobody && nobody->valid());
}

TEST_F(SocketPair, AForkedChildIsSeenAsTheChild) {
  const pid_t child = ::fork();
  if (child == 0) {
    (void)send(client_.get(), bytes_of("x"), {});
    ::_exit(0);
  }
  ::waitpid(child, nullptr, 0);
  std::array<std::byte, 64> buffer{};
  const auto packet = receive(server_.get(), buffer, nullptr);
  ASSERT_TRUE(packet);
  EXPECT_EQ(packet->sender.pid, child);
}

TEST_F(SocketPair, DescriptorsThatNobodyAskedForNeverStay) {
  std::vector<UniqueFd> gift;
  gift.push_back(std::move(*make_memfd("gift", 4096, Backing::kShmem)));
  const auto sent = send(client_.get(), bytes_of("x"), gift);
  if (!sent) {  // Linux 6.16: the kernel refuses for us (SO_PASSRIGHTS).
    EXPECT_EQ(sent.error().sys_errno, EPERM);
    return;
  }
  std::array<std::byte, 64> buffer{};
  const auto packet = receive(server_.get(), buffer, nullptr);
  ASSERT_TRUE(packet);
  EXPECT_TRUE(packet->unasked_descriptors);
}

TEST_F(SocketPair, DescriptorsReachTheClient) {
  std::vector<UniqueFd> fds;
  fds.push_back(std::move(*make_memfd("block", 4096, Backing::kShmem)));
  ASSERT_TRUE(send(server_.get(), bytes_of("x"), fds));
  std::array<std::byte, 64> buffer{};
  std::vector<UniqueFd> got;
  ASSERT_TRUE(receive(client_.get(), buffer, &got));
  ASSERT_EQ(got.size(), 1U);
  EXPECT_EQ(facts_of(got[0].get())->inode, facts_of(fds[0].get())->inode);
}

TEST_F(SocketPair, AnOversizePacketIsTruncatedAndSaysSo) {
  ASSERT_TRUE(send(client_.get(), bytes_of(std::string(100, 'x')), {}));
  std::array<std::byte, 64> buffer{};
  const auto packet = receive(server_.get(), buffer, nullptr);
  ASSERT_TRUE(packet);
  EXPECT_TRUE(packet->truncated);
}

TEST_F(SocketPair, HangingUpIsTheEnd) {
  client_.reset();
  std::array<std::byte, 64> buffer{};
  const auto packet = receive(server_.get(), buffer, nullptr);
  ASSERT_TRUE(packet);
  EXPECT_TRUE(packet->end);
}

TEST_F(SocketPair, ThePeerIsThisProcess) {
  const auto peer = identify_peer(server_.get());
  ASSERT_TRUE(peer) << peer.error().what();
  EXPECT_EQ(peer->connected.pid, ::getpid());
  EXPECT_GT(peer->start_time, 0U);
  EXPECT_NE(peer->exe_inode, 0U);
  EXPECT_FALSE(has_ended(peer->pidfd.get()));
}

TEST(SocketPath, TooLongNamesTheLimit) {
  const auto socket = connect_to("/tmp/" + std::string(200, 'x'));
  ASSERT_FALSE(socket);
  EXPECT_NE(socket.error().what().find("107"), std::string_view::npos);
}

TEST(PrivateDirectory, RefusesWhatOthersMayWrite) {
  char name[] = "/tmp/hufu-test-XXXXXX";
  const std::string directory = ::mkdtemp(name);
  EXPECT_TRUE(ensure_private_directory(directory));
  ASSERT_EQ(::chmod(directory.c_str(), 0777), 0);
  const auto refused = ensure_private_directory(directory);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().what().find("777"), std::string_view::npos);
  ::rmdir(directory.c_str());
}

TEST(PrivateDirectory, RefusesASymlink) {
  char name[] = "/tmp/hufu-test-XXXXXX";
  const std::string directory = ::mkdtemp(name);
  const std::string link = directory + "/link";
  ASSERT_EQ(::symlink("/tmp", link.c_str()), 0);
  EXPECT_FALSE(ensure_private_directory(link));
  ::unlink(link.c_str());
  ::rmdir(directory.c_str());
}

}  // namespace
}  // namespace hufu::os
