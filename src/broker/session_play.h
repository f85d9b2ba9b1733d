#pragma once

// For tests: bytes, as a play of several sessions with a Core.
//
// Every byte string is a play: processes of two users connect, say what clients say (or that with
// bits flipped, or again, or on another's connection), die, and have answers that do not arrive.
// After each act the books must be what broker/ledger.h promises and what the quotas allow; at the
// end all leave, and nothing may be kept. The fuzz target feeds a play what libFuzzer invents, the
// unit test what a generator of random numbers does.
//
// The play does what broker/server.cc does with a Core's answers, without sockets.

#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "broker/core.h"
#include "broker/ledger_check.h"

namespace hufu::broker {

// What is too dear to be made for each play.
class Stage {
 public:
  Stage() {
    char name[] = "/tmp/hufu-play-XXXXXX";
    directory_ = ::mkdtemp(name);
    log_ = std::make_unique<audit::Log>(
        std::move(*audit::Log::open({.directory = directory_, .version = "play"})));
    committer_ = std::make_unique<Committer>(*log_);
    self_ = std::move(*os::open_pidfd(::getpid()));
  }
  ~Stage() {
    committer_.reset();
    log_.reset();
    std::filesystem::remove_all(directory_);
  }
  Stage(const Stage&) = delete;
  Stage& operator=(const Stage&) = delete;

  std::unique_ptr<Core> core(const CoreOptions& options) {
    return std::make_unique<Core>(options, std::move(*KeySeal::make()),
                                  std::move(*os::PublishedMemory::make("life", 4096)), *log_,
                                  *committer_, reaper_);
  }
  UniqueFd living_process() const { return UniqueFd(::fcntl(self_.get(), F_DUPFD_CLOEXEC, 0)); }

 private:
  std::string directory_;
  std::unique_ptr<audit::Log> log_;
  std::unique_ptr<Committer> committer_;
  Reaper reaper_;
  UniqueFd self_;
};

class SessionPlay {
 public:
  SessionPlay(Stage& stage, std::span<const std::uint8_t> script)
      : stage_(stage), script_(script), core_(stage.core(options(next()))) {}

  // What went wrong, or nothing.
  std::string run() {
    while (!script_.empty() && trouble_.empty()) {
      act();
      settle();
      check();
    }
    while (!connections_.empty() && trouble_.empty()) {
      leave(connections_.begin()->first);
      settle();
      check();
    }
    const Ledger& ledger = core_->ledger();
    const bool empty = ledger.sessions() + ledger.blocks() + ledger.shares() == 0;
    if (trouble_.empty() && !empty) trouble_ = "something is kept for nobody";
    return trouble_;
  }

  // How much of a play came to something: a test of nothing but refusals proves little.
  struct Tally {
    std::uint64_t granted = 0;  // Imports.
    std::uint64_t refused = 0;
    std::uint64_t repeated = 0;
    std::uint64_t told = 0;
    std::uint64_t superseded = 0;
    std::uint64_t over_quota = 0;
    std::uint64_t put_off = 0;
    std::uint64_t by_handle = 0;  // Imports too.
    std::uint64_t charged = 0;    // CHARGEs.
  };
  const Tally& tally() const { return tally_; }

 private:
  struct Connection {
    os::Credentials who;
    std::uint64_t request = 0;
    std::vector<std::byte> last;  // Packet.
    bool listens = false;         // An agent's: it ends when it says something.
    bool waits = false;           // For an answer that comes later; nobody reads its socket.
  };

  static constexpr std::uint64_t kPage = 4096;
  // Little, so that it is fought for: with one big block, or a sparse one in use, less still.
  static constexpr std::uint64_t kBig = wire::kChargeUnit;
  static constexpr std::uint64_t kCapacity = kBig + 8 * kPage;
  static Limits limits() {
    return {.sessions_per_uid = 4,
            .blocks_per_uid = 9,
            .shares_per_uid = 12,
            .holds_per_uid = 8,
            .listed_per_uid = 3,
            .exports_per_session = 7,
            .blocks = 14};
  }
  static CoreOptions options(std::uint8_t byte) {
    return {.mode = byte % 2 == 0 ? policy::BrokerMode::kPersonal : policy::BrokerMode::kSystem,
            .devices = 2,
            .device_capacity = kCapacity,
            .limits = limits(),
            .uid = 1000};
  }

