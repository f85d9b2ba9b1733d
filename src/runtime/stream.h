#pragma once

// Stream: a queue of tasks that are done one after the other, by whoever has time.
//
//   issued ─────────────────────────────────▶ tickets
//          | done | running | queued | claimed |
//   done ──────────▶                 ▲ a ticket is taken first, its task arrives later
//
// The queue is a ring of kDepth places, without a lock: a ticket is a place in it. Issuers take
// tickets and fill their places in any order; a full ring makes them wait. One at a time runs the
// tasks: who moves `state` to kRunning holds the stream, and lets go of it when the next place is
// empty. That may be a worker (for whom a stream with work is put on the workers' list), a thread
// that waits for the stream and would rather do the work than sleep, or the issuer himself, when
// the stream was idle and the task is short: then nothing is queued and nobody is woken.
//
//   kIdle ── work arrives ──▶ kQueued ── a worker or a waiter comes ──▶ kRunning ──▶ kIdle
//     └───────── a short task, done by its issuer ──────────────────────▲
//
// A HostTask is run by workers alone: it may block, and what it blocks must not be a caller who
// only wanted to wait for a while. The first failure is kept until somebody asks.
//
// Never freed, see Progress. Thread-safe.

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "base/result.h"
#include "runtime/contexts.h"
#include "runtime/progress.h"
#include "runtime/task.h"

namespace hufu::runtime {

class Deferred;
class Workers;

// Nothing: for ever.
using Deadline = std::optional<std::chrono::steady_clock::time_point>;

// May the caller do the task himself if the stream is idle?
enum class Where : bool { kQueued, kHereIfIdle };

class Stream : public Progress {
 public:
  static constexpr std::uint64_t kDepth = 1024;

  // Both outlive the stream.
  Stream(Workers& workers, Deferred& deferred) : workers_(workers), deferred_(deferred) {}
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  // Takes a ticket, then asks `make` for the task: a Result<Task>. What `make` refuses is refused.
  // Returns what wait_done() takes to wait for it: 0 when it is over already.
  template <class Make>
  Result<std::uint64_t> issue(Where where, const Make& make);

  // False when the deadline came first. Runs what it waits for, where that is the library's own.
  bool wait_done(std::uint64_t ticket, Deadline deadline);

  // The first failure since the last call; 0 for none.
  std::int32_t take_failure() { return failure_.exchange(0); }
  std::int32_t failure() const { return failure_.load(); }

  // For Workers, which has taken the stream off its list.
  void run_as_worker();

  // For Streams: where it lies in its table, for good.
  std::size_t index = 0;
  // Whose stream it is now. Atomic, because a handle that is being destroyed may be
  // looked at by somebody who is late.
  std::atomic<std::uintptr_t> handle{0};
  std::atomic<int> device{0};
  std::atomic<std::uint64_t> life{0};
  std::atomic<bool> is_default{false};
  // It has once touched another device's memory, so that device's memory waits for it too.
  std::atomic<bool> crosses{false};

  // For Workers, under its mutex.
  Stream* next_on_list = nullptr;
  bool listed = false;

 private:
  enum class State : std::uint32_t { kIdle, kQueued, kRunning };
  enum class Who : bool { kWorker, kWaiter };

  struct Place {
    // 2 * (ticket + 1) when its task is there, 1 more for a HostTask.
    std::atomic<std::uint64_t> mark{0};
    Task task;
  };
  using Ring = std::array<Place, kDepth>;

  bool claim(State from) {
    return state_.compare_exchange_strong(from, State::kRunning, std::memory_order_seq_cst);
  }
  // The rest is for who has claimed the stream, or, where it says so, for anybody.
  // `until` is a waiter's end: he runs nothing that he need not wait for.
  void run(Who who, std::uint64_t until);
  void finish(std::uint64_t ticket, std::int32_t code);
  void let_go();

  Result<void> prepare_queue();                   // Anybody.
  void publish(std::uint64_t ticket, Task task);  // The ticket's owner.
  void offer();                                   // Anybody.
  bool help(std::uint64_t until);                 // Anybody.
  // Of the place with this ticket: 0 while its task is not there.
  std::uint64_t filled(std::uint64_t ticket) const;

  Workers& workers_;
  Deferred& deferred_;
  alignas(64) std::atomic<State> state_{State::kIdle};
  std::atomic<Ring*> ring_{nullptr};
  std::atomic<std::int32_t> failure_{0};
  std::atomic<std::uint32_t> waiters_{0};
  std::mutex mutex_;  // Of changed_.
  std::condition_variable changed_;
};

template <class Make>
Result<std::uint64_t> Stream::issue(Where where, const Make& make) {
  const bool mine = where == Where::kHereIfIdle && idle() && claim(State::kIdle);
  if (!mine) {
    if (auto ready = prepare_queue(); !ready) return ready.error();
  }
  const std::uint64_t ticket = issued.fetch_add(1);
  Result<Task> task = make();
  if (mine && done.load(std::memory_order_relaxed) == ticket) {
    finish(ticket, task ? perform(*task) : 0);
    let_go();
    if (!task) return task.error();
    return std::uint64_t{0};
  }
  if (mine) let_go();  // Somebody came in between, and has prepared the queue.
  publish(ticket, task ? std::move(*task) : Task());
  if (!task) return task.error();
  return ticket + 1;
}

}  // namespace hufu::runtime
