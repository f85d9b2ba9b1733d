#include "os/event_loop.h"

#include <pthread.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>

#include <cerrno>

namespace hufu::os {

Result<EventLoop> EventLoop::make() {
  UniqueFd epoll(::epoll_create1(EPOLL_CLOEXEC));
  if (!epoll) return fail_errno("epoll_create1", errno);
  return EventLoop(std::move(epoll));
}

Result<void> EventLoop::watch(int fd, std::uint64_t token) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = token;
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) {
    return fail_errno("epoll_ctl", errno);
  }
  return {};
}

void EventLoop::forget(int fd) { (void)::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr); }

Result<std::span<const EventLoop::Event>> EventLoop::wait(
    std::optional<std::chrono::milliseconds> timeout) {
  const int limit = timeout ? static_cast<int>(timeout->count()) : -1;
  const int count = ::epoll_wait(epoll_.get(), raw_.data(), static_cast<int>(raw_.size()), limit);
  if (count < 0) {
    if (errno == EINTR) return std::span<const Event>();
    return fail_errno("epoll_wait", errno);
  }
  const auto size = static_cast<std::size_t>(count);
  for (std::size_t i = 0; i < size; ++i) {
    const std::uint32_t happened = raw_[i].events;
    const bool readable = (happened & EPOLLIN) != 0;
    events_[i] = {.token = raw_[i].data.u64,
                  .readable = readable,
                  .broken = !readable && (happened & (EPOLLERR | EPOLLHUP)) != 0};
  }
  return std::span<const Event>(events_.data(), size);
}

Result<UniqueFd> termination_signals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  if (const int failed = ::pthread_sigmask(SIG_BLOCK, &signals, nullptr); failed != 0) {
    return fail_errno("pthread_sigmask", failed);
  }
  (void)::signal(SIGPIPE, SIG_IGN);
  (void)::signal(SIGIO, SIG_IGN);
  UniqueFd fd(::signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!fd) return fail_errno("signalfd", errno);
  return fd;
}

}  // namespace hufu::os
