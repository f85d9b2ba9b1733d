#include "broker/committer.h"

#include <chrono>

namespace hufu::broker {

Committer::Committer(audit::Log& log) : log_(log), thread_([this] { run(); }) {}

Committer::~Committer() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_one();
  thread_.join();
}

void Committer::nudge() {
  {
    const std::lock_guard lock(mutex_);
    if (dirty_) return;  // It will commit this too.
    dirty_ = true;
  }
  wake_.notify_one();
}

void Committer::run() {
  constexpr std::chrono::milliseconds kGather{5};
  std::unique_lock lock(mutex_);
  for (;;) {
    wake_.wait(lock, [this] { return dirty_ || stopping_; });
    // Let a burst gather into one flush; a stop does not wait.
    wake_.wait_for(lock, kGather, [this] { return stopping_; });
    dirty_ = false;
    const bool last = stopping_;
    lock.unlock();
    // A failure is remembered by the log, which then refuses to append.
    (void)log_.sync();
    if (last) return;
    lock.lock();
  }
}

}  // namespace hufu::broker
