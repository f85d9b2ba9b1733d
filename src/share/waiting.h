#pragma once

// Waiting with an end. A broker that is stopped, swapped out or hostile must cost its client a
// bounded time and then an error, never a hang.

#include <chrono>

#include "base/result.h"

namespace hufu::share {

// HUFU_TIMEOUT_MS, or 5000 when it is unset or no number from 1 to 3600000.
int wait_limit_ms();

class Deadline {
 public:
  explicit Deadline(int ms) : end_(Clock::now() + std::chrono::milliseconds(ms)) {}

  bool passed() const { return Clock::now() >= end_; }
  int left_ms() const;  // Rounded up, so that waiting for it ends after the deadline.

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point end_;
};

// Until poll() reports `events` (or the other side's end) on the descriptor: true. At the deadline:
// false. Signals do not end it.
Result<bool> wait_for(int fd, short events, const Deadline& deadline);

}  // namespace hufu::share