  std::uint8_t next() {
    if (script_.empty()) return 0;
    const std::uint8_t byte = script_.front();
    script_ = script_.subspan(1);
    return byte;
  }
  template <class T>
  const T* any(const std::vector<T>& from) {
    return from.empty() ? nullptr : &from[next() % from.size()];
  }
  // Mostly one that may speak.
  SessionId any_connection() {
    const bool anybody = next() % 16 == 0;
    std::vector<SessionId> open;
    for (const auto& [id, connection] : connections_) {
      if (anybody || !(connection.listens || connection.waits)) open.push_back(id);
    }
    const auto* found = any(open);
    return found == nullptr ? 1 : *found;
  }
  // Mostly one that lives. By the order in which they were made, never by their numbers, which are
  // others in each run.
  template <class T, class Lives>
  const T* any_living(const std::vector<T>& from, Lives lives) {
    if (next() % 8 == 0) return any(from);
    std::vector<const T*> living;
    for (const T& one : from) {
      if (lives(one)) living.push_back(&one);
    }
    const auto* found = any(living);
    return found == nullptr ? nullptr : *found;
  }
  std::uint64_t any_block() {
    const auto& blocks = core_->ledger().all_blocks();
    const auto* known = any_living(blocks_, [&](std::uint64_t id) {
      const auto found = blocks.find(id);
      return found != blocks.end() && found->second.owner != 0;
    });
    return known == nullptr ? next() : *known;
  }
  struct Exported {
    std::uint64_t id = 0;
    wire::KeyText key = wire::key_text("no key");
  };
  Exported any_share() {
    const auto* known = any_living(shares_, [&](const Exported& one) {
      return core_->ledger().all_shares().contains(one.id);
    });
    return known == nullptr ? Exported{.id = next()} : *known;
  }

  // The block's owner, mostly.
  SessionId owner_of(std::uint64_t block) {
    const auto found = core_->ledger().all_blocks().find(block);
    const bool honest = next() % 4 != 0;
    const bool owned = found != core_->ledger().all_blocks().end() && found->second.owner != 0;
    return honest && owned ? found->second.owner : any_connection();
  }
  SessionId exporter_of(std::uint64_t share) {
    const auto found = core_->ledger().all_shares().find(share);
    const bool honest = next() % 4 != 0;
    const bool known = found != core_->ledger().all_shares().end();
    return honest && known ? found->second.exporter.session : any_connection();
  }

  void act() {
    switch (next() % 26) {
      case 0:
      case 1:
        connect();
        break;
      case 2:
        // Said twice it ends the session, so seldom.
        if (next() % 8 == 0) say(any_connection(), wire::Hello{});
        break;
      case 3:
        attach();
        break;
      case 4:
      case 5:
      case 6:
        mint();
        break;
      case 7:
      case 8:
      case 9:
        export_some();
        break;
      case 10:
      case 11:
      case 12:
      case 13:
        say(any_connection(),
            wire::Import{
                .key = any_share().key, .access = next() % 4 == 0 ? next() % 4U : 0U, .flags = 0});
        break;
      case 14:
        say(any_connection(), wire::Close{any_share().id}, way());
        break;
      case 15:
        if (const std::uint64_t block = any_block(); next() % 2 == 0) {
          say(owner_of(block), wire::Free{block}, way());
        } else if (next() % 4 == 0) {
          say(owner_of(block), wire::EndAll{block});
        } else if (next() % 4 == 0) {
          say(owner_of(block),
              wire::EndRange{.block = block, .offset = kPage * (next() % 3), .size = kPage});
        }
        break;
      case 16:
        if (const Exported share = any_share(); next() % 2 == 0) {
          say(exporter_of(share.id), wire::Withdraw{share.key});
        }
        break;
      case 17:
        list();
        break;
      case 18:
        watch();
        break;
      case 19:
        again();
        break;
      case 20:
        distort();
        break;
      case 21:
        if (next() % 4 == 0) leave(any_connection());
        break;
      case 22:
        lost_ = next() % 8 == 0;  // The next answer does not arrive.
        break;
      case 23:
        ask_or_complain();
        break;
      case 24:
        export_handle();
        break;
      case 25:
        charge();
        break;
    }
  }

  std::uint16_t way() {
    constexpr std::uint16_t kOneWay = wire::kOneWay;
    return next() % 2 == 0 ? kOneWay : std::uint16_t{0};
  }

