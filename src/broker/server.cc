#include "broker/server.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "os/process.h"
#include "os/socket.h"
#include "wire/message.h"

namespace hufu::broker {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

// Tokens of the event loop: a session's socket is 2n, its process 2n+1; the two below are no
// session's.
constexpr std::uint64_t kListenerToken = 0;
constexpr std::uint64_t kSignalToken = 1;
constexpr std::uint64_t socket_token(SessionId id) { return 2 * id; }
constexpr std::uint64_t process_token(SessionId id) { return 2 * id + 1; }

// How long to leave the listener alone when no descriptor is left: epoll would report it at once
// again, 800,000 times a second.
constexpr milliseconds kNoDescriptorPause{100};

// Without a request for so long, there is time for what nobody waits for.
constexpr milliseconds kLull{1};

}  // namespace

Server::Server(const ServerOptions& options, Listener listener, os::EventLoop loop,
               UniqueFd signals, audit::Log log, KeySeal seal, os::PublishedMemory life)
    : options_(options),
      listener_(std::move(listener)),
      loop_(std::move(loop)),
      signals_(std::move(signals)),
      log_(std::move(log)),
      committer_(log_),
      core_(options_.core, std::move(seal), std::move(life), log_, committer_, reaper_),
      lookout_(::sysconf(_SC_NPROCESSORS_ONLN) > 1) {}

Result<std::unique_ptr<Server>> Server::start(const ServerOptions& options) {
  auto signals = os::termination_signals();
  if (!signals) return signals.error();
  auto seal = KeySeal::make();
  if (!seal) return seal.error();
  auto listener = Listener::take(options.socket_path);
  if (!listener) return listener.error();
  if (!*listener) return std::unique_ptr<Server>();

  audit::Log::Options log_options{.directory = options.audit_directory,
                                  .version = options.version,
                                  .volatile_home = options.audit_is_volatile,
                                  .accept_damage = options.accept_damage};
  static_assert(sizeof(log_options.instance) == sizeof(InstanceId));
  std::memcpy(log_options.instance.data(), seal->instance().data(), sizeof(InstanceId));
  auto log = audit::Log::open(log_options);
  if (!log) {
    (*listener)->leave();
    return log.error();
  }
  auto loop = os::EventLoop::make();
  if (!loop) return loop.error();
  // This thread serves; when it ends, so has the broker.
  auto life = os::PublishedMemory::make("hufu-life", wire::kLifePageBytes);
  if (!life) return life.error();
  life->claim_life_word();

  std::unique_ptr<Server> server(new Server(options, std::move(**listener), std::move(*loop),
                                            std::move(*signals), std::move(*log), std::move(*seal),
                                            std::move(*life)));
  if (auto ok = server->loop_.watch(server->listener_.fd(), kListenerToken); !ok) return ok.error();
  if (auto ok = server->loop_.watch(server->signals_.get(), kSignalToken); !ok) return ok.error();
  return server;
}

std::optional<milliseconds> Server::patience() const {
  std::optional<milliseconds> most;
  const auto at_most = [&](milliseconds wait) { most = most ? std::min(*most, wait) : wait; };
  if (const auto due = core_.next_due_in()) at_most(std::chrono::ceil<milliseconds>(*due));
  if (core_.has_spare_work()) at_most(kLull);
  if (!listening_) at_most(kNoDescriptorPause);
  if (connections_.empty() && options_.idle != milliseconds::zero()) {
    const auto left = options_.idle - (steady_clock::now() - idle_since_);
    at_most(std::max(milliseconds(1), std::chrono::ceil<milliseconds>(left)));
  }
  return most;
}

Result<void> Server::run() {
  for (;;) {
    const bool looks = lookout_.looks(steady_clock::now());
    auto events = loop_.wait(looks ? milliseconds::zero() : patience());
    if (!events) return events.error();
    if (looks && events->empty()) continue;
    if (looks) lookout_.found(steady_clock::now());
    if (!listening_) {
      listening_ = true;
      (void)loop_.watch(listener_.fd(), kListenerToken);
    }
    for (const auto& event : *events) {
      if (event.token == kSignalToken) {
        listener_.leave();
        return leave();
      }
      if (event.token == kListenerToken) {
        accept_one();
        continue;
      }
      const SessionId id = event.token / 2;
      const bool died = event.token == process_token(id);
      if (died || event.broken) {
        close(id);
      } else {
        serve(id);
        lookout_.served(steady_clock::now());
      }
      pass_on();
    }
    if (events->empty()) {
      pass_on();  // Somebody's time may be over.
      core_.do_spare_work();
    }
    if (events->empty() && leave_if_idle()) return leave();
  }
}

