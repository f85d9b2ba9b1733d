#include "share/starter.h"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/auxv.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <limits>
#include <string_view>
#include <vector>

#include "base/unique_fd.h"
#include "os/file.h"
#include "share/waiting.h"

#include <dlfcn.h>

namespace hufu::share {
namespace {

constexpr int kReadyFd = 3;
constexpr std::string_view kReady = "ready\n";

// --- The program ---------------------------------------------------------------------------------

// The directory of the file that this function was loaded from.
std::string own_directory() {
  Dl_info info{};
  std::string path;
  if (::dladdr(reinterpret_cast<const void*>(&own_directory), &info) != 0 &&
      info.dli_fname != nullptr) {
    path = info.dli_fname;
  }
  // For the main program dladdr knows argv[0] only, which may be a bare word.
  if (!path.starts_with('/')) path = "/proc/self/exe";
  char* resolved = ::realpath(path.c_str(), nullptr);
  if (resolved == nullptr) return {};
  path = resolved;
  ::free(resolved);  // NOLINT(cppcoreguidelines-no-malloc): realpath's.
  return path.substr(0, path.rfind('/'));
}

std::vector<std::string> candidates() {
  const std::string asked = os::env("HUFU_HUFUD");
  if (!asked.empty()) return {asked};  // Who names one wants that one or to hear why not.
  std::vector<std::string> paths;
  const std::string directory = own_directory();
  if (!directory.empty()) paths.push_back(directory + "/../bin/hufud");
#ifdef HUFU_INSTALL_PREFIX
  paths.emplace_back(HUFU_INSTALL_PREFIX "/bin/hufud");
#endif
  return paths;
}

Result<std::string> checked(const std::string& path, const struct stat& status) {
  const auto refuse = [&](const char* what, std::string_view remedy) {
    return fail(Errc::kUnavailable, Reason::kBrokerUntrusted,
                "{} is not run as the broker: it {} (owner uid {}, mode {:o}); {}", path, what,
                status.st_uid, status.st_mode & 07777U, remedy);
  };
  if (!S_ISREG(status.st_mode)) return refuse("is not a file", "set HUFU_HUFUD to the program");
  if (status.st_uid != 0 && status.st_uid != ::geteuid()) {
    return refuse("belongs to another user", "use one of root or your own");
  }
  if ((status.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
    return refuse("can be written by others", fmt::format("chmod go-w {}", path));
  }
  if (::access(path.c_str(), X_OK) != 0) {
    return refuse("cannot be executed", fmt::format("chmod +x {}", path));
  }
  return path;
}

// --- What it is given ----------------------------------------------------------------------------

// HUFU_* is meant for it; the XDG variables and HOME say where its configuration and its audit log
// lie, which must be where the user's tools look for them. Everything else is this program's own
// affair. Under AT_SECURE the variables are the caller's and not to be trusted: none.
std::vector<char*> inherited_environment() {
  static constexpr std::array<std::string_view, 5> kWanted = {
      "HUFU_", "HOME=", "XDG_STATE_HOME=", "XDG_CONFIG_HOME=", "XDG_RUNTIME_DIR="};
  std::vector<char*> variables;
  if (::getauxval(AT_SECURE) == 0 && environ != nullptr) {
    for (char** variable = environ; *variable != nullptr; ++variable) {
      for (const auto wanted : kWanted) {
        if (std::string_view(*variable).starts_with(wanted)) variables.push_back(*variable);
      }
    }
  }
  variables.push_back(nullptr);
  return variables;
}

// A low file size limit would kill the broker with SIGXFSZ when it sizes a block.
Result<void> check_file_size_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_max != RLIM_INFINITY) {
    return fail(Errc::kUnavailable, Reason::kSizeTooLarge,
                "a broker started here could make no block over {} bytes, because the hard file "
                "size limit (RLIMIT_FSIZE) is finite; start it elsewhere (`hufud --socket PATH`), "
                "or raise the limit (`ulimit -H -f unlimited`, as root)",
                limit.rlim_max);
  }
  return {};
}

// --- Between clone and exec ----------------------------------------------------------------------
// Other threads do not exist here, but locks they held do: nothing below may allocate, format or
// call anything that is not async-signal-safe.

struct Launch {
  const char* program;
  char* const* arguments;
  char* const* environment;
  int ready;  // The pipe's end and /dev/null, both above kReadyFd.
  int null;
};

[[noreturn]] void give_up(int ready, std::string_view step, int sys_errno) {
  std::array<char, 128> text{};
  std::size_t size = 0;
  for (const char c : step)
    text[size++] = c;
  for (const char c : std::string_view(": errno "))
    text[size++] = c;
  std::array<char, 12> digits{};
  std::size_t count = 0;
  for (int rest = sys_errno; rest > 0; rest /= 10) {
    digits[count++] = static_cast<char>('0' + rest % 10);
  }
  while (count > 0)
    text[size++] = digits[--count];
  text[size++] = '\n';
  (void)!::write(ready, text.data(), size);
  ::_exit(1);
}

// Soft limits up to the hard ones. Not CORE (a broker's memory is not for dumps) nor STACK (an
// unlimited one changes the address space's layout).
void raise_limits() {
  for (const auto resource : {RLIMIT_FSIZE, RLIMIT_NOFILE, RLIMIT_AS, RLIMIT_DATA, RLIMIT_MEMLOCK,
                              RLIMIT_CPU, RLIMIT_NPROC}) {
    rlimit limit{};
    if (::getrlimit(resource, &limit) != 0) continue;
    limit.rlim_cur = limit.rlim_max;
    (void)::setrlimit(resource, &limit);
  }
}

[[noreturn]] void become_broker(const Launch& launch) {
  if (::chdir("/") != 0) give_up(launch.ready, "chdir /", errno);
  ::umask(S_IRWXG | S_IRWXO);
  for (int standard = 0; standard < kReadyFd; ++standard) {
    if (::dup2(launch.null, standard) < 0) give_up(launch.ready, "dup2(/dev/null)", errno);
  }
  if (::dup2(launch.ready, kReadyFd) < 0) give_up(launch.ready, "dup2(ready pipe)", errno);
  if (::syscall(SYS_close_range, kReadyFd + 1, std::numeric_limits<unsigned>::max(), 0) != 0) {
    give_up(kReadyFd, "close_range", errno);
  }
  for (int number = 1; number < NSIG; ++number)
    (void)::signal(number, SIG_DFL);
  raise_limits();
  sigset_t none;
  ::sigemptyset(&none);
  (void)::sigprocmask(SIG_SETMASK, &none, nullptr);  // NOLINT(concurrency-mt-unsafe): one thread.
  ::execve(launch.program, launch.arguments, launch.environment);
  give_up(kReadyFd, "exec", errno);
}

// A bare clone: no atfork handler of the program runs, and no SIGCHLD goes to it.
pid_t clone_quietly() { return static_cast<pid_t>(::syscall(SYS_clone, 0, 0, 0, 0, 0)); }

[[noreturn]] void leave_family(const Launch& launch) {
  if (::setsid() < 0) give_up(launch.ready, "setsid", errno);
  const pid_t broker = clone_quietly();
  if (broker == 0) become_broker(launch);
  if (broker < 0) give_up(launch.ready, "second clone", errno);
  ::_exit(0);
}

Result<void> launch_detached(const Launch& launch) {
  // Handlers of the program must not run in the child.
  sigset_t all;
  sigset_t before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  const pid_t child = clone_quietly();
  if (child == 0) leave_family(launch);
  const int clone_errno = errno;
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (child < 0) return fail_errno("clone for hufud", clone_errno);
  while (::waitpid(child, nullptr, __WALL) < 0 && errno == EINTR) {
  }
  return {};
}

// --- What it says --------------------------------------------------------------------------------

Result<void> wait_until_ready(int pipe, const std::string& program, const std::string& command) {
  const int timeout_ms = wait_limit_ms();
  const Deadline deadline(timeout_ms);
  std::string said;
  while (true) {
    const auto readable = wait_for(pipe, POLLIN, deadline);
    if (!readable) return readable.error();
    if (!*readable) break;
    std::array<char, 512> buffer{};
    const ssize_t size = ::read(pipe, buffer.data(), buffer.size());
    if (size < 0 && errno == EINTR) continue;
    if (size <= 0) break;
    said.append(buffer.data(), static_cast<std::size_t>(size));
    if (said.starts_with(kReady)) return {};
  }
  while (!said.empty() && said.back() == '\n')
    said.pop_back();
  if (!said.empty()) {
    return fail(Errc::kUnavailable, Reason::kBrokerGone, "{} could not start: {}", program, said);
  }
  if (deadline.passed()) {
    return fail(Errc::kUnavailable, Reason::kBrokerSilent,
                "{} did not report within {} ms; run `{}` by hand to see why, or raise "
                "HUFU_TIMEOUT_MS",
                program, timeout_ms, command);
  }
  return fail(Errc::kUnavailable, Reason::kBrokerGone,
              "{} ended without saying why; run `{}` by hand to see", program, command);
}

Result<UniqueFd> above_ready_fd(UniqueFd fd) {
  UniqueFd moved(::fcntl(fd.get(), F_DUPFD_CLOEXEC, kReadyFd + 1));
  if (!moved) return fail_errno("fcntl(F_DUPFD_CLOEXEC)", errno);
  return moved;
}

}  // namespace