  // Nine processes, each of one of two users, and now and then of the other.
  SessionId connect(std::uint8_t byte, bool other_user) {
    os::PeerIdentity peer;
    peer.connected = {.pid = 100 + byte % 9, .uid = 1000U + (byte % 9 + other_user) % 2, .gid = 50};
    peer.pidfs_inode = 5000U + byte % 9;
    peer.groups = {50};
    peer.pidfd = stage_.living_process();
    const SessionId id = next_session_++;
    const os::Credentials who = peer.connected;
    if (core_->open(id, std::move(peer))) {
      ++tally_.over_quota;
    } else {
      connections_[id].who = who;
    }
    return id;
  }
  void connect() {
    const std::uint8_t byte = next();
    if (connections_.size() > 5 && byte % 4 != 0) return;
    const SessionId id = connect(byte, byte / 32 == 0);
    if (next() % 8 != 0) say(id, wire::Hello{});
  }

  // Mostly as a client does: a new connection of the session's process, and its secret.
  void attach() {
    const auto* known = any_living(
        secrets_, [&](const wire::Attach& one) { return connections_.contains(one.session); });
    if (known == nullptr) return;
    wire::Attach attach = *known;
    const auto session = connections_.find(attach.session);
    SessionId agent = any_connection();
    if (session != connections_.end() && next() % 8 != 0) {
      agent = connect(static_cast<std::uint8_t>(session->second.who.pid - 100), false);
    }
    if (next() % 8 == 0) attach.secret[0] ^= 1;
    say(agent, attach);
    if (const auto listens = connections_.find(agent); listens != connections_.end()) {
      listens->second.listens = true;
    }
  }

  void export_some() {
    const std::uint64_t block = any_block();
    const std::uint8_t byte = next();
    wire::Export request{.block = block,
                         .offset = 0,
                         .size = kPage,
                         .reported_size = kPage,
                         .flags = byte % 8 == 0 ? 0U : 1U,
                         .reserved = 0};
    if (byte / 64 == 0) {
      request.offset = next() % 5 * (kPage / 2);
      request.size = kPage * (next() % 4) + next() % 2;
      request.flags = next() % 4U;
    }
    say(owner_of(block), request);
  }

  void export_handle() {
    const std::uint64_t block = any_block();
    const std::uint8_t byte = next();
    say(owner_of(block),
        wire::ExportHandle{
            .block = block, .flags = byte % 8 == 0 ? next() % 4U : 1U, .reserved = 0});
  }

  void charge() {
    const std::uint64_t block = any_block();
    const std::uint8_t byte = next();
    say(owner_of(block),
        wire::Charge{.block = block, .bytes = kBig * (byte % 8 == 0 ? 2U : byte % 2U)});
  }

  void mint() {
    wire::Mint mint{};
    const std::uint8_t byte = next();
    mint.device = byte % 16 == 0 ? 2 : byte % 2;
    mint.count = 1 + next() % 3U;
    for (std::uint32_t i = 0; i < mint.count; ++i)
      mint.specs[i] = {.size = kPage * (1 + next() % 5U), .page = 4096};
    if (const std::uint8_t big = next(); big % 2 == 0) {
      mint.specs[0] = {.size = big % 64 == 0 ? 2 * kBig : kBig,
                       .page = 4096,
                       .flags = big % 4 == 0 ? 0U : std::uint32_t{wire::kSparse}};
    }
    say(any_connection(), mint);
  }

  void list() {
    wire::ListPid list{};
    const Exported share = any_share();
    if (next() % 2 == 0) {
      // One of the play's own, so that it may import.
      say(exporter_of(share.id),
          wire::ListProcess{.key = share.key, .pidfs_inode = 5000U + next() % 9U});
      return;
    }
    list.key = share.key;
    list.count = 1 + next() % 2U;
    const std::int32_t real = next() % 2 == 0 ? ::getpid() : ::getppid();
    for (std::uint32_t i = 0; i < list.count; ++i)
      list.pids[i] = next() % 8 == 0 ? 0x3fffffff : real;
    say(exporter_of(share.id), list);
  }

  void watch() {
    wire::Watch watch{};
    const Exported share = any_share();
    if (next() % 2 == 0) {
      watch.key = share.key;
    } else {
      watch.share = share.id;
    }
    const SessionId id = exporter_of(share.id);
    const std::uint8_t mode = next();
    watch.mode =
        mode % 2 == 0 ? wire::WatchMode::kStart : static_cast<wire::WatchMode>(mode / 2 % 3);
    say(id, watch);
  }

