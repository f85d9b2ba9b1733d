#include "support/child.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "os/file.h"
#include "os/process.h"
#include "support/probe.h"

#include <grp.h>

namespace hufu::test {
namespace {

std::vector<std::string> merged_environment(const Environment& extra) {
  std::vector<std::string> merged;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const std::string_view name = text.substr(0, text.find('='));
    bool replaced = false;
    for (const auto& [key, value] : extra)
      replaced = replaced || key == name;
    if (!replaced) merged.emplace_back(text);
  }
  for (const auto& [key, value] : extra)
    merged.push_back(key + "=" + value);
  return merged;
}

std::vector<char*> pointers_to(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  pointers.reserve(texts.size() + 1);
  for (std::string& text : texts)
    pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

constexpr int kThird = 3;
constexpr int kCannotRun = 127;

// Between fork and exec: system calls only.
[[noreturn]] void become(const Child::Plan& plan, pid_t parent, char* const* arguments,
                         char* const* environment) {
  // Out of the way of the numbers they are to get.
  constexpr int kHigh = 200;
  const int third = plan.third < 0 ? -1 : ::fcntl(plan.third, F_DUPFD, kHigh);
  const int errors = plan.errors < 0 ? -1 : ::fcntl(plan.errors, F_DUPFD, kHigh);
  if (errors >= 0) ::dup2(errors, STDERR_FILENO);
  if (third >= 0) ::dup2(third, kThird);
  ::syscall(SYS_close_range, third >= 0 ? kThird + 1 : kThird, ~0U, 0);
  const rlimit no_core{.rlim_cur = 0, .rlim_max = 0};
  (void)::setrlimit(RLIMIT_CORE, &no_core);
  if (plan.uid) {
    const auto id = *plan.uid;
    if (::setgroups(0, nullptr) != 0 || ::setresgid(id, id, id) != 0 ||
        ::setresuid(id, id, id) != 0) {
      ::_exit(kCannotRun);
    }
  }
  // After the change of user, which would clear it. Whoever died before this line is found out by
  // the line after it.
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(kCannotRun);
  ::execve(arguments[0], arguments, environment);
  ::_exit(kCannotRun);
}

}  // namespace

bool wait_readable(int fd, std::chrono::milliseconds deadline) {
  const auto end = std::chrono::steady_clock::now() + deadline;
  for (;;) {
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(end - std::chrono::steady_clock::now());
    if (left.count() < 0) return false;
    pollfd poller{.fd = fd, .events = POLLIN, .revents = 0};
    const int ready = ::poll(&poller, 1, static_cast<int>(left.count()));
    if (ready > 0) return true;
    if (ready < 0 && errno != EINTR) return false;
    if (ready == 0) return false;
  }
}

std::string what_it_does(pid_t pid) {
  std::string text = fmt::format("pid {}:", pid);
  for (const auto& task : entries_of(fmt::format("/proc/{}/task", pid))) {
    const std::string base = task;
    const std::string status = os::read_small_file(base + "/status");
    const auto state = status.find("State:");
    text += fmt::format(
        "\n  {} {}{} in {}\n{}", task.filename().string(), os::read_small_file(base + "/comm"),
        state == std::string::npos ? std::string("gone")
                                   : status.substr(state, status.find('\n', state) - state),
        os::read_small_file(base + "/wchan"), os::read_small_file(base + "/stack"));
  }
  return text;
}

std::string to_string(const Ending& ending) {
  return ending.by_signal ? fmt::format("killed by signal {}", ending.number)
                          : fmt::format("exited with {}", ending.number);
}

void PrintTo(const Ending& ending, std::ostream* out) { *out << to_string(ending); }

Child::Child(const Plan& plan) {
  std::vector<std::string> command = plan.command;
  std::vector<std::string> variables = merged_environment(plan.environment);
  const std::vector<char*> arguments = pointers_to(command);
  const std::vector<char*> environment = pointers_to(variables);
  const pid_t parent = ::getpid();
  pid_ = ::fork();
  if (pid_ == 0) become(plan, parent, arguments.data(), environment.data());
  if (pid_ < 0) throw Stuck(fmt::format("fork: {}", std::strerror(errno)));
  auto pidfd = os::open_pidfd(pid_);
  if (!pidfd) throw Stuck(std::string(pidfd.error().what()));
  pidfd_ = std::move(*pidfd);
}

Child::Child(Child&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)),
      pidfd_(std::move(other.pidfd_)),
      ending_(std::exchange(other.ending_, std::nullopt)) {}

Child::~Child() {
  if (pid_ < 0 || ending_) return;
  ::kill(pid_, SIGKILL);
  (void)::waitpid(pid_, nullptr, 0);
}

void Child::signal(int number) const {
  if (!ending_) ::kill(pid_, number);
}

void Child::stop() const {
  signal(SIGSTOP);
  siginfo_t info{};
  // The kernel stops it at once; nothing that it does can delay this.
  if (::waitid(P_PID, static_cast<id_t>(pid_), &info, WSTOPPED | WEXITED | WNOWAIT) != 0 ||
      info.si_code != CLD_STOPPED) {
    throw Stuck(fmt::format("pid {} did not stop: it has ended", pid_));
  }
}

Ending Child::wait() {
  if (ending_) return *ending_;
  if (!wait_readable(pidfd_.get())) {
    throw Stuck(fmt::format("still running after {} s: {}", kDeadline.count(), what_it_does(pid_)));
  }
  siginfo_t info{};
  if (::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED) != 0) {
    throw Stuck(fmt::format("waitid({}): {}", pid_, std::strerror(errno)));
  }
  ending_ =
      info.si_code == CLD_EXITED ? Ending::exited(info.si_status) : Ending::killed(info.si_status);
  return *ending_;
}

Ending Child::kill() {
  signal(SIGKILL);
  return wait();
}

}  // namespace hufu::test
