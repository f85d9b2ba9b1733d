#include "os/thread.h"

#include <pthread.h>
#include <signal.h>

#include <string>
#include <system_error>
#include <utility>

namespace hufu::os {

Result<std::thread> start_thread(const char* name, std::function<void()> body) {
  // A thread begins with its maker's mask: there is no moment in which it could be interrupted.
  sigset_t all;
  sigset_t before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  Result<std::thread> started = [&]() -> Result<std::thread> {
    try {
      return std::thread([name, body = std::move(body)] {
        ::pthread_setname_np(::pthread_self(), name);
        body();
      });
    } catch (const std::system_error& failed) {
      Error error = fail(Errc::kOutOfMemory, Reason::kSystem,
                         "cannot start the thread {} (errno {}); raise the limit of processes "
                         "(ulimit -u, pids.max of the cgroup)",
                         name, failed.code().value());
      error.sys_errno = failed.code().value();
      return error;
    }
  }();
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return started;
}

}  // namespace hufu::os
