#include "runtime/deferred.h"

namespace hufu::runtime {

Deferred::~Deferred() = default;

void Deferred::add(std::span<const Stamp> stamps, std::unique_ptr<Retired> what) {
  {
    const std::lock_guard lock(mutex_);
    const auto entry = pending_.insert(
        pending_.end(), Entry{.what = std::move(what), .stamps_left = stamps.size()});
    for (const Stamp& stamp : stamps) {
      Waiting& waiting = lines_[stamp.line];
      waiting.emplace(stamp.ticket, entry);
      pass(*stamp.line, waiting);
    }
  }
  settle();
}

void Deferred::pass(Progress& line, Waiting& waiting) {
  while (true) {
    const std::uint64_t next = waiting.empty() ? Progress::kNobody : waiting.begin()->first;
    line.awaited.store(next);
    // Looked at after it was said what is awaited: who has done it before, did not know.
    if (line.done.load() < next) return;
    const auto entry = waiting.begin()->second;
    waiting.erase(waiting.begin());
    if (--entry->stamps_left != 0) continue;
    ripe_.splice(ripe_.end(), pending_, entry);
    ripe_count_.fetch_add(1);
  }
}

void Deferred::passed(Progress& line) {
  const std::lock_guard lock(mutex_);
  pass(line, lines_[&line]);
}

void Deferred::settle_ripe() {
  Entries ending;
  {
    const std::lock_guard lock(mutex_);
    ending.swap(ripe_);
    ending_ += ending.size();
    ripe_count_.store(0);
  }
  const std::size_t count = ending.size();
  ending.clear();
  const std::lock_guard lock(mutex_);
  ending_ -= count;
  ended_.notify_all();
}

bool Deferred::flush(Deadline deadline) {
  {
    // Who has done the work may not have come to say so yet.
    const std::lock_guard lock(mutex_);
    for (auto& [line, waiting] : lines_)
      pass(*line, waiting);
  }
  settle();
  std::unique_lock lock(mutex_);
  const auto over = [&] { return ripe_.empty() && ending_ == 0; };
  if (deadline) return ended_.wait_until(lock, *deadline, over);
  ended_.wait(lock, over);
  return true;
}

std::size_t Deferred::pending() const {
  const std::lock_guard lock(mutex_);
  return pending_.size() + ripe_.size() + ending_;
}

}  // namespace hufu::runtime
