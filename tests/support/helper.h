#pragma once

// Helper: another process of a test, run by remote control.
//
//   test                                   helper (this same program, `--helper NAME`)
//   Helper peer("wire", ...);       ──▶    the function registered as NAME runs
//   peer.ask("mint 4096")           ──▶    channel.next() == "mint 4096"
//              "ok 17"              ◀──    channel.say("ok 17")
//   ~Helper hangs up                ──▶    channel.next() == nothing; it returns, and exits with 0
//
// One line is one packet, so that neither side ever waits for half of one. A helper that ends, or
// does not answer, throws Stuck in the test.

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/unique_fd.h"
#include "support/child.h"

namespace hufu::test {

// The helper's end.
class Channel {
 public:
  explicit Channel(int fd) : fd_(fd) {}
  // The next line from the test; nothing when it has hung up.
  std::optional<std::string> next();
  void say(std::string_view line);

 private:
  int fd_;
};

// Answers every line with what `answer` makes of its words, until the test hangs up. An exception
// is answered as "error ...".
using Words = std::vector<std::string>;
void serve(Channel& channel, const std::function<std::string(const Words&)>& answer);
Words split(std::string_view line);

// A global of this type makes a helper: `const HelperProgram kPeer("wire", [](Channel&) {...});`
class HelperProgram {
 public:
  using Body = void (*)(Channel&);
  HelperProgram(const char* name, Body body);
};

// For main(): runs the helper that the command line names; nothing when it names none.
std::optional<int> run_as_helper(int argc, char** argv);

// The test's end.
class Helper {
 public:
  struct Options {
    Environment environment;
    std::optional<std::uint32_t> uid;
  };

  explicit Helper(std::string_view name, const Options& options = {});
  ~Helper();  // Hangs up; a helper that does not then exit with 0 fails the test.
  Helper(Helper&&) noexcept = default;

  std::string ask(std::string_view line);
  // The two halves of ask(), for a helper that is to be caught between them.
  void tell(std::string_view line);
  std::string hear();

  pid_t pid() const { return child_.pid(); }
  int pidfd() const { return child_.pidfd(); }
  void stop() const { child_.stop(); }
  void go_on() const { child_.go_on(); }
  Ending kill() { return child_.kill(); }
  // It is expected to end by itself.
  Ending wait() { return child_.wait(); }

 private:
  static Child start(std::string_view name, const Options& options, UniqueFd& ours);

  std::string name_;
  std::string last_;  // The line it is answering, for messages.
  UniqueFd socket_;   // Before child_, which is started with its other end.
  Child child_;
};

}  // namespace hufu::test