Result<void> Server::leave() {
  core_.settle_doubts();
  return log_.stop();
}

bool Server::leave_if_idle() {
  if (!connections_.empty() || options_.idle == milliseconds::zero()) return false;
  if (steady_clock::now() - idle_since_ < options_.idle) return false;
  auto late = listener_.retire();
  if (late && late->empty()) return true;
  idle_since_ = steady_clock::now();
  if (!late) return false;
  (void)loop_.watch(listener_.fd(), kListenerToken);
  for (UniqueFd& socket : *late)
    admit(std::move(socket));
  return false;
}

void Server::accept_one() {
  auto socket = listener_.accept();
  if (!socket) {
    loop_.forget(listener_.fd());
    listening_ = false;
    return;
  }
  if (socket->valid()) admit(std::move(*socket));
}

void Server::admit(UniqueFd socket) {
  auto who = os::identify_peer(socket.get());
  if (!who) return;
  const SessionId id = next_session_++;
  const int pidfd = who->pidfd.get();
  if (const auto refusal = core_.open(id, std::move(*who))) {
    (void)os::send(socket.get(), refusal->view(), {});
    return;
  }
  const bool watched = loop_.watch(socket.get(), socket_token(id)).has_value() &&
                       loop_.watch(pidfd, process_token(id)).has_value();
  connections_.emplace(id, Connection{.socket = std::move(socket), .pidfd = pidfd});
  if (!watched) close(id);
}

void Server::serve(SessionId id) {
  const auto found = connections_.find(id);
  if (found == connections_.end()) return;  // Closed by an earlier event of this turn.
  const int socket = found->second.socket.get();
  // One byte more than a message may have, so that a longer one is seen to be longer.
  std::array<std::byte, wire::kMaxBatchMessage + 1> buffer;
  auto packet = os::receive(socket, buffer, nullptr);
  if (!packet) {
    if (packet.error().sys_errno != EAGAIN) close(id);
    return;
  }
  if (packet->end || packet->truncated || packet->unasked_descriptors || !packet->has_credentials) {
    close(id);
    return;
  }
  deliver(id, core_.handle(id, packet->bytes, packet->sender));
}

void Server::pass_on() {
  // Each close may give rise to more.
  core_.keep_time();
  for (;;) {
    const auto superseded = core_.take_superseded();
    for (const SessionId gone : superseded)
      close(gone);
    const auto tellings = core_.take_tellings();
    auto ready = core_.take_ready();
    if (superseded.empty() && tellings.empty() && ready.empty()) return;
    for (const Core::Telling& telling : tellings) {
      const auto agent = connections_.find(telling.agent);
      if (agent == connections_.end()) continue;
      if (!os::send(agent->second.socket.get(), telling.frame.view(), {})) close(telling.agent);
    }
    for (auto& [id, answer] : ready) {
      const auto asker = connections_.find(id);
      if (asker == connections_.end()) continue;
      const bool heard = loop_.watch(asker->second.socket.get(), socket_token(id)).has_value();
      if (!heard) answer.hang_up = true;
      deliver(id, std::move(answer));
    }
  }
}

void Server::deliver(SessionId id, Answer answer) {
  const int socket = connections_.at(id).socket.get();
  // What it sends meanwhile waits too, in its own queue.
  if (answer.later) loop_.forget(socket);
  if (answer.frame) {
    // One message with descriptors in flight per connection: they are charged to the broker until
    // the peer reads them. An honest client never asks before it has read.
    const auto unread = answer.fds.empty() ? Result<std::size_t>(0) : os::unread_by_peer(socket);
    const bool reads = unread && *unread == 0;
    if (!reads || !os::send(socket, answer.frame->view(), answer.fds)) {
      core_.undelivered(id, answer);
      close(id);
      return;
    }
  }
  if (answer.hang_up) close(id);
}

void Server::close(SessionId id) {
  const auto found = connections_.find(id);
  if (found == connections_.end()) return;
  loop_.forget(found->second.socket.get());
  loop_.forget(found->second.pidfd);
  connections_.erase(found);
  core_.end(id);
  if (connections_.empty()) idle_since_ = steady_clock::now();
}

}  // namespace hufu::broker
