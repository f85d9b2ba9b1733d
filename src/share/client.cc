#include "share/client.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <variant>

#include "base/units.h"
#include "os/file.h"
#include "os/memfd.h"
#include "os/socket.h"
#include "share/refusal.h"
#include "share/starter.h"
#include "share/waiting.h"
#include "wire/codec.h"

namespace hufu::share {
namespace {

// Programs close or redirect low descriptors by number; ours keeps out of their way.
constexpr int kLowestSocket = 64;
constexpr std::uint32_t kReportsPerSecond = 100;

template <class R>
using ReplyTo = typename wire::Protocol<R>::Reply;
template <class T>
constexpr bool kIsBatch = false;
template <class T>
constexpr bool kIsBatch<wire::Batch<T>> = true;

std::string_view word_of(wire::Kind kind) {
  switch (kind) {
    case wire::Kind::kHello:
      return "HELLO";
    case wire::Kind::kAttach:
      return "ATTACH";
    case wire::Kind::kMint:
      return "MINT";
    case wire::Kind::kFree:
      return "FREE";
    case wire::Kind::kExport:
      return "EXPORT";
    case wire::Kind::kWithdraw:
      return "WITHDRAW";
    case wire::Kind::kEndAll:
      return "END_ALL";
    case wire::Kind::kEndRange:
      return "END_RANGE";
    case wire::Kind::kExportHandle:
      return "EXPORT_HANDLE";
    case wire::Kind::kCharge:
      return "CHARGE";
    case wire::Kind::kImport:
      return "IMPORT";
    case wire::Kind::kClose:
      return "CLOSE";
    case wire::Kind::kListProcess:
      return "LIST_PROCESS";
    case wire::Kind::kListPid:
      return "LIST_PID";
    case wire::Kind::kStat:
      return "STAT";
    case wire::Kind::kWatch:
      return "WATCH";
    case wire::Kind::kReport:
      return "REPORT";
    case wire::Kind::kBye:
      return "BYE";
    case wire::Kind::kList:
      return "LIST";
    case wire::Kind::kUsage:
      return "USAGE";
    case wire::Kind::kEvent:
      return "EVENT";
    case wire::Kind::kExportBatch:
      return "EXPORT_BATCH";
    case wire::Kind::kImportBatch:
      return "IMPORT_BATCH";
    case wire::Kind::kCloseBatch:
      return "CLOSE_BATCH";
  }
  return "request";
}

// "T (stopped)" for what /proc says the process is doing, "ended" when there is none.
std::string state_of_process(std::int32_t pid) {
  const std::string stat = os::read_small_file(fmt::format("/proc/{}/stat", pid));
  // The name before the state may contain anything, parentheses included.
  const auto name_end = stat.rfind(") ");
  if (name_end == std::string::npos || name_end + 2 >= stat.size()) return "ended, or hidden";
  const char letter = stat[name_end + 2];
  switch (letter) {
    case 'R':
      return "R (running)";
    case 'S':
      return "S (sleeping)";
    case 'D':
      return "D (waiting for a disk)";
    case 'T':
      return "T (stopped)";
    case 't':
      return "t (stopped by a debugger)";
    case 'Z':
      return "Z (ended, not reaped)";
    default:
      return std::string(1, letter);
  }
}

std::size_t descriptors_due(const wire::HelloReply&) { return wire::kHelloDescriptors; }
std::size_t descriptors_due(const wire::MintReply& reply) { return reply.count; }
std::size_t descriptors_due(const wire::ImportReply&) { return 1; }
std::size_t descriptors_due(const wire::Batch<wire::Outcome<wire::Import>>& reply) {
  return static_cast<std::size_t>(std::ranges::count_if(
      reply.items, [](const auto& outcome) { return outcome.refusal.reason == 0; }));
}
template <class Reply>
std::size_t descriptors_due(const Reply&) {
  return 0;
}

// What a call is about, in words. Made when an error needs them: a key's words cost a hash of it.
class Subject {
 public:
  // NOLINTNEXTLINE(google-explicit-constructor): most calls have their words at hand.
  Subject(std::string words) : words_(std::move(words)) {}
  Subject(const char* verb, const char* key) : words_(verb), key_(key) {}
  Subject(const char* verb, const HandleName& name) : words_(verb), handle_(&name) {}

  std::string words() const {
    if (handle_ != nullptr) return what_with_handle(words_, *handle_);
    return key_ == nullptr ? words_ : what_with_key(words_, key_);
  }
  bool of_handle() const { return handle_ != nullptr; }

