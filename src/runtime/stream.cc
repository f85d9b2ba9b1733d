#include "runtime/stream.h"

#include <algorithm>
#include <new>
#include <thread>
#include <variant>

#include "runtime/deferred.h"
#include "runtime/spin.h"
#include "runtime/workers.h"

namespace hufu::runtime {
namespace {

// After so many tasks a worker looks whether other streams are waiting for him.
constexpr std::uint64_t kTurn = 32;

}  // namespace

Stream::~Stream() { delete ring_.load(); }

Result<void> Stream::prepare_queue() {
  if (ring_.load() != nullptr) return {};
  if (auto somebody = workers_.ensure_one(); !somebody) return somebody;
  auto made = std::make_unique<Ring>();
  Ring* none = nullptr;
  if (ring_.compare_exchange_strong(none, made.get())) static_cast<void>(made.release());
  return {};
}

std::uint64_t Stream::filled(std::uint64_t ticket) const {
  const Ring* ring = ring_.load();
  if (ring == nullptr) return 0;
  const std::uint64_t mark = (*ring)[ticket % kDepth].mark.load();
  return mark >> 1U == ticket + 1 ? mark : 0;
}

void Stream::publish(std::uint64_t ticket, Task task) {
  if (ticket >= kDepth) wait_done(ticket - kDepth + 1, {});  // Whoever had this place before.
  Place& place = (*ring_.load())[ticket % kDepth];
  const std::uint64_t blocks = std::holds_alternative<HostTask>(task) ? 1 : 0;
  place.task = std::move(task);
  place.mark.store((ticket + 1) << 1U | blocks);
  offer();
}

void Stream::offer() {
  if (filled(done.load()) == 0) return;
  State idle = State::kIdle;
  if (state_.compare_exchange_strong(idle, State::kQueued)) workers_.add(*this);
}

void Stream::let_go() {
  state_.store(State::kIdle);
  // Who published in the meantime saw a stream that somebody ran, and left it to him.
  offer();
  deferred_.settle();
}

void Stream::finish(std::uint64_t ticket, std::int32_t code) {
  std::int32_t none = 0;
  if (code != 0) failure_.compare_exchange_strong(none, code);
  done.store(ticket + 1);
  if (waiters_.load() != 0) {
    { const std::lock_guard lock(mutex_); }
    changed_.notify_all();
  }
  if (ticket + 1 >= awaited.load()) deferred_.passed(*this);
}

void Stream::run(Who who, std::uint64_t until) {
  std::uint64_t ticket = done.load(std::memory_order_relaxed);
  for (std::uint64_t turn = 1;; ++ticket, ++turn) {
    const std::uint64_t mark = filled(ticket);
    if (mark == 0) return;
    if (who == Who::kWaiter && ((mark & 1U) != 0 || ticket >= until)) return;
    Task& task = (*ring_.load())[ticket % kDepth].task;
    const std::int32_t code = perform(task);
    task = Nothing{};
    finish(ticket, code);
    if (who == Who::kWorker && turn % kTurn == 0 && workers_.wanted()) return;
  }
}

void Stream::run_as_worker() {
  if (!claim(State::kQueued)) return;  // A waiter was faster.
  run(Who::kWorker, 0);
  let_go();
}

bool Stream::help(std::uint64_t until) {
  const std::uint64_t mark = filled(done.load());
  if (mark == 0 || (mark & 1U) != 0 || !claim(State::kQueued)) return false;
  run(Who::kWaiter, until);
  let_go();
  return true;
}

bool Stream::wait_done(std::uint64_t ticket, Deadline deadline) {
  const auto over = [&] { return done.load() >= ticket; };
  while (!over()) {
    if (help(ticket)) continue;
    if (spin_until(over)) return true;
    waiters_.fetch_add(1);
    std::unique_lock lock(mutex_);
    bool in_time = true;
    if (deadline) {
      in_time = changed_.wait_until(lock, *deadline, over);
    } else {
      changed_.wait(lock, over);
    }
    waiters_.fetch_sub(1);
    if (!in_time) return false;
  }
  return true;
}

}  // namespace hufu::runtime
