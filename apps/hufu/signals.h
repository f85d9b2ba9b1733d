#pragma once

// "End now" as something to wait for: Ctrl-C, SIGTERM and SIGHUP arrive at a descriptor, so that a
// command which holds something gives it back instead of dying with it.

#include "base/unique_fd.h"

namespace hufu::cli {

class StopSignals {
 public:
  // Make it before the library is used: its threads inherit what is blocked here.
  StopSignals();

  int fd() const { return fd_.get(); }  // Readable when one has come.

 private:
  UniqueFd fd_;
};

}  // namespace hufu::cli
