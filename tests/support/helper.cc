#include "support/helper.h"

#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <map>

#include <gtest/gtest.h>

#include "base/result.h"

namespace hufu::test {
namespace {

constexpr std::size_t kMaxLine = 64UL * 1024;
constexpr int kChannelFd = 3;

std::map<std::string, HelperProgram::Body, std::less<>>& programs() {
  static std::map<std::string, HelperProgram::Body, std::less<>> all;
  return all;
}

bool send_line(int fd, std::string_view line) {
  ssize_t sent = 0;
  do {
    sent = ::send(fd, line.data(), line.size(), MSG_NOSIGNAL);
  } while (sent < 0 && errno == EINTR);
  return sent >= 0;
}

std::optional<std::string> receive_line(int fd) {
  std::string line(kMaxLine, '\0');
  ssize_t size = 0;
  do {
    size = ::recv(fd, line.data(), line.size(), 0);
  } while (size < 0 && errno == EINTR);
  if (size <= 0) return std::nullopt;
  line.resize(static_cast<std::size_t>(size));
  return line;
}

}  // namespace

std::optional<std::string> Channel::next() { return receive_line(fd_); }

void Channel::say(std::string_view line) {
  if (!send_line(fd_, line)) ::_exit(EXIT_FAILURE);  // The test is gone.
}

Words split(std::string_view line) {
  Words words;
  while (!line.empty()) {
    const auto space = line.find(' ');
    if (space != 0) words.emplace_back(line.substr(0, space));
    if (space == std::string_view::npos) break;
    line.remove_prefix(space + 1);
  }
  return words;
}

void serve(Channel& channel, const std::function<std::string(const Words&)>& answer) {
  while (const auto line = channel.next()) {
    try {
      channel.say(answer(split(*line)));
    } catch (const std::exception& error) {
      channel.say(fmt::format("error {}", error.what()));
    }
  }
}

HelperProgram::HelperProgram(const char* name, Body body) { programs()[name] = body; }

std::optional<int> run_as_helper(int argc, char** argv) {
  if (argc != 3 || std::strcmp(argv[1], "--helper") != 0) return std::nullopt;
  const auto found = programs().find(std::string_view(argv[2]));
  if (found == programs().end()) {
    std::fprintf(stderr, "no helper is called %s\n", argv[2]);
    return EXIT_FAILURE;
  }
  Channel channel(kChannelFd);
  found->second(channel);
  return EXIT_SUCCESS;
}

Child Helper::start(std::string_view name, const Options& options, UniqueFd& ours) {
  std::array<int, 2> ends{};
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) != 0) {
    throw Stuck(fmt::format("socketpair: {}", std::strerror(errno)));
  }
  ours.reset(ends[0]);
  const UniqueFd theirs(ends[1]);
  return Child({.command = {"/proc/self/exe", "--helper", std::string(name)},
                .environment = options.environment,
                .third = theirs.get(),
                .uid = options.uid});
}

Helper::Helper(std::string_view name, const Options& options)
    : name_(name), child_(start(name, options, socket_)) {}

Helper::~Helper() {
  if (!socket_ || child_.reaped()) return;
  socket_.reset();
  try {
    const Ending ending = child_.wait();
    EXPECT_EQ(ending, Ending::exited(0)) << "helper " << name_ << ", after `" << last_ << "`";
  } catch (const Stuck& stuck) {
    ADD_FAILURE() << "helper " << name_ << " does not end when the test hangs up: " << stuck.what();
  }
}

void Helper::tell(std::string_view line) {
  last_ = line;
  if (!send_line(socket_.get(), line)) {
    throw Stuck(fmt::format("helper {} {} before `{}`", name_, to_string(child_.wait()), line));
  }
}

std::string Helper::hear() {
  if (!wait_readable(socket_.get())) {
    throw Stuck(fmt::format("helper {} does not answer `{}` within {} s: {}", name_, last_,
                            kDeadline.count(), what_it_does(child_.pid())));
  }
  auto line = receive_line(socket_.get());
  if (!line) {
    throw Stuck(fmt::format("helper {} {} instead of answering `{}`", name_,
                            to_string(child_.wait()), last_));
  }
  return *std::move(line);
}

std::string Helper::ask(std::string_view line) {
  tell(line);
  return hear();
}

}  // namespace hufu::test
