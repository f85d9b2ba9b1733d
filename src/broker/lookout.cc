#include "broker/lookout.h"

#include <algorithm>

namespace hufu::broker {

void Lookout::served(Time now) {
  looking_ = useful_ && now >= rests_until_;
  until_ = now + kLook;
  last_look_ = now;
}

bool Lookout::looks(Time now) {
  if (!looking_) return false;
  if (now >= until_) {
    rest(now);
    return false;
  }
  last_look_ = now;
  return true;
}

void Lookout::found(Time now) {
  if (now - last_look_ > kGap) {
    rest(now);  // It was not looking that found it.
  } else {
    misses_ = 0;
  }
}

void Lookout::rest(Time now) {
  looking_ = false;
  rests_until_ = now + kFirstRest * (1 << misses_);
  misses_ = std::min(misses_ + 1, kMostDoublings);
}

}  // namespace hufu::broker
