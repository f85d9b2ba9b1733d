#include "share/agent.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <system_error>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "os/memfd.h"
#include "os/socket.h"
#include "wire/codec.h"

namespace hufu::share {
namespace {

using std::chrono::milliseconds;
using wire::EventKind;

// Between attempts to attach again, doubled up to the second.
constexpr milliseconds kFirstPause{10};
constexpr milliseconds kLongestPause{5000};

// The agent's socket, and how to know that a number still means it: a program may close descriptors
// that it did not open, and the number be somebody else's then.
struct Line {
  UniqueFd socket;
  os::FileFacts facts{};

  explicit Line(UniqueFd fd) : socket(std::move(fd)) {
    if (const auto found = os::facts_of(socket.get())) facts = *found;
  }
  Line(Line&&) noexcept = default;
  Line& operator=(Line&& other) noexcept {
    close();
    socket = std::move(other.socket);
    facts = other.facts;
    return *this;
  }
  Line(const Line&) = delete;
  Line& operator=(const Line&) = delete;
  ~Line() { close(); }

  bool ours() const {
    const auto now = os::facts_of(socket.get());
    return now && now->inode == facts.inode && now->device == facts.device;
  }
  void close() {
    if (socket && !ours()) (void)socket.release();
    socket.reset();
  }
};

// A share that somebody here wants to hear of.
struct Watched {
  PublicId key;
  bool exported_here = false;
  std::shared_ptr<const Agent::Told> told;  // Null: only waited for.
  int waiting = 0;
  std::uint64_t line = 0;     // On which the broker was asked to tell.
  std::uint64_t session = 0;  // Of that line.
  std::uint32_t importers = 0;
  std::uint64_t imports = 0;   // So far.
  bool ended = false;          // No new imports.
  std::uint64_t released = 0;  // How often the last importer has left.
  bool closed = false;         // By this process, which imported it.

  // Is there nothing more to come?
  bool over() const { return (ended && importers == 0) || closed; }
};

}  // namespace

struct Agent::State {
  using Lock = std::unique_lock<std::mutex>;

  explicit State(Client& of) : client(of) {}

  Result<void> listen(Lock& lock);
  Result<void> start_thread();
  void run();
  void hear(Lock& lock, Line& line);
  void handle(Lock& lock, const wire::Event& event);
  bool catch_up(Lock& lock);
  void tell(Lock& lock, std::uint64_t share, EventKind what);
  void drop_if_over(std::uint64_t share);
  void drop_if_unused(std::uint64_t share);
  bool hears_session() const { return heard.load() != 0 && heard.load() == client.generation(); }
  bool on_this_thread() const { return thread.get_id() == std::this_thread::get_id(); }
  bool somebody_wants_to_be_told() const {
    return std::ranges::any_of(watched,
                               [](const auto& entry) { return entry.second.told != nullptr; });
  }

  Client& client;
  std::atomic<std::uint64_t> heard{0};  // The session whose events are heard: its generation.

  std::mutex mutex;
  std::condition_variable changed;
  std::thread thread;
  bool stopping = false;
  std::optional<Line> next;                            // Attached, and to be read from now on.
  const Line* current = nullptr;                       // Being read.
  std::uint64_t line = 0;                              // How many were attached.
  std::unordered_map<std::uint64_t, Watched> watched;  // By share.
  std::optional<PublicId> calling;                     // Whose callback runs.
  std::function<void()> give_back;

