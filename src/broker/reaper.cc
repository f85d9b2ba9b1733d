#include "broker/reaper.h"

#include <iterator>
#include <utility>

#include "os/memfd.h"

namespace hufu::broker {

Reaper::Reaper() : thread_([this] { run(); }) {}

Reaper::~Reaper() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_one();
  thread_.join();
}

void Reaper::take(std::vector<UniqueFd> fds) {
  if (fds.empty()) return;
  {
    const std::lock_guard lock(mutex_);
    waiting_.insert(waiting_.end(), std::make_move_iterator(fds.begin()),
                    std::make_move_iterator(fds.end()));
  }
  wake_.notify_one();
}

void Reaper::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    wake_.wait(lock, [this] { return stopping_ || !waiting_.empty(); });
    if (waiting_.empty()) return;
    std::vector<UniqueFd> batch = std::exchange(waiting_, {});
    lock.unlock();
    for (const UniqueFd& fd : batch)
      os::drop_pages(fd.get());
    batch.clear();
    lock.lock();
  }
}

}  // namespace hufu::broker
