#pragma once

// Closes the last descriptors of blocks, away from the event loop: the last close of a GiB takes
// 120 ms. The pages are given back first, so that a former owner who keeps its mapping after FREE
// holds zeros and no memory.

#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include "base/unique_fd.h"

namespace hufu::broker {

class Reaper {
 public:
  Reaper();
  ~Reaper();  // Finishes what was given to it.
  Reaper(const Reaper&) = delete;
  Reaper& operator=(const Reaper&) = delete;

  void take(std::vector<UniqueFd> fds);

 private:
  void run();

  std::mutex mutex_;
  std::condition_variable wake_;
  std::vector<UniqueFd> waiting_;
  bool stopping_ = false;
  std::thread thread_;  // Last: it starts when everything else is there.
};

}  // namespace hufu::broker
