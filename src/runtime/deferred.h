#pragma once

// Deferred: ends that wait for work.
//
// A program may free memory, or close an import, while work that it queued still reads it. From
// then on the address leads nowhere: no call takes it. But what is mapped there stays until every
// line of work is over that could have been told of it: each is stamped with what it had been told
// to do at that moment (see Progress). So a stream that stands still delays what ended while it
// stood, and nothing else.
//
//   retire ──▶ nothing under way: ended, here and now
//      └─────▶ pending ── last stamp passed ──▶ ripe ──▶ ended, by whoever passed it and has
//                                                        let go of the stream
//
// What is retired is an object whose destructor is the end. What is pending when the process ends,
// ends with it. Thread-safe.

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <unordered_map>
#include <utility>

#include "runtime/progress.h"
#include "runtime/stream.h"

namespace hufu::runtime {

class Deferred {
 public:
  Deferred() = default;
  ~Deferred();  // Ends what is pending: for tests, whose work is over.
  Deferred(const Deferred&) = delete;
  Deferred& operator=(const Deferred&) = delete;

  // `what` ends when all `stamps` have passed. Its address is in no registry any more: the stamps
  // were taken after that.
  template <class Owner>
  void end_after(std::span<const Stamp> stamps, Owner what) {
    if (stamps.empty()) return;  // ~Owner
    add(stamps, std::make_unique<Holder<Owner>>(std::move(what)));
  }

  // `line` has done what somebody awaited.
  void passed(Progress& line);

  // Ends what is ripe, on this thread. To be called without a claim on a stream or a lock.
  void settle() {
    if (ripe_count_.load() != 0) settle_ripe();
  }

  // Waits until nothing is ripe that has not ended: after one has waited for the work.
  bool flush(Deadline deadline);

  std::size_t pending() const;

 private:
  struct Retired {
    Retired() = default;
    virtual ~Retired() = default;
    Retired(const Retired&) = delete;
    Retired& operator=(const Retired&) = delete;
  };
  template <class Owner>
  struct Holder final : Retired {
    explicit Holder(Owner&& what) : owner(std::move(what)) {}
    Owner owner;
  };
  struct Entry {
    std::unique_ptr<Retired> what;
    std::size_t stamps_left = 0;
  };
  using Entries = std::list<Entry>;
  using Waiting = std::multimap<std::uint64_t, Entries::iterator>;  // By ticket.

  void add(std::span<const Stamp> stamps, std::unique_ptr<Retired> what);
  void pass(Progress& line, Waiting& waiting);
  void settle_ripe();

  mutable std::mutex mutex_;
  std::condition_variable ended_;
  Entries pending_;
  Entries ripe_;
  std::size_t ending_ = 0;  // Taken from ripe_, not yet ended.
  std::atomic<std::size_t> ripe_count_{0};
  std::unordered_map<Progress*, Waiting> lines_;
};

}  // namespace hufu::runtime
