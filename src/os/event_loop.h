#pragma once

// What a single-threaded server waits for: descriptors and signals, level-triggered.

#include <sys/epoll.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <optional>
#include <span>

#include "base/result.h"
#include "base/unique_fd.h"

namespace hufu::os {

class EventLoop {
 public:
  struct Event {
    std::uint64_t token;
    bool readable;  // There is something to read, be it the end.
    bool broken;    // Error or hang-up without anything left to read.
  };

  static Result<EventLoop> make();

  Result<void> watch(int fd, std::uint64_t token);
  void forget(int fd);

  // Until something happens or `timeout` has passed; no timeout waits for ever. The span is valid
  // until the next call.
  Result<std::span<const Event>> wait(std::optional<std::chrono::milliseconds> timeout);

 private:
  static constexpr std::size_t kBatch = 64;
  explicit EventLoop(UniqueFd epoll) : epoll_(std::move(epoll)) {}

  UniqueFd epoll_;
  std::array<epoll_event, kBatch> raw_{};
  std::array<Event, kBatch> events_{};
};

// Blocks SIGTERM and SIGINT for this thread and those it starts, and ignores SIGPIPE and SIGIO (the
// default action of a broken lease would end the process). Readable when one of the two arrives.
Result<UniqueFd> termination_signals();

}  // namespace hufu::os
