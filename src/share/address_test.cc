#include "share/address.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include <gtest/gtest.h>

namespace hufu::share {
namespace {

class BrokerChoice : public ::testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/hufu-test-XXXXXX";
    root_ = ::mkdtemp(name);
    here_.uid = ::geteuid();
    here_.system_socket = root_ + "/system.sock";
    here_.runtime_root = root_ + "/run-user";
    here_.temporary_root = root_;
    std::filesystem::create_directory(here_.runtime_root);
  }
  void TearDown() override { std::filesystem::remove_all(root_); }

  std::string runtime_directory() const {
    return here_.runtime_root + "/" + std::to_string(here_.uid);
  }

  std::string root_;
  Surroundings here_;
};

TEST_F(BrokerChoice, NoneIsNoBroker) {
  here_.hufu_broker = "none";
  const auto chosen = choose_broker(here_);
  ASSERT_TRUE(chosen);
  EXPECT_EQ(chosen->mode, BrokerMode::kNone);
  EXPECT_FALSE(chosen->start_on_demand);
}

TEST_F(BrokerChoice, AnAbsolutePathIsAPersonalBrokerStartedThere) {
  here_.hufu_broker = "unix:/tmp/x/broker.sock";
  const auto chosen = choose_broker(here_);
  ASSERT_TRUE(chosen);
  EXPECT_EQ(chosen->mode, BrokerMode::kPersonal);
  EXPECT_EQ(chosen->path, "/tmp/x/broker.sock");
  EXPECT_TRUE(chosen->start_on_demand);
}

TEST_F(BrokerChoice, NamingTheSystemsSocketDoesNotMakeItPersonal) {
  here_.hufu_broker = "unix:" + here_.system_socket;
  const auto chosen = choose_broker(here_);
  ASSERT_TRUE(chosen);
  EXPECT_EQ(chosen->mode, BrokerMode::kSystem);
  EXPECT_FALSE(chosen->start_on_demand);
}

TEST_F(BrokerChoice, AnythingElseIsAnErrorThatListsWhatIsAllowed) {
  for (const std::string wrong : {"personal", "unix:", "unix:relative.sock", "unix:/", "unix:/tmp/",
                                  "tcp:1.2.3.4:5", "NONE"}) {
    here_.hufu_broker = wrong;
    const auto chosen = choose_broker(here_);
    ASSERT_FALSE(chosen) << wrong;
    for (const auto* part : {wrong.c_str(), "none", "unix:PATH", "unset", "107"}) {
      EXPECT_NE(chosen.error().what().find(part), std::string_view::npos) << part;
    }
  }
  here_.hufu_broker = "unix:/tmp/" + std::string(103, 'x');
  EXPECT_FALSE(choose_broker(here_));
  here_.hufu_broker.pop_back();
  EXPECT_TRUE(choose_broker(here_));
}

TEST_F(BrokerChoice, ASystemSocketThatExistsIsUsedWhateverItIs) {
  ASSERT_EQ(::symlink("/nowhere", here_.system_socket.c_str()), 0);
  const auto chosen = choose_broker(here_);
  ASSERT_TRUE(chosen);
  EXPECT_EQ(chosen->mode, BrokerMode::kSystem);
  EXPECT_EQ(chosen->path, here_.system_socket);
  EXPECT_FALSE(chosen->start_on_demand);
}

TEST_F(BrokerChoice, TheUsersRuntimeDirectoryComesBeforeTmp) {
  std::filesystem::create_directory(runtime_directory());
  const auto chosen = choose_broker(here_);
  ASSERT_TRUE(chosen);
  EXPECT_EQ(chosen->mode, BrokerMode::kPersonal);
  EXPECT_EQ(chosen->path, runtime_directory() + "/hufu/broker.sock");
}

TEST_F(BrokerChoice, ARuntimeDirectoryThatIsNotOursIsNotUsed) {
  std::filesystem::create_directory_symlink(root_, runtime_directory());
  const auto chosen = choose_broker(here_);
  ASSERT_TRUE(chosen);
  EXPECT_EQ(chosen->path, root_ + "/hufu-" + std::to_string(here_.uid) + "/broker.sock");

  here_.uid += 1;
  std::filesystem::create_directory(runtime_directory());  // Of the uid before.
  const auto other = choose_broker(here_);
  ASSERT_TRUE(other);
  EXPECT_EQ(other->path, root_ + "/hufu-" + std::to_string(here_.uid) + "/broker.sock");
}

}  // namespace
}  // namespace hufu::share
