#include "share/starter.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include <gtest/gtest.h>

#include "base/unique_fd.h"
#include "share/scoped_environment.h"

namespace hufu::share {
namespace {

// A shell script in hufud's place. It tells what it was given in a file beside it, then does what
// the test says.
class Starter : public ::testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/hufu-test-XXXXXX";
    directory_ = ::mkdtemp(name);
    address_ = {BrokerMode::kPersonal, directory_ + "/broker.sock", true};
    environment_.set("HUFU_HUFUD", program());
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  std::string program() const { return directory_ + "/hufud"; }
  std::string told() const {
    std::ostringstream text;
    text << std::ifstream(directory_ + "/told").rdbuf();
    return text.str();
  }
  void write_program(const std::string& body, mode_t mode = 0755) {
    std::ofstream(program()) << "#!/bin/sh\n" << body << "\n";
    ASSERT_EQ(::chmod(program().c_str(), mode), 0);
  }

  ScopedEnvironment environment_;
  std::string directory_;
  BrokerAddress address_;
};

std::string refusal_of(const BrokerAddress& address) {
  const auto started = start_broker(address);
  return started ? std::string() : std::string(started.error().what());
}

bool says(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST_F(Starter, SucceedsWhenTheBrokerSaysReady) {
  write_program("echo ready >&3");
  const auto started = start_broker(address_);
  EXPECT_TRUE(started) << started.error().what();
}

TEST_F(Starter, TellsTheSocketAndTheReadyDescriptor) {
  write_program("echo \"$@\" >" + directory_ + "/told; echo ready >&3");
  ASSERT_TRUE(start_broker(address_));
  EXPECT_EQ(told(), "--socket " + address_.path + " --ready-fd 3\n");
}

TEST_F(Starter, PassesTheFailuresTextOn) {
  write_program("echo 'the directory is full' >&3");
  const std::string text = refusal_of(address_);
  EXPECT_TRUE(says(text, "the directory is full")) << text;
  EXPECT_TRUE(says(text, program())) << text;
}

TEST_F(Starter, ASilentEndNamesTheCommandToTry) {
  write_program("exit 1");
  const std::string text = refusal_of(address_);
  EXPECT_TRUE(says(text, program() + " --socket " + address_.path)) << text;
}

TEST_F(Starter, ABrokerThatNeverReportsCostsABoundedTime) {
  environment_.set("HUFU_TIMEOUT_MS", "50");
  // Blocked until the test goes: opening a fifo for reading waits for a writer.
  const std::string fifo = directory_ + "/fifo";
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  write_program("read line <" + fifo);
  const std::string text = refusal_of(address_);
  EXPECT_TRUE(says(text, "50 ms")) << text;
  const UniqueFd writer(::open(fifo.c_str(), O_RDWR | O_CLOEXEC));
  ASSERT_EQ(::write(writer.get(), "end\n", 4), 4);
}

TEST_F(Starter, RefusesAProgramThatOthersCanWrite) {
  for (const mode_t mode : {0775U, 0757U}) {
    write_program("echo ready >&3", mode);
    const std::string text = refusal_of(address_);
    EXPECT_TRUE(says(text, program())) << text;
    EXPECT_TRUE(says(text, "chmod go-w")) << text;
  }
}

TEST_F(Starter, RefusesAProgramOfAnotherUser) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root to make a file of somebody else";
  write_program("echo ready >&3");
  ASSERT_EQ(::chown(program().c_str(), 12345, 12345), 0);
  const std::string text = refusal_of(address_);
  EXPECT_TRUE(says(text, "12345")) << text;
}

TEST_F(Starter, RefusesWhatCannotBeExecutedAndWhatIsNoFile) {
  write_program("echo ready >&3", 0644);
  EXPECT_TRUE(says(refusal_of(address_), "chmod +x"));
  environment_.set("HUFU_HUFUD", directory_);
  EXPECT_TRUE(says(refusal_of(address_), "not a file"));
}

TEST_F(Starter, RefusesARelativePath) {
  environment_.set("HUFU_HUFUD", "bin/hufud");
  const std::string text = refusal_of(address_);
  EXPECT_TRUE(says(text, "bin/hufud")) << text;
  EXPECT_TRUE(says(text, "absolute")) << text;
}

TEST_F(Starter, AMissingProgramIsNamed) {
  const std::string text = refusal_of(address_);
  EXPECT_TRUE(says(text, program())) << text;
  EXPECT_TRUE(says(text, "HUFU_HUFUD")) << text;
}

TEST_F(Starter, AFileThatIsNoProgramSaysSo) {
  std::ofstream(program()) << "not a program";
  ASSERT_EQ(::chmod(program().c_str(), 0755), 0);
  EXPECT_TRUE(says(refusal_of(address_), "exec: errno 8"));
}

TEST_F(Starter, TheBrokerInheritsNothing) {
  // Everything that a careless parent has: an open descriptor, an ignored and a blocked signal, a
  // working directory, a generous umask, a low soft limit, an environment.
  const UniqueFd open_file(::open("/dev/zero", O_RDONLY));
  const UniqueFd high(::fcntl(open_file.get(), F_DUPFD, 200));
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit low{.rlim_cur = 256, .rlim_max = before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &low), 0);
  environment_.set("SECRET_OF_THE_PROGRAM", "1");
  environment_.set("HUFU_TEST_WORD", "kept");
  ::signal(SIGUSR1, SIG_IGN);
  sigset_t blocked;
  sigset_t mask_before;
  ::sigemptyset(&blocked);
  ::sigaddset(&blocked, SIGTERM);
  ::pthread_sigmask(SIG_BLOCK, &blocked, &mask_before);

