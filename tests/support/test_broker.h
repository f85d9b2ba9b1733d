#pragma once

// TestBroker: a broker of the test's own, in a directory of its own, that no other test can see.
//
// Constructing it starts nothing: a test calls start(), or lets the first client do it as users do.
// Whoever talks to it gets its environment(), most simply by being made with helper(). Its end is
// an examination, of every test alike:
//   * left alone, the broker does not burn processor time;
//   * told to stop, it ends in time, and nobody serves the socket any more;
//   * its audit log verifies, to the last record;
//   * it did not print anything on stderr (a sanitizer's report, an assertion).
// When a test fails, the log's records are printed.
//
// hufud is started through a one-line script that keeps its stderr: a broker started on demand has
// none. Should the test be killed, a broker of its own dies with it and one started on demand
// leaves when it has been idle.

#include <optional>
#include <string>
#include <vector>

#include "audit/record.h"
#include "support/child.h"
#include "support/helper.h"

namespace hufu::test {

class TestBroker {
 public:
  struct Options {
    std::string capacity = "256M";  // Of each device.
    int devices = 2;
    int idle_ms = 10'000;
    std::string arguments;  // More of hufud's, as a shell reads them.
  };

  TestBroker() : TestBroker(Options{}) {}
  explicit TestBroker(const Options& options);
  ~TestBroker();
  TestBroker(const TestBroker&) = delete;
  TestBroker& operator=(const TestBroker&) = delete;

  const std::string& directory() const { return directory_; }
  std::string socket() const { return directory_ + "/broker.sock"; }
  std::string audit_directory() const { return directory_ + "/audit"; }
  Environment environment() const;

  // A hufud on its way: announcement() waits for "ready", or for why not.
  struct Launch {
    Child process;
    UniqueFd ready;
    std::string announcement() const;
  };
  Launch launch() const;

  void start();
  // This one is the test's broker from now on: it has announced itself.
  void adopt(Launch launched);
  // Every hufud that serves, or is about to serve, this test's socket, whoever started it.
  std::vector<pid_t> pids() const;
  // The same, once those that are leaving have left.
  std::vector<pid_t> settled_pids() const;
  pid_t pid() const;  // Of the only one.

  void stop();  // In good order.
  void kill();
  void wait_ended();  // It is expected to leave by itself.
  // Stopped, it keeps its socket and answers nobody.
  void pause() const;
  void resume() const;

  Helper helper(std::string_view name, std::optional<std::uint32_t> uid = {}) const {
    return Helper(name, {.environment = environment(), .uid = uid});
  }
  // Opens directory and socket to other users, whom a personal broker's own directory keeps out:
  // for tests of what stands behind that door.
  void open_to_other_users() const;

  std::vector<audit::Record> records() const;

 private:
  void end(int signal);
  void examine();

  Options options_;
  std::string directory_;
  std::optional<Child> child_;
  bool ever_killed_ = false;
  bool killed_last_ = false;
};

}  // namespace hufu::test