  State* parents = nullptr;  // After fork. Kept reachable, never touched.
};

// --- Attaching -----------------------------------------------------------------------------------

Result<void> Agent::State::start_thread() {
  if (thread.joinable()) return {};
  // Signals are the program's: none is delivered to a thread it does not know.
  sigset_t all;
  sigset_t before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  Result<void> started;
  try {
    thread = std::thread([this] { run(); });
    ::pthread_setname_np(thread.native_handle(), "hufu-agent");
  } catch (const std::system_error& error) {
    started = fail(Errc::kSystem, Reason::kSystem,
                   "no thread can be started to hear the broker's events: {}; raise the limit of "
                   "threads (ulimit -u, the cgroup's pids.max)",
                   error.what());
  }
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return started;
}

Result<void> Agent::State::listen(Lock& /*lock*/) {
  if (hears_session()) return {};
  auto attached = client.attach();
  if (!attached) return attached.error();
  if (auto started = start_thread(); !started) return started;
  next.emplace(std::move(attached->socket));
  ++line;
  heard = attached->generation;
  // It is waiting for an event of a session that is over.
  if (current != nullptr && current->ours()) ::shutdown(current->socket.get(), SHUT_RDWR);
  changed.notify_all();
  return {};
}

// --- The thread ----------------------------------------------------------------------------------

void Agent::State::run() {
  Lock lock(mutex);
  milliseconds pause = kFirstPause;
  while (!stopping) {
    if (!next && somebody_wants_to_be_told()) {
      changed.wait_for(lock, pause, [&] { return stopping || next; });
      pause = std::min(2 * pause, kLongestPause);
      if (!stopping && !next) (void)listen(lock);
    } else {
      changed.wait(lock, [&] { return stopping || next || somebody_wants_to_be_told(); });
    }
    if (stopping || !next) continue;
    Line line_now = std::move(*next);
    next.reset();
    current = &line_now;
    if (catch_up(lock)) {
      pause = kFirstPause;
      hear(lock, line_now);
    }
    current = nullptr;
    if (next || stopping) continue;
    heard = 0;
    ++line;
    changed.notify_all();
  }
}

// Until the line's end.
void Agent::State::hear(Lock& lock, Line& line_now) {
  while (!stopping && !next) {
    lock.unlock();
    pollfd poller{.fd = line_now.socket.get(), .events = POLLIN, .revents = 0};
    (void)::poll(&poller, 1, -1);
    std::array<std::byte, wire::kMaxMessage + 1> buffer;
    std::optional<wire::Event> event;
    bool nothing = false;
    if (line_now.ours()) {
      const auto packet = os::receive(line_now.socket.get(), buffer, nullptr);
      nothing = !packet && packet.error().sys_errno == EAGAIN;
      if (packet && !packet->end) event = wire::decode_event(packet->bytes);
    }
    lock.lock();
    if (event) {
      handle(lock, *event);
    } else if (!nothing) {
      return;  // The end, or no broker of ours.
    }
  }
}

void Agent::State::handle(Lock& lock, const wire::Event& event) {
  const auto what = static_cast<EventKind>(event.what);
  if (what == EventKind::kReturn) {
    const auto called = give_back;
    lock.unlock();
    if (called) called();
    lock.lock();
    return;
  }
  const auto found = watched.find(event.share);
  if (found == watched.end()) return;
  Watched& share = found->second;
  share.importers = event.importers;
  switch (what) {
    case EventKind::kExportEnded:
    case EventKind::kExporterGone:
    case EventKind::kRevoked:
      share.ended = true;
      break;
    case EventKind::kLastImporterLeft:
      ++share.released;
      changed.notify_all();
      break;
    case EventKind::kImported:
      ++share.imports;
      break;
    case EventKind::kReturn:
      break;
  }
  tell(lock, event.share, what);
  drop_if_over(event.share);
}

void Agent::State::tell(Lock& lock, std::uint64_t share, EventKind what) {
  const auto found = watched.find(share);
  if (found == watched.end() || !found->second.told) return;
  const auto told = found->second.told;
  calling = found->second.key;
  lock.unlock();
  (*told)(what);
  lock.lock();
  calling.reset();
  changed.notify_all();
}

void Agent::State::drop_if_over(std::uint64_t share) {
  const auto found = watched.find(share);
  if (found == watched.end() || !found->second.over()) return;
  found->second.told.reset();
  if (found->second.waiting == 0) watched.erase(found);
}

// After an ATTACH: the broker is asked to tell, and what happened meanwhile is told. False when the
// broker could not be asked.
bool Agent::State::catch_up(Lock& lock) {
  std::vector<std::pair<std::uint64_t, EventKind>> news;
  bool asked_all = true;
  for (auto& [id, share] : watched) {
    if (!share.told || share.line == line) continue;
    const auto now = client.watch(id, wire::WatchMode::kStart);
    if (!now && now.error().code != Errc::kRefused) {
      asked_all = false;
      break;
    }
    // Refused: the broker knows it no more, so that it is over in every respect. Another broker
    // knows nothing of who has it mapped.
    const bool same_broker = share.session == heard;
    share.line = line;
    share.session = heard;
    const bool live = now && now->state == wire::ShareState::kLive;
    const std::uint32_t importers = now ? now->importers : 0;
    if (!live && !share.ended) {
      const bool gone = now && now->state == wire::ShareState::kExporterGone;
      news.emplace_back(id, gone ? EventKind::kExporterGone : EventKind::kExportEnded);
    }
    if (now && now->imports != share.imports) news.emplace_back(id, EventKind::kImported);
    if (now) share.imports = now->imports;
    if (importers == 0 && share.importers != 0 && same_broker) {
      news.emplace_back(id, EventKind::kLastImporterLeft);
    }
    share.ended = share.ended || !live;
    share.importers = importers;
  }
  for (const auto& [id, what] : news)
    tell(lock, id, what);
  for (const auto& [id, what] : news)
    drop_if_over(id);
  return asked_all;
}

void Agent::State::drop_if_unused(std::uint64_t share) {
  const auto found = watched.find(share);
  if (found == watched.end() || found->second.told || found->second.waiting != 0) return;
  const bool told_still = found->second.line == line && !found->second.over();
  watched.erase(found);
  // Dispensable: what the broker tells of it is not listened to any more.
  if (told_still && hears_session()) (void)client.watch(share, wire::WatchMode::kStop);
}

// --- The calls -----------------------------------------------------------------------------------

Agent::Agent(Client& client) : client_(client), state_(new State(client)) {
  client.when_closed([this](std::uint64_t share) {
    const std::lock_guard lock(state_->mutex);
    const auto found = state_->watched.find(share);
    if (found == state_->watched.end() || found->second.exported_here) return;
    found->second.closed = true;
    found->second.told.reset();
    if (found->second.waiting == 0) state_->watched.erase(found);
    state_->changed.notify_all();
  });
}

Agent::~Agent() {
  client_.when_closed([](std::uint64_t) {});
  {
    const std::lock_guard lock(state_->mutex);
    state_->stopping = true;
    const Line* current = state_->current;
    if (current != nullptr && current->ours()) ::shutdown(current->socket.get(), SHUT_RDWR);
    state_->changed.notify_all();
  }
  if (state_->thread.joinable()) state_->thread.join();
  delete state_;
}

Result<void> Agent::listen() {
  if (state_->hears_session()) return {};
  State::Lock lock(state_->mutex);
  return state_->listen(lock);
}

void Agent::on_return(std::function<void()> give_back) {
  const std::lock_guard lock(state_->mutex);
  state_->give_back = std::move(give_back);
}

Result<void> Agent::set_callback(const char* key, Told told) {
  const auto id = public_id_of(key);
  State::Lock lock(state_->mutex);
  for (;;) {
    if (auto heard = state_->listen(lock); !heard) return heard;
    // The lock is held until the share is entered, so that its first event finds it.
    const auto now = client_.watch(key, wire::WatchMode::kStart);
    if (!now) return now.error();
    if (!state_->hears_session()) continue;  // That was another broker's answer.
    const auto session = client_.session();
    if (!session) return session.error();
    Watched& share = state_->watched[now->share];
    share.key = *id;
    share.exported_here = now->owner_pid == session->peer_pid;
    share.told = std::make_shared<const Told>(std::move(told));
    share.line = state_->line;
    share.session = state_->heard;
    share.importers = now->importers;
    share.imports = now->imports;
    share.ended = now->state != wire::ShareState::kLive;
    share.closed = false;
    return {};
  }
}

void Agent::clear_callback(const PublicId& key) {
  State::Lock lock(state_->mutex);
  const auto found = std::ranges::find_if(
      state_->watched, [&](const auto& entry) { return entry.second.key == key; });
  if (found != state_->watched.end()) {
    found->second.told.reset();
    state_->drop_if_unused(found->first);
  }
  if (state_->on_this_thread()) return;
  state_->changed.wait(lock, [&] { return state_->calling != key; });
}

Result<bool> Agent::wait_released(const char* key, int timeout_ms) {
  const auto id = public_id_of(key);
  const auto deadline = std::chrono::steady_clock::now() + milliseconds(std::max(timeout_ms, 0));
  State::Lock lock(state_->mutex);
  if (state_->on_this_thread()) {
    return fail(Errc::kInvalidArgument, Reason::kNone,
                "a callback cannot wait for an event: the thread that brings it is its own; let "
                "another thread wait, or act on LAST_IMPORTER_LEFT");
  }
  for (;;) {
    if (auto heard = state_->listen(lock); !heard) return heard.error();
    const auto now = client_.watch(key, wire::WatchMode::kStart);
    if (!now && now.error().reason == Reason::kExportEnded) return true;  // And nobody holds it.
    if (!now) return now.error();
    if (!state_->hears_session()) continue;
    const std::uint64_t number = now->share;
    const std::uint64_t line = state_->line;
    const auto [entry, fresh] = state_->watched.try_emplace(number);
    Watched& share = entry->second;
    if (fresh) {
      const auto session = client_.session();
      share.key = *id;
      share.exported_here = session && now->owner_pid == session->peer_pid;
    }
    // Else catch_up() does it, and tells the difference.
    if (!share.told) {
      share.line = line;
      share.session = state_->heard;
      share.importers = now->importers;
      share.imports = now->imports;
    }
    const std::uint64_t before = share.released;
    ++share.waiting;
    const auto something = [&] {
      return share.released != before || share.closed || state_->line != line;
    };
    bool in_time = true;
    if (now->importers != 0 && timeout_ms < 0) state_->changed.wait(lock, something);
    if (now->importers != 0 && timeout_ms >= 0) {
      in_time = state_->changed.wait_until(lock, deadline, something);
    }
    const bool released = now->importers == 0 || share.released != before;
    --share.waiting;
    state_->drop_if_unused(number);
    if (released) return true;
    if (!in_time) return false;
  }
}

void Agent::forget_after_fork() {
  State* parents = state_;
  // The parent's thread is not here, but its descriptors are: the broker would see the connection
  // open for as long as this process lives.
  const Line* lines[] = {parents->current, parents->next ? &*parents->next : nullptr};
  for (const Line* line : lines) {
    if (line != nullptr && line->ours()) ::close(line->socket.get());
  }
  state_ = new State(client_);
  state_->parents = parents;
}

}  // namespace hufu::share