  const std::string file = directory_ + "/told";
  write_program(
      "{ echo cwd $PWD; umask; echo fds $(ls -l /proc/$$/fd | awk '{print $9 $10 $11}');"
      " ulimit -Sn; ulimit -Hn; env; grep -E 'Sig(Blk|Ign)' /proc/self/status;"
      " echo session $(cut -d' ' -f6 /proc/$$/stat); } >" +
      file + " 2>&1; echo ready >&3");
  const auto started = start_broker(address_);
  ::pthread_sigmask(SIG_SETMASK, &mask_before, nullptr);
  ::signal(SIGUSR1, SIG_DFL);
  ::setrlimit(RLIMIT_NOFILE, &before);
  ASSERT_TRUE(started) << started.error().what();

  const std::string seen = told();
  EXPECT_TRUE(says(seen, "cwd /\n")) << seen;
  EXPECT_TRUE(says(seen, "0077\n")) << seen;
  EXPECT_TRUE(says(seen, "0->/dev/null")) << seen;
  EXPECT_FALSE(says(seen, "/dev/zero")) << seen;
  EXPECT_FALSE(says(seen, "\n256\n")) << seen;
  EXPECT_FALSE(says(seen, "SECRET_OF_THE_PROGRAM")) << seen;
  EXPECT_TRUE(says(seen, "HUFU_TEST_WORD=kept")) << seen;
  EXPECT_TRUE(says(seen, "SigBlk:\t0000000000000000")) << seen;
  EXPECT_TRUE(says(seen, "SigIgn:\t0000000000000000")) << seen;
  EXPECT_FALSE(says(seen, "session " + std::to_string(::getsid(0)) + "\n")) << seen;
}

TEST_F(Starter, LeavesNoChildAndSendsNoSignal) {
  write_program("echo ready >&3");
  static volatile sig_atomic_t signals = 0;
  signals = 0;
  const auto old = ::signal(SIGCHLD, [](int) { signals = signals + 1; });
  ASSERT_TRUE(start_broker(address_));
  EXPECT_EQ(::waitpid(-1, nullptr, __WALL | WNOHANG), -1);
  EXPECT_EQ(errno, ECHILD);
  EXPECT_EQ(signals, 0);
  ::signal(SIGCHLD, old);
}

TEST_F(Starter, WorksInAProgramWithoutStandardDescriptors) {
  write_program("echo ready >&3");
  const pid_t child = ::fork();
  if (child == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (int fd = 0; fd < 16; ++fd)
      ::close(fd);
    ::_exit(start_broker(address_) ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST_F(Starter, RefusesUnderAFileSizeLimitThatItCannotRaise) {
  write_program("echo ready >&3");
  const pid_t child = ::fork();
  if (child == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    const rlimit small{.rlim_cur = 1 << 20, .rlim_max = 1 << 20};
    ::setrlimit(RLIMIT_FSIZE, &small);
    const std::string text = refusal_of(address_);
    ::_exit(says(text, "RLIMIT_FSIZE") && says(text, "1048576") ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace hufu::share
