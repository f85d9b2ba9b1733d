#pragma once

// Whether the loop looks for the next request for a moment before it goes to sleep.
//
// A wake-up from another processor takes longer than all the work on an import, and a client that
// asks one thing after another has its next request ready within tens of microseconds. So after a
// request the loop looks for so long without sleeping, as long as that finds something. Where it
// does not (the client thinks, or runs on this very processor and waits for it), it costs that
// moment once, and then not again for 1 ms, 2 ms, ... 1 s. With one processor it never looks.

#include <chrono>

namespace hufu::broker {

class Lookout {
 public:
  using Time = std::chrono::steady_clock::time_point;

  static constexpr std::chrono::microseconds kLook{50};
  // Between two looks; a longer gap means that somebody else had the processor.
  static constexpr std::chrono::microseconds kGap{10};
  static constexpr std::chrono::milliseconds kFirstRest{1};
  static constexpr int kMostDoublings = 10;

  explicit Lookout(bool several_processors) : useful_(several_processors) {}

  // A request was served: from now on, it may be worth it.
  void served(Time now);
  // May the next wait be one without sleeping?
  bool looks(Time now);
  // Such a wait found something.
  void found(Time now);

 private:
  void rest(Time now);

  bool useful_;
  bool looking_ = false;
  int misses_ = 0;
  Time until_;
  Time last_look_;
  Time rests_until_;
};

}  // namespace hufu::broker
