#pragma once

// The broker's protocol, without its sockets: a packet and its sender's credentials in, an answer
// out.
//
// A grant always goes the same way, and in this order: decide (policy), write the record (audit),
// change the books (ledger), answer. What cannot be recorded is not granted. An answer that cannot
// be delivered is taken back with undelivered().
//
// One thread. Nothing here blocks on a peer; the record's write is the only I/O on the way.
// Which file answers which request: broker/core_parts.h.

#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <variant>
#include <vector>

#include "audit/log.h"
#include "broker/committer.h"
#include "broker/key_seal.h"
#include "broker/ledger.h"
#include "broker/limits.h"
#include "broker/reaper.h"
#include "broker/records.h"
#include "os/process.h"
#include "policy/decide.h"
#include "wire/codec.h"

namespace hufu::broker {

struct CoreOptions {
  policy::BrokerMode mode = policy::BrokerMode::kPersonal;
  std::uint32_t devices = 4;
  std::uint64_t device_capacity = 0;
  Limits limits;
  policy::OverflowIds overflow;
  Keeper* keeper = nullptr;  // Of slots; a broker without one begins anew when it is restarted.
  std::int32_t pid = 0;
  std::uint32_t uid = 0;
  std::chrono::nanoseconds silence =
      std::chrono::seconds(5);  // From connecting to HELLO or ATTACH.
};

// What goes back to the peer.
struct Answer {
  std::optional<wire::Frame> frame;  // Nothing after a one-way message.
  std::vector<UniqueFd> fds;
  bool hang_up = false;
  bool later = false;  // There will be one; see take_ready().
  // What undelivered() would take back.
  std::vector<ShareId> granted;
  std::vector<BlockId> minted;
};

using DigestKey = std::array<std::uint8_t, 16>;

class Core {
 public:
  // `life` has been claimed by a thread that lives as long as the broker.
  Core(const CoreOptions& options, KeySeal seal, os::PublishedMemory life, audit::Log& log,
       Committer& committer, Reaper& reaper);

  // Nothing when the connection is let in; else what to say before hanging up: its user has too
  // many.
  std::optional<wire::Frame> open(SessionId id, os::PeerIdentity who);
  Answer handle(SessionId id, std::span<const std::byte> packet, const os::Credentials& sender);
  void undelivered(SessionId id, const Answer& answer);
  // The process ended, hung up or said BYE. Safe to call for a session that is already over.
  void end(SessionId id);

  // Events that handle() and end() gave rise to, for agent connections. One that cannot be sent
  // ends its agent connection: the client attaches again and asks how things are.
  struct Telling {
    SessionId agent = 0;
    wire::Frame frame;
  };
  std::vector<Telling> take_tellings();

  // What is due by now and answers nobody: connections that said nothing are superseded, the kernel
  // is asked again where it had said that a dead process holds memory. take_ready() is apart.
  void keep_time();
  // Nobody will ask again: what is in doubt is written as it was.
  void settle_doubts();

  // Answers of requests that had to wait, each due now. Until then its session asks nothing else.
  std::vector<std::pair<SessionId, Answer>> take_ready();
  // How long until something of the two is due at the latest; nothing when nothing waits.
  std::optional<std::chrono::nanoseconds> next_due_in() const;

  // What can wait until nobody asks for anything: files for importers to come are opened.
  bool has_spare_work() const { return !wanted_.empty(); }
  void do_spare_work();

  // Sessions that are over although their sockets are not: their process said HELLO again, or they
  // never did. The server closes the sockets.
  std::vector<SessionId> take_superseded();

  const Ledger& ledger() const { return ledger_; }

 private:
  struct Asking;  // The session and the request being answered.

  Answer answer(Asking& asking, const wire::Hello& hello);
  Answer answer(Asking& asking, const wire::Attach& attach);
  Answer answer(Asking& asking, const wire::Watch& watch);
  Answer answer(Asking& asking, const wire::Mint& mint);
  Answer answer(Asking& asking, const wire::Free& free);
  Answer answer(Asking& asking, const wire::Export& request);
  Answer answer(Asking& asking, const wire::ExportHandle& request);
  Answer answer(Asking& asking, const wire::Charge& charge);
  Answer answer(Asking& asking, const wire::Withdraw& withdraw);
  Answer answer(Asking& asking, const wire::EndAll& end);
  Answer answer(Asking& asking, const wire::EndRange& end);
  Answer answer(Asking& asking, const wire::Import& import);
  Answer answer(Asking& asking, const wire::Close& close);
  Answer answer(Asking& asking, const wire::ListPid& list);
  Answer answer(Asking& asking, const wire::ListProcess& list);
  Answer answer(Asking& asking, const wire::Stat& stat);
  Answer answer(Asking& asking, const wire::Report& report);
  Answer answer(Asking& asking, const wire::List& list);
  Answer answer(Asking& asking, const wire::Usage& usage);
  Answer answer(Asking& asking, const wire::Bye& bye);
  template <class R>
  Answer answer(Asking& asking, const wire::Batch<R>& batch);

