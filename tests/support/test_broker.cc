#include "support/test_broker.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

#include <gtest/gtest.h>

#include "audit/verify.h"
#include "os/process.h"
#include "os/socket.h"
#include "support/audit_reader.h"
#include "support/probe.h"

namespace hufu::test {
namespace {

std::string text_of(const std::string& path) {
  std::ifstream in(path);
  return {std::istreambuf_iterator<char>(in), {}};
}

// A loop that spins takes all the time it can get; a broker that sleeps takes none. What it still
// has to do for clients that have just gone is allowed for by the half.
void expect_idle(pid_t pid, int pidfd) {
  constexpr std::chrono::milliseconds kWindow{30};
  constexpr int kTries = 20;  // Under a sanitizer the last work can take longer than one window.
  for (int i = 0; i < kTries; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    const auto before = cpu_time_of(pid);
    if (wait_readable(pidfd, kWindow)) return;  // It has ended.
    const auto spent = cpu_time_of(pid) - before;
    if (spent < (std::chrono::steady_clock::now() - begin) / 10) return;
  }
  ADD_FAILURE() << "the broker burns processor time while nobody asks anything: "
                << what_it_does(pid);
}

}  // namespace

TestBroker::TestBroker(const Options& options) : options_(options) {
  std::string path = "/tmp/hufu-test-XXXXXX";
  if (::mkdtemp(path.data()) == nullptr) {
    throw Stuck(fmt::format("mkdtemp {}: {}", path, std::strerror(errno)));
  }
  directory_ = path;
  const std::string script = directory_ + "/hufud";
  std::ofstream(script) << "#!/bin/sh\nexec '" HUFU_TEST_HUFUD "' \"$@\" " << options.arguments
                        << " 2>>'" << directory_ << "/stderr'\n";
  ::chmod(script.c_str(), 0700);
}

TestBroker::~TestBroker() {
  try {
    examine();
  } catch (const std::exception& error) {
    ADD_FAILURE() << error.what();
  }
  if (::testing::Test::HasFailure()) {
    std::fprintf(stderr, "The log of this test's broker:\n%s%s", to_lines(records()).c_str(),
                 text_of(directory_ + "/stderr").c_str());
  }
  std::error_code ignored;
  std::filesystem::remove_all(directory_, ignored);
}

Environment TestBroker::environment() const {
  return {{"HUFU_BROKER", "unix:" + socket()},
          {"HUFU_AUDIT_DIR", audit_directory()},
          {"HUFU_HUFUD", directory_ + "/hufud"},
          {"HUFU_DEVICES", std::to_string(options_.devices)},
          {"HUFU_DEVICE_CAPACITY", options_.capacity},
          {"HUFU_IDLE_MS", std::to_string(options_.idle_ms)}};
}

TestBroker::Launch TestBroker::launch() const {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) {
    throw Stuck(fmt::format("pipe2: {}", std::strerror(errno)));
  }
  UniqueFd ours(ends[0]);
  const UniqueFd theirs(ends[1]);
  Child process({.command = {directory_ + "/hufud", "--socket", socket(), "--ready-fd", "3"},
                 .environment = environment(),
                 .third = theirs.get()});
  return {.process = std::move(process), .ready = std::move(ours)};
}

std::string TestBroker::Launch::announcement() const {
  std::string text;
  for (;;) {
    if (!wait_readable(ready.get())) {
      throw Stuck(fmt::format("hufud is not ready after {} s: {}", kDeadline.count(),
                              what_it_does(process.pid())));
    }
    std::array<char, 512> buffer{};
    const ssize_t size = ::read(ready.get(), buffer.data(), buffer.size());
    if (size <= 0) return text;
    text.append(buffer.data(), static_cast<std::size_t>(size));
  }
}

void TestBroker::start() {
  Launch fresh = launch();
  const std::string said = fresh.announcement();
  if (said != "ready\n") throw Stuck(fmt::format("hufud did not start: {}", said));
  adopt(std::move(fresh));
}

void TestBroker::adopt(Launch launched) {
  killed_last_ = false;
  child_.emplace(std::move(launched.process));
}

std::vector<pid_t> TestBroker::pids() const {
  const std::string serving = "--socket " + socket() + " ";
  std::vector<pid_t> found;
  for (const pid_t pid : all_processes()) {
    if (command_line_of(pid).find(serving) != std::string::npos) found.push_back(pid);
  }
  return found;
}

