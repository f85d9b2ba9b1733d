#pragma once

// Workers: the threads that run the streams' tasks.
//
// There are none before the first task is queued, and as many at work as there are processors,
// however many streams there are. A task may stand still (a program's own function can wait for
// ever): so when there is work that nobody has taken for kStandstill, one more thread takes it. Who
// notices that is a thread that has nothing else to do; when all are at work, one is made. So there
// are as many threads as processors, one, and one for each task that stands still; those that are
// not needed any more leave.
//
// Thread-safe. A Workers is destroyed by tests alone; it waits for its threads.

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>

#include "base/result.h"
#include "runtime/stream.h"

namespace hufu::runtime {

class Workers {
 public:
  Workers();
  ~Workers();
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;

  // So that work which is queued will be done.
  Result<void> ensure_one();

  // A stream that was claimed for the list: kIdle became kQueued.
  void add(Stream& stream);

  // Is a stream waiting for a worker?
  bool wanted() const { return waiting_.load(std::memory_order_relaxed) != 0; }

  std::size_t threads() const;

 private:
  static constexpr std::chrono::milliseconds kStandstill{5};
  static constexpr std::chrono::seconds kPatience{2};  // Of a thread without work.

  void work();
  // Null when the thread is to leave.
  Stream* take(std::unique_lock<std::mutex>& lock);
  Stream* first(std::unique_lock<std::mutex>& lock);
  Result<void> start(std::unique_lock<std::mutex>& lock);
  void linger() const;

  const std::size_t most_at_work_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  Stream* first_ = nullptr;  // The list, first come first served.
  Stream* last_ = nullptr;
  std::size_t threads_ = 0;
  std::size_t at_work_ = 0;
  std::size_t resting_ = 0;  // In changed_.
  std::uint64_t taken_ = 0;
  bool watched_ = false;  // One of the resting looks out for a standstill.
  bool stopping_ = false;
  std::atomic<std::size_t> waiting_{0};  // Length of the list.
  mutable std::atomic<bool> lingering_{false};
};

}  // namespace hufu::runtime