  // What needs memory of a device: what it needs, what there is, and what is done when it fits.
  struct Room {
    std::uint64_t asked;
    std::uint64_t free;
    std::uint32_t device;
    bool enough() const { return asked <= free; }
  };
  Room room_for(const wire::Mint& mint);
  Room room_for(const wire::Charge& charge);
  Room room_on(std::uint32_t device, std::uint64_t asked) const;
  policy::Verdict quota_for(const Session& session, const wire::Mint& mint) const;
  static policy::Verdict quota_for(const Session& /*session*/, const wire::Charge& /*charge*/) {
    return {};
  }
  Answer carry_out(Asking& asking, const wire::Mint& mint);
  Answer carry_out(Asking& asking, const wire::Charge& charge);
  template <class R>
  Answer when_it_fits(Asking& asking, const R& request);
  Answer decline_for_room(const Asking& asking, const Room& room) const;
  // Asks the others for what they hold in reserve (D11); false when there is nobody to ask.
  bool ask_for_memory(SessionId asker);

  // Finds the share that a key text opens; the refusal says why there is none.
  struct Found {
    Share* share = nullptr;
    policy::Verdict verdict;
    audit::Id128 key_id{};  // Of a key without a share; else describe() knows it.
  };
  Found find(const wire::KeyText& text);
  policy::ShareFacts facts_of(const Share& share, const Block& block,
                              std::vector<policy::Listed>& listed) const;
  policy::Verdict seal_for_export(Block& block, Access access);
  // The way of both kinds of export; the refusal is made when there is no share.
  struct Shared {
    Share* share = nullptr;
    std::array<char, 64> key{};
    Answer refused;
  };
  Shared share_range(Asking& asking, const wire::Export& request);
  void end_shares(Asking& asking, const Block& block, policy::Range within);

  Answer list_processes(Asking& asking, const wire::KeyText& key,
                        std::vector<ListedProcess> wanted);

  // Writes the refusal's record (within the user's budget) and makes the answer.
  Answer refuse(Asking& asking, audit::Type asked, const policy::Verdict& verdict,
                audit::Record record);
  Answer refuse(Asking& asking, audit::Type asked, const policy::Verdict& verdict);
  // `bytes`: how many the failed call was about, where that matters.
  Answer refuse_system(Asking& asking, audit::Type asked, const Error& error,
                       std::uint64_t bytes = 0);
  // The same without a record: nothing was attempted that concerns anybody's memory.
  static Answer decline(const Asking& asking, const policy::Verdict& verdict, int sys_errno = 0);
  // The last request came again: the same answer, with descriptors taken afresh from the books.
  Answer repeat(Asking& asking, const wire::Request& request);
  template <class Request>
  static Answer reply(const Asking& asking, const typename wire::Protocol<Request>::Reply& body);
  bool recorded(std::span<audit::Record> records);
  bool recorded(audit::Record& record) { return recorded({&record, 1}); }
  // Ends one hold of a session, with what its importer said about it, if anything. When it was the
  // block's last one, the kernel is asked whether anybody holds the memory all the same.
  void release(Session& session, Share& share, std::span<const audit::Record> claim);
  std::optional<audit::Record> proof_of_release(const Session& session, const Share& share,
                                                Block& block);
  // A process's socket ends before its mappings are taken down, so that the kernel may say of one
  // that has just ended that it holds its memory still.
  struct Doubt {
    audit::Record record;  // STILL_HELD, as of the end.
    BlockId block;
    std::optional<os::HolderProbe> file;  // Of a block that went with its last holder.
    int asked = 1;
    std::uint64_t due_ns = 0;
  };
  audit::Type released(const audit::Record& record) const;
  bool may_doubt(const audit::Record& proof) const;
  void doubt(Block& block, const audit::Record& proof);
  // True when there is nothing left to find out.
  bool ask_again(Doubt& doubt);
  void heard(SessionId id);
  // A file for an importer: the one opened ahead, or a fresh one.
  Result<UniqueFd> take_file(Block& block, Access access);
  bool open_ahead(Block& block);
  void want_ahead(const Block& block);
  // To whoever watches the share and has an agent.
  void tell(const Share& share, wire::EventKind what);
  wire::ListReply listing_of(const Share& share);
  wire::UsageReply usage_of(const Session& session, std::uint32_t device) const;

  CoreOptions options_;
  KeySeal seal_;
  audit::Log& log_;
  Committer& committer_;
  Reaper& reaper_;
  Ledger ledger_;
  RefusalBudget refusals_;
  std::vector<SessionId> superseded_;
  std::vector<Telling> tellings_;
  // MINTs and CHARGEs that do not fit yet. One for each session at most, and not many:
  // kMostWaiting.
  struct Waiting {
    SessionId session;
    std::uint64_t request;
    std::uint64_t digest;
    std::variant<wire::Mint, wire::Charge> wanted;
    std::uint64_t due_ns;
  };
  std::vector<Waiting> waiting_;
  std::unordered_map<SessionId, SessionId> agents_;  // Agent connection to its session.
  std::vector<Doubt> doubts_;
  // Connections that have said neither HELLO nor ATTACH, oldest first.
  struct Silent {
    SessionId session;
    std::uint32_t uid;
    std::uint64_t due_ns;
  };
  std::deque<Silent> silent_;
  DigestKey digest_key_;
  bool leases_work_;            // Tried once, at start.
  std::deque<BlockId> ahead_;   // Blocks that have a file opened ahead, oldest first.
  std::deque<BlockId> wanted_;  // Those that shall get one when there is nothing to do.
  os::PublishedMemory life_;
};

}  // namespace hufu::broker