  void ask_or_complain() {
    const SessionId id = any_connection();
    switch (next() % 4) {
      case 0:
        say(id, wire::Stat{.device = next() % 3U, .reserved = 0});
        break;
      case 1:
        say(id, wire::List{.after = next() % 2 == 0 ? 0 : any_share().id});
        break;
      case 2:
        say(id, wire::Report{.reason = 25, .reserved = 0, .address = 7, .size = 1}, way());
        break;
      case 3:
        say(id, wire::Bye{}, way());
        break;
    }
  }

  // The same packet, which must change nothing, or an older one, which must not either.
  void again() {
    const SessionId id = any_connection();
    const auto found = speaker(id);
    if (found == connections_.end() || found->second.last.empty()) return;
    const std::uint32_t uid = found->second.who.uid;
    const Usage before = core_->ledger().usage_of(uid);
    const std::uint64_t used = core_->ledger().used(0) + core_->ledger().used(1);
    ++tally_.repeated;
    lost_ = false;
    const Answer answer = core_->handle(id, found->second.last, found->second.who);
    if (core_->ledger().usage_of(uid) != before ||
        core_->ledger().used(0) + core_->ledger().used(1) != used) {
      trouble_ = "a repeated request was carried out again";
    }
    if (!answer.granted.empty() || !answer.minted.empty()) trouble_ = "a repetition grants";
    if (answer.hang_up) leave(id);
  }

  void distort() {
    const SessionId id = any_connection();
    const auto found = speaker(id);
    if (found == connections_.end() || found->second.last.empty()) return;
    std::vector<std::byte> packet = found->second.last;
    if (next() % 2 == 0) {
      // A new number, so that it is judged by what it says.
      const std::uint64_t request = ++found->second.request;
      std::memcpy(packet.data() + offsetof(wire::Header, request), &request, sizeof(request));
    }
    for (int flips = 1 + next() % 3; flips > 0; --flips)
      packet[next() % packet.size()] ^= static_cast<std::byte>(next());
    if (next() % 8 == 0) packet.resize(next() % (packet.size() + 1));
    os::Credentials sender = found->second.who;
    if (next() % 8 == 0) sender.pid += 1;
    hear(id, core_->handle(id, packet, sender));
  }

  template <class R>
  void say(SessionId id, const R& request, std::uint16_t flags = 0) {
    const auto found = speaker(id);
    if (found == connections_.end()) return;
    constexpr wire::Kind kKind = wire::Protocol<R>::kKind;
    const std::uint64_t number = ++found->second.request;
    const wire::Frame frame = [&] {
      if constexpr (std::is_same_v<R, wire::Bye>) {
        return wire::encode(kKind, flags, number, wire::Empty{});
      } else {
        return wire::encode(kKind, flags, number, request);
      }
    }();
    found->second.last.assign(frame.view().begin(), frame.view().end());
    Answer answer = core_->handle(id, frame.view(), found->second.who);
    if constexpr (!std::is_same_v<R, wire::Bye>) {
      if (answer.frame) learn(wire::decode_reply<R>(answer.frame->view(), number), answer, request);
    }
    hear(id, answer);
  }

  // What a client does with an answer: remembers names, commits memory.
  template <class R>
  void learn(const std::optional<wire::Answer<R>>& decoded, const Answer& answer,
             const R& request) {
    if (!decoded) {
      trouble_ = fmt::format("the answer to kind {} does not decode",
                             static_cast<int>(wire::Protocol<R>::kKind));
      return;
    }
    if (const auto* refusal = std::get_if<wire::Refusal>(&*decoded)) {
      ++tally_.refused;
      const auto reason = static_cast<Reason>(refusal->reason);
      if (reason >= Reason::kTooManyExports && reason <= Reason::kTooManyListed) {
        ++tally_.over_quota;
      }
      if (!answer.fds.empty() || !answer.granted.empty()) trouble_ = "a refusal that grants";
      return;
    }
    using Reply = typename wire::Protocol<R>::Reply;
    const Reply& reply = std::get<Reply>(*decoded);
    std::size_t due = 0;
    if constexpr (std::is_same_v<R, wire::Hello>) {
      due = wire::kHelloDescriptors;
      secrets_.push_back({.session = reply.session, .secret = reply.secret});
    } else if constexpr (std::is_same_v<R, wire::Mint>) {
      due = reply.count;
      for (std::uint32_t i = 0; i < reply.count && i < answer.fds.size(); ++i) {
        blocks_.push_back(reply.blocks[i]);
        if (request.specs[i].size == kBig) continue;
        const std::vector<char> bytes(request.specs[i].size, 'x');
        if (::pwrite(answer.fds[i].get(), bytes.data(), bytes.size(), 0) < 0) {
          trouble_ = "a block cannot be written";
        }
      }
    } else if constexpr (std::is_same_v<R, wire::Export>) {
      const std::string key(reply.key.data(), reply.key.size());
      shares_.push_back({.id = reply.share, .key = wire::key_text(key.c_str())});
    } else if constexpr (std::is_same_v<R, wire::ExportHandle>) {
      const std::string key(reply.key.data(), reply.key.size());
      shares_.push_back(
          {.id = reply.share,
           .key = next() % 2 == 0 ? wire::text_of_token(reply.token) : wire::text_of_fabric(key)});
    } else if constexpr (std::is_same_v<R, wire::Charge>) {
      ++tally_.charged;
    } else if constexpr (std::is_same_v<R, wire::Import>) {
      due = 1;
      ++tally_.granted;
      if (request.key.length >= wire::kFabricForm) ++tally_.by_handle;
    }
    if (answer.fds.size() != due) trouble_ = "an answer with too many or too few descriptors";
  }

