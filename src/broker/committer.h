#pragma once

// Makes records survive a power cut soon after they were written, away from the event loop: an
// fdatasync takes from a tenth of a millisecond to several. The reply does not wait for it
// ("bounded" durability: at most 10 ms of records can be lost to a power cut, none to a crash).

#include <condition_variable>
#include <mutex>
#include <thread>

#include "audit/log.h"

namespace hufu::broker {

class Committer {
 public:
  explicit Committer(audit::Log& log);
  ~Committer();
  Committer(const Committer&) = delete;
  Committer& operator=(const Committer&) = delete;

  // There is something to commit.
  void nudge();

 private:
  void run();

  audit::Log& log_;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool dirty_ = false;
  bool stopping_ = false;
  std::thread thread_;  // Last: it starts when everything else is there.
};

}  // namespace hufu::broker