std::vector<pid_t> TestBroker::settled_pids() const {
  for (;;) {
    auto found = pids();
    if (found.size() <= 1) return found;
    // One that is leaving has let go of everything, but its process may still be seen.
    std::vector<UniqueFd> held;
    std::vector<pollfd> pollers;
    for (const pid_t pid : found) {
      auto pidfd = os::open_pidfd(pid);
      if (!pidfd) continue;
      pollers.push_back({.fd = pidfd->get(), .events = POLLIN, .revents = 0});
      held.push_back(std::move(*pidfd));
    }
    if (pollers.size() < found.size()) continue;
    const auto deadline = std::chrono::milliseconds(kDeadline);
    if (::poll(pollers.data(), pollers.size(), static_cast<int>(deadline.count())) <= 0) {
      return found;
    }
  }
}

pid_t TestBroker::pid() const {
  const auto found = settled_pids();
  if (found.size() != 1) {
    throw Stuck(fmt::format("{} brokers serve {}, expected 1", found.size(), socket()));
  }
  return found.front();
}

void TestBroker::end(int signal) {
  const pid_t serving = pid();
  if (child_ && child_->pid() == serving) {
    child_->signal(signal);
    const Ending ending = child_->wait();
    EXPECT_EQ(ending, signal == SIGKILL ? Ending::killed(SIGKILL) : Ending::exited(0));
    return;
  }
  const auto pidfd = os::open_pidfd(serving);
  if (!pidfd) throw Stuck(std::string(pidfd.error().what()));
  (void)::syscall(SYS_pidfd_send_signal, pidfd->get(), signal, nullptr, 0);
  if (!wait_readable(pidfd->get())) {
    throw Stuck(
        fmt::format("hufud got signal {} and does not end: {}", signal, what_it_does(serving)));
  }
}

void TestBroker::stop() {
  end(SIGTERM);
  killed_last_ = false;
}

void TestBroker::kill() {
  end(SIGKILL);
  ever_killed_ = killed_last_ = true;
}

void TestBroker::wait_ended() {
  for (const pid_t serving : pids()) {
    const auto pidfd = os::open_pidfd(serving);
    if (pidfd && !wait_readable(pidfd->get())) {
      throw Stuck(fmt::format("hufud does not leave by itself: {}", what_it_does(serving)));
    }
  }
}

void TestBroker::pause() const {
  const pid_t serving = pid();
  ::kill(serving, SIGSTOP);
  wait_stopped(serving);
}

void TestBroker::resume() const { ::kill(pid(), SIGCONT); }

void TestBroker::open_to_other_users() const {
  constexpr mode_t kTraverse = 0711;
  constexpr mode_t kConnect = 0666;
  ::chmod(directory_.c_str(), kTraverse);
  ::chmod(socket().c_str(), kConnect);
}

std::vector<audit::Record> TestBroker::records() const { return records_in(audit_directory()); }

void TestBroker::examine() {
  const auto serving = settled_pids();
  EXPECT_LE(serving.size(), 1U) << "more than one broker serves one socket";
  if (serving.size() == 1) {
    if (const auto pidfd = os::open_pidfd(serving.front())) {
      expect_idle(serving.front(), pidfd->get());
    }
    try {
      if (!pids().empty()) stop();
    } catch (const Stuck&) {
      if (!pids().empty()) throw;  // Else it has left by itself while we looked.
    }
  }
  EXPECT_TRUE(pids().empty()) << "a broker outlives its test";
  const auto connected = os::connect_to(socket());
  EXPECT_FALSE(connected) << "somebody still serves " << socket();

  if (std::filesystem::exists(audit_directory())) {
    const auto verdict = audit::verify_directory(audit_directory());
    const bool fine = verdict.status == audit::Status::kOk ||
                      (ever_killed_ && verdict.status == audit::Status::kRecoveredTail) ||
                      (killed_last_ && verdict.status == audit::Status::kEndsEarly);
    EXPECT_TRUE(fine) << "the audit log does not verify: " << verdict.what;
  }
  const std::string printed = text_of(directory_ + "/stderr");
  EXPECT_TRUE(printed.empty()) << "hufud printed:\n" << printed;
}

}  // namespace hufu::test