 private:
  std::string words_;  // Or the verb.
  const char* key_ = nullptr;
  const HandleName* handle_ = nullptr;
};

Error too_few_descriptors(const Subject& subject) {
  rlimit limit{};
  (void)::getrlimit(RLIMIT_NOFILE, &limit);
  return fail(Errc::kOutOfMemory, Reason::kDescriptors,
              "{}: this process has no file descriptor left for it (the limit is {}); raise it "
              "with `ulimit -n`, or keep many small objects in one pool",
              subject.words(), limit.rlim_cur);
}

// What a descriptor is, is the kernel's word; what a reply says it is, is only a claim. Memory that
// can shrink under a mapping ends in SIGBUS, and one that is smaller than said does at once.
Result<void> check_memory(int fd, const Subject& subject, std::uint64_t needed) {
  const auto facts = os::facts_of(fd);
  if (!facts) return facts.error();
  if (facts->size < needed) {
    return fail(Errc::kRefused, Reason::kOutOfRange,
                "{}: the broker handed over a file of {} bytes for a range that ends at {}; it "
                "must not be trusted: end it, a new one is started",
                subject.words(), facts->size, needed);
  }
  constexpr int kNeeded = F_SEAL_SHRINK | F_SEAL_GROW;
  const auto seals = os::seals_of(fd);
  const int found = seals ? *seals : 0;
  if ((found & kNeeded) != kNeeded) {
    return fail(Errc::kRefused, Reason::kSealsChanged,
                "{}: the broker handed over a file with seals {:#x}, without {:#x} (shrink, grow), "
                "which could be truncated under its users; it must not be trusted: end it",
                subject.words(), found, kNeeded);
  }
  return {};
}

Result<void> check_grant(int fd, const wire::ImportReply& reply, std::uint32_t asked,
                         const Subject& subject) {
  if (auto memory = check_memory(fd, subject, reply.offset + reply.size); !memory) return memory;
  const int mode = ::fcntl(fd, F_GETFL);
  const bool writable = reply.access == static_cast<std::uint32_t>(Access::kReadWrite);
  const bool as_said = mode >= 0 && (mode & O_ACCMODE) == (writable ? O_RDWR : O_RDONLY);
  // Over-reads end in the guard page behind the range, so a padded size may reach into it (D6).
  const bool sane = reply.reported_size != 0 &&
                    reply.reported_size <= reply.size + bytes_of(PageSize::k4KiB) &&
                    (asked == 0 || asked == reply.access);
  if (as_said && sane) return {};
  return fail(Errc::kRefused, Reason::kMalformed,
              "{}: the broker granted access {} to {} of {} bytes, which is not what was asked for "
              "(access {}) or not what the descriptor allows (mode {:#o}); hufud and libhufu may "
              "be of different versions",
              subject.words(), reply.access, reply.reported_size, reply.size, asked, mode);
}

}  // namespace

struct Client::State {
  explicit State(const BrokerAddress& broker) : address(broker) {}

  // --- All of the below: under `mutex`, except `generation` ---
  Result<void> ensure_session();
  Result<Line> attach();
  template <class R>
  Result<ReplyTo<R>> call(const R& body, const Subject& subject, bool repeatable,
                          std::vector<UniqueFd>* fds = nullptr);
  template <class R>
  Result<void> tell(const R& body, int wait_ms);

  void say_closes();
  void report(Reason reason, std::uint64_t what, std::uint64_t size);

  Result<Grant> import(const wire::KeyText& key, std::uint32_t access, const Subject& what);
  Result<void> withdraw(const wire::KeyText& key, const Subject& what);
  Result<wire::ListPidReply> list_pids(const wire::KeyText& key, std::span<const std::int32_t> pids,
                                       const Subject& what);
  Error unknown_block(std::uint64_t block) const;
  Error miscounted(wire::Kind kind);
  RefusalContext context(std::string_view what) const;

  const BrokerAddress& address;
  const int limit_ms = wait_limit_ms();
  const bool as_anybody = os::env("HUFU_STRICT") == "cann";
  std::mutex mutex;
  std::atomic<std::uint64_t> generation{0};
  std::uint64_t next_block = 1;
  // This session's blocks: our number to the broker's.
  std::unordered_map<std::uint64_t, std::uint64_t> blocks;
  Session session{};
  std::shared_ptr<const Status> status;
  int collecting = 0;               // How many ClosesTogether live.
  wire::Batch<wire::Close> closes;  // Not said yet.
  std::shared_ptr<os::ReportedMemory> usage;
  UsageWriter usage_writer;
  std::int32_t gone_pid = 0;  // The broker of the session before.
  // How the last call failed: by the broker's end, which is not silence, nor a descriptor that we
  // lost ourselves. Only then may a request be repeated.
  bool broker_hung_up = false;
  UniqueFd socket;
  os::FileFacts socket_facts{};

  std::chrono::steady_clock::time_point report_window;
  std::uint32_t reports = 0;

  State* parents = nullptr;  // After fork. Kept reachable, never touched.

 private:
  template <class R>
  struct Exchange {
    std::optional<wire::Answer<R>> answer;
    Error error;
  };

  Result<void> connect();
  struct Listener {
    std::int32_t pid;
    std::uint32_t uid;
  };
  struct Reached {
    UniqueFd socket;
    Listener listener;
  };
  Result<Reached> reach(int starts_left);
  Result<void> attach_on(int line);
  Result<Listener> check_listener(int fd) const;
  Result<void> check_socket();
  Result<void> transmit(std::span<const std::byte> bytes, wire::Kind kind, int wait_ms);
  Result<std::size_t> await_packet(std::span<std::byte> buffer, std::vector<UniqueFd>* fds,
                                   wire::Kind kind, bool* starved);
  template <class R>
  Exchange<R> exchange(const R& body, std::vector<UniqueFd>* fds);

  void lose_session();
  Error give_up(Error error);
  Error hung_up(wire::Kind kind);
  Error parted(wire::Kind kind);
  Error silent(std::string_view what, int waited_ms);