Result<std::string> find_broker_program() {
  std::string tried;
  for (const std::string& path : candidates()) {
    if (!path.starts_with('/')) {
      // hufud is started in /, where a relative path would be another file.
      return fail(Errc::kUnavailable, Reason::kBrokerUntrusted,
                  "HUFU_HUFUD is \"{:.120}\", which is not an absolute path; set it to one, as in "
                  "HUFU_HUFUD=$PWD/build/dev/bin/hufud",
                  path);
    }
    struct stat status {};
    if (::stat(path.c_str(), &status) == 0) return checked(path, status);
    tried += (tried.empty() ? "" : ", ") + path;
  }
  return fail(Errc::kUnavailable, Reason::kBrokerGone,
              "the broker's program is not at {}; install hufud there, or set HUFU_HUFUD to it",
              tried);
}

Result<void> start_broker(const BrokerAddress& address) {
  const auto program = find_broker_program();
  if (!program) return program.error();
  if (auto sized = check_file_size_limit(); !sized) return sized;

  int ends[2] = {-1, -1};
  if (::pipe2(ends, O_CLOEXEC) != 0) return fail_errno("pipe for hufud", errno);
  const UniqueFd listening(ends[0]);
  auto telling = above_ready_fd(UniqueFd(ends[1]));
  if (!telling) return telling.error();
  UniqueFd opened(::open("/dev/null", O_RDWR | O_CLOEXEC));
  if (!opened) return fail_errno("open /dev/null", errno);
  const auto null = above_ready_fd(std::move(opened));
  if (!null) return null.error();

  std::array<std::string, 5> words = {"hufud", "--socket", address.path, "--ready-fd", "3"};
  std::array<char*, words.size() + 1> arguments{};
  for (std::size_t i = 0; i < words.size(); ++i)
    arguments[i] = words[i].data();
  const std::vector<char*> environment = inherited_environment();
  const Launch launch{.program = program->c_str(),
                      .arguments = arguments.data(),
                      .environment = environment.data(),
                      .ready = telling->get(),
                      .null = null->get()};
  if (auto launched = launch_detached(launch); !launched) return launched;
  telling->reset();  // Or the pipe would never end.
  return wait_until_ready(listening.get(), *program,
                          fmt::format("{} --socket {}", *program, address.path));
}

}  // namespace hufu::share