  std::map<SessionId, Connection>::iterator speaker(SessionId id) {
    const auto found = connections_.find(id);
    return found == connections_.end() || found->second.waits ? connections_.end() : found;
  }

  // As Server::deliver() does.
  void hear(SessionId id, const Answer& answer) {
    if (answer.later) {
      if (answer.frame || !answer.fds.empty()) trouble_ = "an answer now and later";
      connections_.at(id).waits = true;
      ++tally_.put_off;
      return;
    }
    const bool lost = std::exchange(lost_, false) && answer.frame;
    if (lost) core_->undelivered(id, answer);
    if (lost || answer.hang_up) leave(id);
  }

  // As Server::close() does.
  void leave(SessionId id) {
    if (connections_.erase(id) != 0) core_->end(id);
  }

  // As Server::pass_on() does.
  void settle() {
    core_->keep_time();
    if (++settled_ % 16 == 0) core_->do_spare_work();
    for (;;) {
      const auto superseded = core_->take_superseded();
      tally_.superseded += superseded.size();
      for (const SessionId gone : superseded)
        leave(gone);
      const auto tellings = core_->take_tellings();
      const auto ready = core_->take_ready();
      if (superseded.empty() && tellings.empty() && ready.empty()) return;
      tally_.told += tellings.size();
      for (const auto& telling : tellings) {
        if (!wire::decode_event(telling.frame.view())) trouble_ = "an event does not decode";
      }
      for (const auto& [id, answer] : ready) {
        const auto asker = connections_.find(id);
        if (asker == connections_.end()) continue;
        if (!asker->second.waits) trouble_ = "an answer nobody waits for";
        asker->second.waits = false;
        for (const BlockId block : answer.minted)
          blocks_.push_back(block);
        hear(id, answer);
      }
    }
  }

  void check() {
    if (!trouble_.empty()) return;
    const Ledger& ledger = core_->ledger();
    trouble_ = contradiction_in(ledger);
    if (ledger.sessions() != connections_.size()) trouble_ = "a session without a connection";
    const Limits most = limits();
    for (const std::uint32_t uid : {1000U, 1001U}) {
      const Usage usage = ledger.usage_of(uid);
      if (usage.connections > most.connections_per_uid() ||
          usage.sessions > most.sessions_per_uid || usage.blocks > most.blocks_per_uid ||
          usage.shares > most.shares_per_uid || usage.holds > most.holds_per_uid ||
          usage.listed > most.listed_per_uid) {
        trouble_ = fmt::format("user {} is over a quota", uid);
      }
    }
    if (ledger.used(0) > kCapacity || ledger.used(1) > kCapacity) trouble_ = "over capacity";
    if (ledger.blocks() > most.blocks) trouble_ = "more blocks than descriptors";
  }

  Stage& stage_;
  std::span<const std::uint8_t> script_;
  std::unique_ptr<Core> core_;
  std::map<SessionId, Connection> connections_;
  SessionId next_session_ = 1;
  std::vector<wire::Attach> secrets_;
  std::vector<std::uint64_t> blocks_;
  std::vector<Exported> shares_;
  bool lost_ = false;
  std::string trouble_;
  int settled_ = 0;
  Tally tally_;
};

}  // namespace hufu::broker
