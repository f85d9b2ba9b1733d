#pragma once

// For tests: a task that stands still until it is told to go on, and says when it has got there.

#include <condition_variable>
#include <cstdint>
#include <mutex>

#include "runtime/task.h"

namespace hufu::runtime {

class Gate {
 public:
  // May be queued any number of times; `code` is what it then fails with.
  HostTask task() { return {.run = &Gate::stand, .argument = this}; }

  void open(std::int32_t code = 0) {
    const std::lock_guard lock(mutex_);
    open_ = true;
    code_ = code;
    changed_.notify_all();
  }
  // Until `count` tasks have come here.
  void wait_reached(int count = 1) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return reached_ >= count; });
  }

 private:
  static std::int32_t stand(void* self) {
    auto* gate = static_cast<Gate*>(self);
    std::unique_lock lock(gate->mutex_);
    ++gate->reached_;
    gate->changed_.notify_all();
    gate->changed_.wait(lock, [&] { return gate->open_; });
    return gate->code_;
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  int reached_ = 0;
  bool open_ = false;
  std::int32_t code_ = 0;
};

}  // namespace hufu::runtime
