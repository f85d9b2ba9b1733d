#pragma once

// Child: a process that a test started and answers for.
//
// It is fork and exec, never fork alone (a sanitizer's threads do not survive that); it inherits
// stdin, stdout, stderr and at most one more descriptor; it dies with the test, whatever becomes of
// the test, and is reaped. Waits are for events, each with a deadline that only a fault reaches:
// then Stuck is thrown, which ends the test and says what the process was waiting for.
//
// The test's own process must stay single-threaded while it starts children: a child is tied to the
// THREAD that forked it.

#include <signal.h>
#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <ostream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "base/unique_fd.h"

namespace hufu::test {

// How long nothing honest takes, on two busy cores and under a sanitizer.
inline constexpr std::chrono::seconds kDeadline{30};

// Ends a test: a process does not do what it should. gtest prints it and goes on with the next one.
class Stuck : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif
// How often to try what fails once in a while: less often where everything takes ten times as long.
constexpr int rounds(int usually) { return kSanitized ? usually / 10 : usually; }

// Waits until `fd` is readable or hung up. False at the deadline.
bool wait_readable(int fd, std::chrono::milliseconds deadline = kDeadline);

// What each thread of a process is doing, for messages: its state, where it sleeps in the kernel.
std::string what_it_does(pid_t pid);

using Environment = std::vector<std::pair<std::string, std::string>>;

struct Ending {
  bool by_signal = false;
  int number = 0;  // The signal, or the exit status.

  static Ending exited(int status) { return {.number = status}; }
  static Ending killed(int signal) { return {.by_signal = true, .number = signal}; }
  friend bool operator==(const Ending&, const Ending&) = default;
};
std::string to_string(const Ending& ending);
void PrintTo(const Ending& ending, std::ostream* out);

class Child {
 public:
  struct Plan {
    std::vector<std::string> command;
    Environment environment;           // On top of the test's own.
    int third = -1;                    // Arrives as descriptor 3.
    int errors = -1;                   // Arrives as descriptor 2.
    std::optional<std::uint32_t> uid;  // Run as this user, in the group of the same number.
  };

  explicit Child(const Plan& plan);
  ~Child();  // SIGKILL if it still runs; reaped in any case.
  Child(Child&& other) noexcept;
  Child& operator=(Child&&) = delete;
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  pid_t pid() const { return pid_; }
  int pidfd() const { return pidfd_.get(); }
  bool reaped() const { return ending_.has_value(); }

  void signal(int number) const;
  // SIGSTOP, and wait until it has stopped; SIGCONT.
  void stop() const;
  void go_on() const { signal(SIGCONT); }

  // Waits for its end and reaps it.
  Ending wait();
  Ending kill();

 private:
  pid_t pid_ = -1;
  UniqueFd pidfd_;
  std::optional<Ending> ending_;
};

}  // namespace hufu::test
