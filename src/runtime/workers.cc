#include "runtime/workers.h"

#include <algorithm>
#include <thread>

#include "os/thread.h"
#include "runtime/spin.h"

namespace hufu::runtime {

// Two at least, so that one processor is not kept by one long copy.
Workers::Workers() : most_at_work_(std::max(2U, std::thread::hardware_concurrency())) {}

Workers::~Workers() {
  std::unique_lock lock(mutex_);
  stopping_ = true;
  changed_.notify_all();
  changed_.wait(lock, [&] { return threads_ == 0; });
}

std::size_t Workers::threads() const {
  const std::lock_guard lock(mutex_);
  return threads_;
}

Result<void> Workers::ensure_one() {
  std::unique_lock lock(mutex_);
  if (threads_ != 0) return {};
  return start(lock);
}

Result<void> Workers::start(std::unique_lock<std::mutex>& /*held*/) {
  auto thread = os::start_thread("hufu-stream", [this] { work(); });
  if (!thread) return thread.error();
  thread->detach();
  ++threads_;
  return {};
}

void Workers::add(Stream& stream) {
  std::unique_lock lock(mutex_);
  if (stream.listed) return;  // From before, when a waiter was faster; it stands for this too.
  stream.listed = true;
  stream.next_on_list = nullptr;
  (last_ == nullptr ? first_ : last_->next_on_list) = &stream;
  last_ = &stream;
  waiting_.fetch_add(1, std::memory_order_relaxed);
  if (resting_ != 0) {
    if (!lingering_.load()) changed_.notify_one();
  } else if (at_work_ == threads_ && !lingering_.load()) {
    // Should that fail, those at work come to it later.
    static_cast<void>(start(lock).has_value());
  }
}

Stream* Workers::first(std::unique_lock<std::mutex>& lock) {
  Stream* stream = first_;
  first_ = stream->next_on_list;
  if (first_ == nullptr) last_ = nullptr;
  stream->listed = false;
  waiting_.fetch_sub(1, std::memory_order_relaxed);
  ++taken_;
  ++at_work_;
  if (first_ != nullptr) {  // Somebody must see to the next one.
    if (resting_ != 0) {
      changed_.notify_one();
    } else if (at_work_ == threads_) {
      static_cast<void>(start(lock).has_value());
    }
  }
  return stream;
}

Stream* Workers::take(std::unique_lock<std::mutex>& lock) {
  const auto rest = [&](std::chrono::steady_clock::duration limit) {
    ++resting_;
    const bool woken = changed_.wait_for(lock, limit) == std::cv_status::no_timeout;
    --resting_;
    return woken;
  };
  while (!stopping_) {
    if (first_ != nullptr && at_work_ < most_at_work_) return first(lock);
    if (first_ != nullptr && !watched_) {
      const std::uint64_t before = taken_;
      watched_ = true;
      rest(kStandstill);
      watched_ = false;
      if (first_ != nullptr && taken_ == before) return first(lock);
      continue;
    }
    const bool surplus = resting_ >= most_at_work_;
    if (!rest(kPatience) && surplus && first_ == nullptr) return nullptr;
  }
  return nullptr;
}

void Workers::linger() const {
  if (lingering_.exchange(true)) return;  // One is enough.
  spin_until([&] { return wanted(); });
  lingering_.store(false);
}

void Workers::work() {
  std::unique_lock lock(mutex_);
  while (Stream* stream = take(lock)) {
    lock.unlock();
    stream->run_as_worker();
    linger();
    lock.lock();
    --at_work_;
  }
  --threads_;
  if (threads_ == 0) changed_.notify_all();
}

}  // namespace hufu::runtime
