#include "hufu/signals.h"

#include <sys/signalfd.h>

#include <cerrno>
#include <csignal>

#include "hufu/output.h"

namespace hufu::cli {

StopSignals::StopSignals() {
  sigset_t ends{};
  sigemptyset(&ends);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    // One that our starter ignores (nohup, a shell's background job) stays ignored.
    struct sigaction now {};
    if (::sigaction(signal, nullptr, &now) == 0 && now.sa_handler != SIG_IGN) {
      sigaddset(&ends, signal);
    }
  }
  if (const int failed = ::pthread_sigmask(SIG_BLOCK, &ends, nullptr); failed != 0) {
    fail_system("blocking signals", failed);
  }
  fd_.reset(::signalfd(-1, &ends, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!fd_) fail_system("signalfd", errno);
}

}  // namespace hufu::cli