  std::uint64_t next_request_ = 1;
  wire::Attach proof_{};         // That a second connection is this session's.
  std::int32_t broker_pid_ = 0;  // In our pid namespace, which HELLO's need not be.
  std::uint32_t broker_uid_ = 0;
};

// --- Losing a session ----------------------------------------------------------------------------

void Client::State::lose_session() {
  socket.reset();
  if (broker_pid_ != 0) gone_pid = broker_pid_;
  blocks.clear();
  closes.items.clear();
}

Error Client::State::give_up(Error error) {
  lose_session();
  return error;
}

Error Client::State::hung_up(wire::Kind kind) {
  broker_hung_up = true;
  return give_up(fail(Errc::kUnavailable, Reason::kBrokerGone,
                      "{}: the broker (pid {}, {}) ended or hung up; its keys and blocks are dead, "
                      "mappings stay: try again",
                      word_of(kind), broker_pid_, state_of_process(broker_pid_)));
}

// The connection is broken. Whoever hangs up without having read a request (too many connections of
// this user) says why before: the kernel reports the break first and then still has the packet.
Error Client::State::parted(wire::Kind kind) {
  std::array<std::byte, wire::kMaxMessage + 1> buffer{};
  const auto packet = os::receive(socket.get(), buffer, nullptr);
  const auto refusal = packet ? wire::decode_unnumbered(packet->bytes) : std::nullopt;
  if (!refusal) return hung_up(kind);
  return give_up(to_error(*refusal, context(word_of(kind))));
}

Error Client::State::silent(std::string_view what, int waited_ms) {
  return give_up(fail(Errc::kUnavailable, Reason::kBrokerSilent,
                      "{}: the broker (pid {}, state {}) did not answer within {} ms; if it is "
                      "stopped, `kill -CONT {}`, else end it (a new one is started when needed) or "
                      "raise HUFU_TIMEOUT_MS",
                      what, broker_pid_, state_of_process(broker_pid_), waited_ms, broker_pid_));
}

Error Client::State::miscounted(wire::Kind kind) {
  return give_up(
      fail(Errc::kUnavailable, Reason::kMalformed,
           "{}: the broker (pid {}) answered another number of requests than were asked; "
           "hufud and libhufu may be of different versions",
           word_of(kind), broker_pid_));
}

Error Client::State::unknown_block(std::uint64_t block) const {
  if (gone_pid == 0) {
    return fail(Errc::kRefused, Reason::kUnknownBlock,
                "block {} belongs to no session of this process (it may be the parent's, from "
                "before fork); allocate again",
                block);
  }
  return fail(Errc::kRefused, Reason::kUnknownBlock,
              "block {} belongs to a broker that is gone (pid {}); free it and allocate again",
              block, gone_pid);
}

RefusalContext Client::State::context(std::string_view what) const {
  return {.what = what,
          .broker = address.path,
          .mode = address.mode,
          .broker_uid = broker_uid_,
          .gone_pid = gone_pid};
}

// --- Connecting ----------------------------------------------------------------------------------

// The credentials are those of the process that called listen(): somebody who squats on the path
// cannot borrow them.
auto Client::State::check_listener(int fd) const -> Result<Listener> {
  ucred peer{};
  socklen_t size = sizeof(peer);
  if (::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) {
    return fail_errno("SO_PEERCRED", errno);
  }
  const Listener listener{.pid = peer.pid, .uid = peer.uid};
  if (peer.uid == ::geteuid() || peer.uid == 0) return listener;
  struct stat owner {};
  // /run is root's alone, so who owns the system's socket was put there by root.
  if (address.mode == BrokerMode::kSystem && ::lstat(address.path.c_str(), &owner) == 0 &&
      owner.st_uid == peer.uid) {
    return listener;
  }
  return fail(Errc::kUnavailable, Reason::kBrokerUntrusted,
              "the process that listens at {} (pid {}) runs as uid {}, which is neither {} (this "
              "process) nor root: it is not asked; remove the socket, or set HUFU_BROKER",
              address.path, peer.pid, peer.uid, ::geteuid());
}

auto Client::State::reach(int starts_left) -> Result<Reached> {
  if (address.mode == BrokerMode::kNone) {
    return to_error(Reason::kNoBroker, {}, context("sharing"));
  }
  if (address.mode == BrokerMode::kPersonal) {
    const auto slash = address.path.rfind('/');
    auto safe = os::ensure_private_directory(address.path.substr(0, slash));
    if (!safe) return safe.error();
  }
  const Deadline deadline(limit_ms);
  while (true) {
    auto connected = os::connect_to(address.path);
    if (connected) {
      auto listener = check_listener(connected->get());
      if (!listener) return listener.error();
      UniqueFd high(::fcntl(connected->get(), F_DUPFD_CLOEXEC, kLowestSocket));
      // EINVAL: the limit of descriptors is lower than that.
      return Reached{.socket = high ? std::move(high) : std::move(*connected),
                     .listener = *listener};
    }
    const int why = connected.error().sys_errno;
    if (why == EAGAIN && !deadline.passed()) {
      // The queue of connections is full, and nothing tells when that is over.
      constexpr int kNapMs = 2;
      (void)::poll(nullptr, 0, kNapMs);
      continue;
    }
    if (why == EAGAIN) {
      return fail(Errc::kUnavailable, Reason::kBrokerSilent,
                  "the broker at {} accepted no connection within {} ms; it may be stopped: see "
                  "`hufu doctor`",
                  address.path, limit_ms);
    }
    if ((why == ENOENT || why == ECONNREFUSED) && starts_left > 0) {
      --starts_left;
      if (auto started = start_broker(address); !started) return started.error();
      continue;
    }
    return fail(Errc::kUnavailable, Reason::kBrokerGone, "no {} broker to be reached: {}; {}",
                name_of(address.mode), connected.error().what(),
                address.mode == BrokerMode::kSystem
                    ? "an administrator can start it (systemctl start hufud.socket); it is not "
                      "replaced by a personal one, whose keys would be worth nothing to others"
                    : "see `hufu doctor`");
  }
}

Result<void> Client::State::connect() {
  // Twice, because a broker that has just become idle may leave between its start and our connect.
  auto reached = reach(address.start_on_demand ? 2 : 0);
  if (!reached) return reached.error();
  const auto facts = os::facts_of(reached->socket.get());
  if (!facts) return facts.error();
  if (auto bounded = os::bound_waits(reached->socket.get(), limit_ms); !bounded) return bounded;
  socket = std::move(reached->socket);
  socket_facts = *facts;
  broker_pid_ = reached->listener.pid;
  broker_uid_ = reached->listener.uid;
  return {};
}

Result<Client::Line> Client::State::attach() {
  for (int tried = 0;; ++tried) {
    // Else only the next request would find out.
    if (socket && status->life.writer_ended()) lose_session();
    if (auto ready = ensure_session(); !ready) return ready.error();
    auto reached = reach(0);
    auto attached = reached ? attach_on(reached->socket.get()) : Result<void>(reached.error());
    if (attached) {
      return Line{.socket = std::move(reached->socket), .generation = generation.load()};
    }
    if (!status->life.writer_ended() || tried > 0) return attached.error();
  }
}

Result<void> Client::State::attach_on(int line) {
  const std::uint64_t request = next_request_++;
  const auto frame = wire::encode(wire::Kind::kAttach, 0, request, proof_);
  const auto lost = [&] {
    return fail(Errc::kUnavailable, Reason::kBrokerGone,
                "ATTACH: the broker (pid {}, {}) ended or hung up: try again", broker_pid_,
                state_of_process(broker_pid_));
  };
  if (!os::send(line, frame.view(), {})) return lost();
  const auto readable = wait_for(line, POLLIN, Deadline(limit_ms));
  if (!readable) return readable.error();
  if (!*readable) {
    return fail(Errc::kUnavailable, Reason::kBrokerSilent,
                "ATTACH: the broker (pid {}, state {}) did not answer within {} ms", broker_pid_,
                state_of_process(broker_pid_), limit_ms);
  }
  std::array<std::byte, wire::kMaxMessage + 1> buffer{};
  const auto packet = os::receive(line, buffer, nullptr);
  if (!packet || packet->end) return lost();
  const auto answer = wire::decode_reply<wire::Attach>(packet->bytes, request);
  if (!answer) return lost();
  if (const auto* refusal = std::get_if<wire::Refusal>(&*answer)) {
    return to_error(*refusal, context("listening to the broker"));
  }
  return {};
}

Result<void> Client::State::ensure_session() {
  if (socket) return {};
  constexpr int kTries = 2;  // A broker may leave between accept and HELLO, once.
  for (int tried = 1;; ++tried) {
    if (auto connected = connect(); !connected) return connected;
    std::vector<UniqueFd> fds;
    auto hello = exchange(wire::Hello{}, &fds);
    if (!hello.answer) {
      if (broker_hung_up && tried < kTries) continue;
      return hello.error;
    }
    if (const auto* refusal = std::get_if<wire::Refusal>(&*hello.answer)) {
      return give_up(to_error(*refusal, context("opening a session")));
    }
    const auto& reply = std::get<wire::HelloReply>(*hello.answer);
    if (fds.size() != wire::kHelloDescriptors) {
      return give_up(too_few_descriptors(std::string("opening a session")));
    }
    auto words = os::PublishedView::map(fds[0].get(), wire::kStatusBytes);
    if (!words) return give_up(words.error());
    auto life = os::PublishedView::map(fds[1].get(), wire::kLifePageBytes);
    if (!life) return give_up(life.error());
    auto reported = os::ReportedMemory::map(fds[2].get(), wire::kUsagePageBytes);
    if (!reported) return give_up(reported.error());
    usage = std::make_shared<os::ReportedMemory>(std::move(*reported));
    if (usage_writer) usage_writer(usage);
    status = std::make_shared<const Status>(Status{std::move(*words), std::move(*life)});
    session = {.instance = reply.instance,
               .peer_pid = reply.peer_pid,
               .broker_pid = reply.broker_pid,
               .broker_uid = reply.broker_uid,
               .devices = reply.devices,
               .device_capacity = reply.device_capacity,
               .mode = reply.mode};
    proof_ = {.session = reply.session, .secret = reply.secret};
    // A socket that a service manager made has the manager's pid.
    if (broker_pid_ <= 1) broker_pid_ = reply.broker_pid;
    generation.fetch_add(1);
    return {};
  }
}

// --- One request and its answer ------------------------------------------------------------------

// A program that closes descriptors it did not open may have closed ours, and been given the number
// again for something else, which must get neither our bytes nor our close().
Result<void> Client::State::check_socket() {
  const auto facts = os::facts_of(socket.get());
  if (facts && facts->inode == socket_facts.inode && facts->device == socket_facts.device) {
    return {};
  }
  const int number = socket.release();
  return give_up(fail(
      Errc::kUnavailable, Reason::kBrokerGone,
      "descriptor {}, the connection to the broker, was {} by this program; its keys and blocks "
      "are dead, the next call opens a new session: close only descriptors that you opened",
      number, facts ? "replaced" : "closed"));
}

Result<void> Client::State::transmit(std::span<const std::byte> bytes, wire::Kind kind,
                                     int wait_ms) {
  const Deadline deadline(wait_ms);
  while (true) {
    if (auto ours = check_socket(); !ours) return ours;
    const auto sent = os::send(socket.get(), bytes, {});
    if (sent) return {};
    if (sent.error().sys_errno != EAGAIN) return parted(kind);
    if (wait_ms == 0) return sent.error();  // Dispensable, and not worth the session.
    const auto writable = wait_for(socket.get(), POLLOUT, deadline);
    if (!writable) return give_up(writable.error());
    if (!*writable) return silent(word_of(kind), wait_ms);
  }
}

Result<std::size_t> Client::State::await_packet(std::span<std::byte> buffer,
                                                std::vector<UniqueFd>* fds, wire::Kind kind,
                                                bool* starved) {
  const Deadline deadline(limit_ms);
  while (true) {
    // Nobody looks here whether the socket is still ours: transmit() just has.
    const auto packet = os::receive(socket.get(), buffer, fds, os::Wait::kBounded);
    if (!packet && packet.error().sys_errno == EINTR && !deadline.passed()) continue;
    if (!packet && (packet.error().sys_errno == EAGAIN || packet.error().sys_errno == EINTR)) {
      return silent(word_of(kind), limit_ms);
    }
    if (!packet) return parted(kind);
    if (packet->end) return hung_up(kind);
    if (packet->unasked_descriptors) {
      return give_up(fail(Errc::kUnavailable, Reason::kMalformed,
                          "{}: the broker (pid {}) sent descriptors that nobody asked for",
                          word_of(kind), broker_pid_));
    }
    *starved = packet->truncated;
    return packet->bytes.size();
  }
}

template <class R>
Client::State::Exchange<R> Client::State::exchange(const R& body, std::vector<UniqueFd>* fds) {
  constexpr wire::Kind kKind = wire::Protocol<R>::kKind;
  const std::uint64_t request = next_request_++;
  broker_hung_up = false;
  const auto failed = [](const Error& error) { return Exchange<R>{.answer = {}, .error = error}; };
  const auto frame = wire::encode(kKind, 0, request, body);
  if (auto sent = transmit(frame.view(), kKind, limit_ms); !sent) return failed(sent.error());

  // One byte more than the answer may have, so that a longer one shows.
  constexpr std::size_t kLongest =
      kIsBatch<ReplyTo<R>> ? wire::kMaxBatchMessage : wire::kMaxMessage;
  std::array<std::byte, kLongest + 1> buffer{};
  bool starved = false;
  const auto size = await_packet(buffer, fds, kKind, &starved);
  if (!size) return failed(size.error());
  const auto packet = std::span<const std::byte>(buffer).first(*size);

  auto answer = wire::decode_reply<R>(packet, request);
  if (!answer) {
    const auto refusal = wire::decode_unnumbered(packet);
    return failed(give_up(
        refusal ? to_error(*refusal, context(word_of(kKind)))
                : fail(Errc::kUnavailable, Reason::kMalformed,
                       "{}: what the broker (pid {}) sent is no answer to request {}; hufud and "
                       "libhufu may be of different versions: end it, a new one is started",
                       word_of(kKind), broker_pid_, request)));
  }
  const auto* reply = std::get_if<ReplyTo<R>>(&*answer);
  const std::size_t due = reply != nullptr ? descriptors_due(*reply) : 0;
  const std::size_t got = fds != nullptr ? fds->size() : 0;
  // Fewer is our own fault when the kernel found no free number for them.
  if (got == due || (got < due && starved)) {
    return {.answer = std::move(answer), .error = {}};
  }
  return failed(give_up(fail(Errc::kUnavailable, Reason::kMalformed,
                             "{}: the broker (pid {}) sent {} descriptors with an answer that has "
                             "{}; hufud and libhufu may be of different versions",
                             word_of(kKind), broker_pid_, got, due)));
}

template <class R>
Result<ReplyTo<R>> Client::State::call(const R& body, const Subject& subject, bool repeatable,
                                       std::vector<UniqueFd>* fds) {
  say_closes();
  for (int tried = 0;; ++tried) {
    if (auto ready = ensure_session(); !ready) return ready.error();
    auto exchanged = exchange(body, fds);
    if (exchanged.answer) {
      if (const auto* refusal = std::get_if<wire::Refusal>(&*exchanged.answer)) {
        const std::string what = subject.words();
        RefusalContext about = context(what);
        about.handle = subject.of_handle();
        return to_error(*refusal, about);
      }
      return std::get<ReplyTo<R>>(*exchanged.answer);
    }
    if (fds != nullptr) fds->clear();
    if (!broker_hung_up || !repeatable || tried > 0) return exchanged.error;
  }
}

void Client::State::say_closes() {
  const auto collected = std::exchange(closes, {});
  if (collected.items.empty() || !socket) return;
  if (collected.items.size() == 1) {
    (void)tell(collected.items.front(), limit_ms);
  } else {
    (void)tell(collected, limit_ms);
  }
}

template <class R>
Result<void> Client::State::tell(const R& body, int wait_ms) {
  constexpr wire::Kind kKind = wire::Protocol<R>::kKind;
  broker_hung_up = false;
  const auto frame = [&] {
    if constexpr (std::is_same_v<R, wire::Bye>) {
      return wire::encode(kKind, wire::kOneWay, next_request_++, wire::Empty{});
    } else {
      return wire::encode(kKind, wire::kOneWay, next_request_++, body);
    }
  }();
  return transmit(frame.view(), kKind, wait_ms);
}

// --- The calls -----------------------------------------------------------------------------------

Client::Client(BrokerAddress address) : address_(std::move(address)), state_(new State(address_)) {}

Client::~Client() {
  if (state_->socket) (void)state_->tell(wire::Bye{}, 0);
  delete state_;
}

Result<Client::Session> Client::session() {
  const std::lock_guard lock(state_->mutex);
  if (auto ready = state_->ensure_session(); !ready) return ready.error();
  return state_->session;
}

Result<std::vector<Client::Minted>> Client::mint(std::uint32_t device,
                                                 std::span<const wire::MintSpec> specs) {
  if (specs.empty() || specs.size() > wire::kMaxMint) {
    return fail(Errc::kInvalidArgument, Reason::kMalformed,
                "{} blocks were asked for at once; 1 to {} can be", specs.size(), wire::kMaxMint);
  }
  wire::Mint request{};
  request.device = device;
  request.count = static_cast<std::uint32_t>(specs.size());
  std::copy(specs.begin(), specs.end(), request.specs.begin());
  const std::string what =
      fmt::format("allocation of {} bytes on device {}", specs[0].size, device);

  const std::lock_guard lock(state_->mutex);
  std::vector<UniqueFd> fds;
  const auto reply = state_->call(request, what, true, &fds);
  if (!reply) return reply.error();
  const auto give_back = [&](const Error& error) {
    for (std::size_t i = 0; i < reply->count; ++i) {
      if (!state_->socket) break;
      (void)state_->tell(wire::Free{reply->blocks[i]}, state_->limit_ms);
    }
    return error;
  };
  if (reply->count != specs.size()) {
    return give_back(fail(Errc::kUnavailable, Reason::kMalformed,
                          "{}: {} blocks were asked for and the broker made {}", what, specs.size(),
                          reply->count));
  }
  if (fds.size() != specs.size()) return give_back(too_few_descriptors(what));
  for (std::size_t i = 0; i < specs.size(); ++i) {
    auto memory = check_memory(fds[i].get(), what, specs[i].size);
    if (!memory) return give_back(memory.error());
  }

  std::vector<Minted> minted;
  minted.reserve(specs.size());
  for (std::size_t i = 0; i < specs.size(); ++i) {
    const std::uint64_t block = state_->next_block++;
    state_->blocks.emplace(block, reply->blocks[i]);
    minted.push_back({.block = block, .fd = std::move(fds[i]), .backing = reply->backing[i]});
  }
  return minted;
}

Result<void> Client::free(std::uint64_t block, bool exported) {
  const std::lock_guard lock(state_->mutex);
  const auto found = state_->blocks.find(block);
  if (found == state_->blocks.end()) return state_->unknown_block(block);
  const wire::Free request{found->second};
  if (!exported) {
    state_->blocks.erase(found);
    auto told = state_->tell(request, state_->limit_ms);
    return state_->broker_hung_up ? Result<void>() : told;
  }
  const auto reply = state_->call(request, fmt::format("free of block {}", block), false);
  if (reply) {
    state_->blocks.erase(block);
    return {};
  }
  // With its broker the block is gone, and so is every key of it.
  if (state_->broker_hung_up) return {};
  return reply.error();
}

Result<wire::ExportReply> Client::export_range(const ExportRequest& request) {
  const std::lock_guard lock(state_->mutex);
  const auto found = state_->blocks.find(request.block);
  if (found == state_->blocks.end()) return state_->unknown_block(request.block);
  const auto reply = state_->call(wire::Export{.block = found->second,
                                               .offset = request.offset,
                                               .size = request.size,
                                               .reported_size = request.reported_size,
                                               .flags = request.flags,
                                               .reserved = 0},
                                  fmt::format("export of {} bytes at offset {} of block {}",
                                              request.size, request.offset, request.block),
                                  false);
  if (!reply && state_->broker_hung_up) {
    return state_->unknown_block(request.block);
  }
  return reply;
}

Result<void> Client::State::withdraw(const wire::KeyText& key, const Subject& what) {
  const auto reply = call(wire::Withdraw{key}, what, true);
  if (!reply) return reply.error();
  return {};
}

Result<void> Client::withdraw(const char* key) {
  const std::lock_guard lock(state_->mutex);
  return state_->withdraw(wire::key_text(key), Subject("withdrawal", key));
}

Result<void> Client::withdraw(const HandleName& name) {
  const std::lock_guard lock(state_->mutex);
  return state_->withdraw(name.text(), Subject("withdrawal", name));
}

Result<wire::ExportHandleReply> Client::export_handle(std::uint64_t block, std::uint32_t flags) {
  const std::lock_guard lock(state_->mutex);
  const std::string what = fmt::format("export of block {} as a shareable handle", block);
  if (address_.mode == BrokerMode::kNone) {
    return to_error(Reason::kNoBroker, {}, state_->context(what));
  }
  const auto found = state_->blocks.find(block);
  if (found == state_->blocks.end()) return state_->unknown_block(block);
  const auto reply = state_->call(
      wire::ExportHandle{.block = found->second, .flags = flags, .reserved = 0}, what, false);
  if (!reply && state_->broker_hung_up) return state_->unknown_block(block);
  return reply;
}

Result<std::uint64_t> Client::charge(std::uint64_t block, std::uint64_t bytes) {
  const std::lock_guard lock(state_->mutex);
  const auto found = state_->blocks.find(block);
  if (found == state_->blocks.end()) return state_->unknown_block(block);
  const auto reply =
      state_->call(wire::Charge{.block = found->second, .bytes = bytes},
                   fmt::format("use of {} bytes of sparse block {}", bytes, block), false);
  if (!reply && state_->broker_hung_up) return state_->unknown_block(block);
  if (!reply) return reply.error();
  return reply->charged;
}

Result<void> Client::end_all(std::uint64_t block) {
  const std::lock_guard lock(state_->mutex);
  const auto found = state_->blocks.find(block);
  if (found == state_->blocks.end()) return state_->unknown_block(block);
  const auto reply = state_->call(wire::EndAll{found->second},
                                  fmt::format("end of the keys of block {}", block), false);
  // With its broker every key of it is gone.
  if (!reply && !state_->broker_hung_up) return reply.error();
  return {};
}

Result<void> Client::end_range(std::uint64_t block, std::uint64_t offset, std::uint64_t size) {
  const std::lock_guard lock(state_->mutex);
  const auto found = state_->blocks.find(block);
  if (found == state_->blocks.end()) return state_->unknown_block(block);
  const auto reply = state_->call(
      wire::EndRange{.block = found->second, .offset = offset, .size = size},
      fmt::format("end of the keys of {} bytes at offset {} of block {}", size, offset, block),
      false);
  if (!reply && !state_->broker_hung_up) return reply.error();
  return {};
}

Result<Client::Grant> Client::import(const char* key, std::uint32_t access) {
  const std::lock_guard lock(state_->mutex);
  return state_->import(wire::key_text(key), access, Subject("import", key));
}

Result<Client::Grant> Client::import(const HandleName& name, std::uint32_t access) {
  const std::lock_guard lock(state_->mutex);
  return state_->import(name.text(), access, Subject("import", name));
}

Result<Client::Grant> Client::State::import(const wire::KeyText& key, std::uint32_t access,
                                            const Subject& what) {
  std::vector<UniqueFd> fds;
  const auto reply =
      call(wire::Import{.key = key, .access = access, .flags = as_anybody ? wire::kAsAnybody : 0U},
           what, true, &fds);
  if (!reply) return reply.error();
  const auto give_back = [&](const Error& error) {
    fds.clear();
    (void)tell(wire::Close{reply->share}, limit_ms);
    return error;
  };
  if (fds.empty()) return give_back(too_few_descriptors(what));
  if (auto granted = check_grant(fds[0].get(), *reply, access, what); !granted) {
    return give_back(granted.error());
  }
  return Grant{
      .fd = std::move(fds[0]), .reply = *reply, .generation = generation.load(), .status = status};
}

Result<std::vector<Result<wire::ExportReply>>> Client::export_batch(
    std::span<const ExportRequest> requests) {
  const std::lock_guard lock(state_->mutex);
  std::vector<Result<wire::ExportReply>> results;
  wire::Batch<wire::Export> batch;
  for (const ExportRequest& request : requests) {
    const auto found = state_->blocks.find(request.block);
    // Refused here, it would not be recorded: the broker knows no block 0, and says so.
    batch.items.push_back({.block = found == state_->blocks.end() ? 0 : found->second,
                           .offset = request.offset,
                           .size = request.size,
                           .reported_size = request.reported_size,
                           .flags = request.flags,
                           .reserved = 0});
  }
  auto reply =
      state_->call(batch, fmt::format("export of {} ranges at once", requests.size()), false);
  if (!reply && state_->broker_hung_up) return state_->unknown_block(requests.front().block);
  if (!reply) return reply.error();
  if (reply->items.size() != requests.size()) return state_->miscounted(wire::Kind::kExportBatch);
  results.reserve(requests.size());
  for (std::size_t i = 0; i < requests.size(); ++i) {
    const wire::Outcome<wire::Export>& outcome = reply->items[i];
    if (outcome.refusal.reason == 0) {
      results.emplace_back(outcome.reply);
    } else if (!state_->blocks.contains(requests[i].block)) {
      results.emplace_back(state_->unknown_block(requests[i].block));
    } else {
      const std::string what = fmt::format("export of {} bytes at offset {} of block {}",
                                           requests[i].size, requests[i].offset, requests[i].block);
      results.emplace_back(to_error(outcome.refusal, state_->context(what)));
    }
  }
  return results;
}

Result<std::vector<Result<Client::Grant>>> Client::import_batch(std::span<const char* const> keys,
                                                                std::uint32_t access) {
  const std::lock_guard lock(state_->mutex);
  wire::Batch<wire::Import> batch;
  for (const char* key : keys)
    batch.items.push_back({.key = wire::key_text(key),
                           .access = access,
                           .flags = state_->as_anybody ? wire::kAsAnybody : 0U});
  std::vector<UniqueFd> fds;
  auto reply =
      state_->call(batch, fmt::format("import of {} keys at once", keys.size()), true, &fds);
  if (!reply) return reply.error();
  if (reply->items.size() != keys.size()) return state_->miscounted(wire::Kind::kImportBatch);
  std::vector<Result<Grant>> results;
  results.reserve(keys.size());
  std::size_t next = 0;  // Of the descriptors.
  for (std::size_t i = 0; i < keys.size(); ++i) {
    const wire::Outcome<wire::Import>& outcome = reply->items[i];
    const Subject what("import", keys[i]);
    if (outcome.refusal.reason != 0) {
      results.emplace_back(to_error(outcome.refusal, state_->context(what.words())));
      continue;
    }
    const auto give_back = [&](const Error& error) {
      if (state_->socket) {
        (void)state_->tell(wire::Close{outcome.reply.share}, state_->limit_ms);
      }
      results.emplace_back(error);
    };
    if (next == fds.size()) {
      give_back(too_few_descriptors(what));
      continue;
    }
    UniqueFd fd = std::move(fds[next++]);
    if (auto granted = check_grant(fd.get(), outcome.reply, access, what); !granted) {
      fd.reset();
      give_back(granted.error());
      continue;
    }
    results.emplace_back(Grant{.fd = std::move(fd),
                               .reply = outcome.reply,
                               .generation = state_->generation.load(),
                               .status = state_->status});
  }
  return results;
}

void Client::close(const Held& import) {
  {
    const std::lock_guard lock(state_->mutex);
    const bool ours = state_->socket && import.generation == state_->generation.load();
    // Lost on the way, the session is lost, and the import with it.
    if (ours) {
      state_->closes.items.push_back({import.share});
      const bool full = state_->closes.items.size() == wire::kMaxBatch;
      if (state_->collecting == 0 || full) state_->say_closes();
    }
  }
  closed_(import.share);
}

Client::ClosesTogether::ClosesTogether(Client& client) : client_(client) {
  const std::lock_guard lock(client_.state_->mutex);
  ++client_.state_->collecting;
}

Client::ClosesTogether::~ClosesTogether() {
  const std::lock_guard lock(client_.state_->mutex);
  if (--client_.state_->collecting == 0) client_.state_->say_closes();
}

Result<wire::ListPidReply> Client::list_pids(const char* key, std::span<const std::int32_t> pids) {
  const std::lock_guard lock(state_->mutex);
  return state_->list_pids(wire::key_text(key), pids, Subject("whitelist", key));
}

Result<wire::ListPidReply> Client::list_pids(const HandleName& name,
                                             std::span<const std::int32_t> pids) {
  const std::lock_guard lock(state_->mutex);
  return state_->list_pids(name.text(), pids, Subject("whitelist", name));
}

Result<wire::ListPidReply> Client::State::list_pids(const wire::KeyText& key,
                                                    std::span<const std::int32_t> pids,
                                                    const Subject& what) {
  if (pids.empty() || pids.size() > wire::kMaxListPids) {
    return fail(Errc::kInvalidArgument, Reason::kMalformed,
                "{} pids were given; 1 to {} fit in one call", pids.size(), wire::kMaxListPids);
  }
  wire::ListPid request{};
  request.key = key;
  request.count = static_cast<std::uint32_t>(pids.size());
  std::copy(pids.begin(), pids.end(), request.pids.begin());
  return call(request, what, true);
}

Result<wire::ListPidReply> Client::list_process(const char* key, std::uint64_t pidfs_inode) {
  const Subject what("whitelist", key);
  const std::lock_guard lock(state_->mutex);
  return state_->call(wire::ListProcess{.key = wire::key_text(key), .pidfs_inode = pidfs_inode},
                      what, true);
}

Result<wire::StatReply> Client::stat(std::uint32_t device) {
  const std::lock_guard lock(state_->mutex);
  return state_->call(wire::Stat{.device = device, .reserved = 0},
                      fmt::format("counters of device {}", device), true);
}

Result<std::vector<wire::ListReply>> Client::list() {
  // The contract's limit of keys on every device there can be.
  constexpr std::size_t kMost = std::size_t{64} * 65536;
  const std::lock_guard lock(state_->mutex);
  std::vector<wire::ListReply> found;
  std::uint64_t after = 0;
  while (found.size() < kMost) {
    const auto reply =
        state_->call(wire::List{.after = after}, std::string("listing of exports"), true);
    if (!reply) return reply.error();
    if (reply->share == 0) break;
    after = reply->share;
    found.push_back(*reply);
  }
  return found;
}

Result<wire::ListReply> Client::watch(const char* key, wire::WatchMode mode) {
  const Subject what("query", key);
  const std::lock_guard lock(state_->mutex);
  return state_->call(
      wire::Watch{.key = wire::key_text(key), .share = 0, .mode = mode, .reserved = 0}, what, true);
}

Result<wire::ListReply> Client::watch(std::uint64_t share, wire::WatchMode mode) {
  const std::lock_guard lock(state_->mutex);
  return state_->call(wire::Watch{.key = {}, .share = share, .mode = mode, .reserved = 0},
                      std::string("query of a share"), true);
}

Result<Client::Line> Client::attach() {
  const std::lock_guard lock(state_->mutex);
  return state_->attach();
}

Result<std::vector<wire::UsageReply>> Client::usage() {
  constexpr std::size_t kMost = std::size_t{64} * 65536;
  const std::lock_guard lock(state_->mutex);
  std::vector<wire::UsageReply> found;
  wire::Usage next{};
  while (found.size() < kMost) {
    const auto reply = state_->call(next, std::string("listing of usage"), true);
    if (!reply) return reply.error();
    if (reply->session == 0) break;
    next = {.session = reply->session, .device = reply->device, .reserved = 0};
    found.push_back(*reply);
  }
  return found;
}

void Client::report_usage_with(UsageWriter writer) {
  const std::lock_guard lock(state_->mutex);
  state_->usage_writer = std::move(writer);
  if (state_->usage) state_->usage_writer(state_->usage);
}

void Client::State::report(Reason reason, std::uint64_t what, std::uint64_t size) {
  if (!socket) return;
  const auto now = std::chrono::steady_clock::now();
  if (now - report_window >= std::chrono::seconds(1)) {
    report_window = now;
    reports = 0;
  }
  if (reports == kReportsPerSecond) return;
  ++reports;
  (void)tell(wire::Report{.reason = static_cast<std::uint32_t>(reason),
                          .reserved = 0,
                          .address = what,
                          .size = size},
             0);
}

void Client::report(Reason reason, const void* address, std::uint64_t size) {
  const std::lock_guard lock(state_->mutex);
  state_->report(reason, reinterpret_cast<std::uintptr_t>(address), size);
}

void Client::report_imported(std::uint64_t share, std::uint64_t size) {
  const std::lock_guard lock(state_->mutex);
  state_->report(Reason::kImportedMemory, share, size);
}

std::uint64_t Client::generation() const { return state_->generation.load(); }

void Client::forget_after_fork() {
  State* parents = state_;
  // Our copy of the descriptor goes, unless the parent was just closing or had lost it: then the
  // number may be somebody else's.
  const int copy = parents->socket.get();
  const auto facts = os::facts_of(copy);
  if (facts && facts->inode == parents->socket_facts.inode &&
      facts->device == parents->socket_facts.device) {
    ::close(copy);
  }
  state_ = new State(address_);
  state_->parents = parents;
  state_->generation = parents->generation.load() + 1;
  state_->next_block = parents->next_block;
}

}  // namespace hufu::share
