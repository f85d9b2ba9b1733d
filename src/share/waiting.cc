#include "share/waiting.h"

#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <string>

#include "os/file.h"

namespace hufu::share {

int wait_limit_ms() {
  constexpr int kUsual = 5000;
  constexpr int kMost = 3'600'000;
  const std::string text = os::env("HUFU_TIMEOUT_MS");
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool whole = error == std::errc() && end == text.data() + text.size();
  return whole && value >= 1 && value <= kMost ? value : kUsual;
}

int Deadline::left_ms() const {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(end_ - Clock::now()).count();
  return static_cast<int>(std::max<decltype(left)>(left, 0));
}

Result<bool> wait_for(int fd, short events, const Deadline& deadline) {
  pollfd poller{.fd = fd, .events = events, .revents = 0};
  while (true) {
    const int ready = ::poll(&poller, 1, deadline.left_ms());
    if (ready > 0) return true;
    if (ready == 0 && deadline.passed()) return false;
    if (ready < 0 && errno != EINTR) return fail_errno("poll", errno);
  }
}

}  // namespace hufu::share
