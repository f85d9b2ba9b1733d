#pragma once

// Who owns which block, who exported what, who holds it: the broker's books.
//
//   Session --owns--> Block <--is a range of-- Share <--holds-- Session (importer)
//
// Always true:
//   * a block exists while its owner has not freed it OR somebody holds a share of it;
//   * used(device) is the sum of what the blocks that exist are charged: their sizes, or of sparse
//     ones what their owners said last;
//   * a token opens a live share, and that share knows it;
//   * a share of a session that ended, or of a freed block, is not live, and never becomes live;
//   * a share is forgotten when it is neither live nor held;
//   * a session holds a share once or not at all (the client counts its own opens, D17);
//   * the status word of a hold says live exactly while the share is;
//   * what a user makes the broker keep is counted under the uid that caused it, whoever owns it
//     now: a freed block that importers hold is still its maker's.
// Each change that must outlive the broker is given to the keeper, if there is one, as a slot
// (broker/slots.h) before the call returns, so before anybody is told; rebuild() makes the books
// from the slots again.
//
// Nothing here does I/O or decides anything. Descriptors of blocks that cease to exist are handed
// out, to be closed where closing may take time.

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <unordered_map>
#include <vector>

#include "base/unique_fd.h"
#include "base/units.h"
#include "broker/slots.h"
#include "broker/status_board.h"
#include "os/memfd.h"
#include "os/process.h"
#include "os/reported.h"
#include "policy/decide.h"
#include "wire/codec.h"
#include "wire/message.h"

namespace hufu::broker {

using SessionId = std::uint64_t;
using BlockId = std::uint64_t;
using ShareId = std::uint64_t;
using PublicId = std::array<std::uint8_t, 16>;
using SecretHash = std::array<std::uint8_t, 16>;

// The last request of a session and what it was answered: sent again, it is not carried out again.
struct Answered {
  std::uint64_t id = 0;
  std::uint64_t digest = 0;          // Of the whole request.
  std::optional<wire::Frame> frame;  // Nothing after a one-way request.
};

struct Session {
  SessionId id = 0;
  os::PeerIdentity who;
  bool greeted = false;
  std::set<BlockId> blocks;                    // Owned.
  std::set<ShareId> exported;                  // Live shares of its blocks.
  std::map<ShareId, StatusBoard::Place> held;  // Imported, with the word that speaks of it.
  std::unique_ptr<StatusBoard> board;          // From HELLO on.
  std::unique_ptr<os::ReportedView> usage;     // What it says it uses; from HELLO on.
  SecretHash secret_hash{};                    // Of what ATTACH and a resume must know.
  std::set<ShareId> watched;                   // Of those it exported or holds.
  SessionId agent = 0;                         // The connection that is told of events; 0: none.
  std::uint64_t asked_to_return_ns = 0;        // When its agent was told to, last.
  std::uint64_t bytes = 0;                     // Of its blocks.
  Answered answered;
  std::uint32_t slot = 0;  // The keeper's number for it; 0: none. So in all of these.

  std::uint32_t uid() const { return who.connected.uid; }
  policy::Process process() const {
    return {.pid = who.connected.pid,
            .pidfs_inode = who.pidfs_inode,
            .uid = who.connected.uid,
            .gid = who.connected.gid,
            .groups = who.groups};
  }
};

struct Block {
  BlockId id = 0;
  SessionId owner = 0;    // 0: freed, kept for those who still hold a share.
  std::uint32_t uid = 0;  // Of who had it made.
  std::uint32_t device = 0;
  std::uint64_t size = 0;
  bool sparse = false;        // Charged by use.
  std::uint64_t charged = 0;  // Of another: its size, from add_block() on.
  PageSize page = PageSize::k4KiB;
  wire::Backing backing = wire::Backing::kShmem;
  UniqueFd fd;  // The original file; importers get fresh reopens of it.
  // Opened ahead: what the kernel is asked with about holders, and what the next importer gets.
  std::optional<os::HolderProbe> ahead;
  std::optional<Access> sealed_for;  // Decided by the first export, for good.
  std::uint32_t held = 0;            // By how many (session, share) pairs.
  std::set<ShareId> shares;          // Live ones.
  std::uint32_t slot = 0;
};

// A process on a whitelist. `pidfd` is held only where inodes do not identify a process.
struct ListedProcess {
  std::int32_t pid = 0;
  std::uint64_t pidfs_inode = 0;
  std::uint64_t start_time = 0;  // Only beside a pidfd.
  UniqueFd pidfd;
  std::uint32_t slot = 0;
};

// Who exported: kept after the session is gone.
struct Exporter {
  SessionId session = 0;
  std::int32_t pid = 0;
  std::uint64_t pidfs_inode = 0;
  std::uint32_t uid = 0;
  std::uint32_t gid = 0;
  std::array<char, 16> name{};
};

struct Share {
  ShareId id = 0;
  BlockId block = 0;
  Exporter exporter;
  policy::Range range;
  std::uint64_t asked_size = 0;  // What the exporter named; range.size rounds it up.
  std::uint32_t flags = 0;       // wire::ExportFlag
  std::uint64_t token = 0;       // Of a live shareable handle; else 0.
  Access access = Access::kReadWrite;
  PublicId public_id{};
  std::uint64_t created_ns = 0;
  bool live = true;
  std::vector<ListedProcess> listed;
  std::set<SessionId> holders;
  std::uint64_t imports = 0;     // So far; never goes down.
  std::set<SessionId> watchers;  // Who is told of its events.
  std::uint32_t slot = 0;
  std::uint32_t token_slot = 0;

  bool whole_block(const Block& of) const { return range.offset == 0 && range.size == of.size; }
};

// How long a wrong token takes to be refused must not tell how near it came.
struct KeyedHash {
  std::array<std::uint8_t, 16> key = random_key();

  static std::array<std::uint8_t, 16> random_key();
  std::size_t operator()(std::uint64_t value) const;
};

// What one user makes the broker keep.
struct Usage {
  std::uint64_t connections = 0;
  std::uint64_t sessions = 0;  // Connections that said HELLO.
  std::uint64_t blocks = 0;
  std::uint64_t shares = 0;  // Live, or held by somebody.
  std::uint64_t holds = 0;
  std::uint64_t listed = 0;  // List entries of its shares.

  friend bool operator==(const Usage&, const Usage&) = default;
};

// What a keeper gives back after a restart.
struct KeptSlot {
  std::uint32_t number = 0;
  SlotBytes bytes{};
  UniqueFd fd;
};

class Ledger {
 public:
  explicit Ledger(std::uint32_t devices, Keeper* keeper = nullptr)
      : used_(devices, 0), slots_(keeper) {}

  // The books that these slots tell of. Slots that are damaged, older than another one of the same
  // thing, or in contradiction with the rest are dropped, from the keeper too: a list entry without
  // its share, a share outside its block, a block without its file.
  //
  // The sessions wait for their processes: not greeted, and without a status board. Nobody holds
  // anything yet; who resumes says what it holds. When all have that will, drop_unclaimed() forgets
  // what is kept for nobody.
  static Ledger rebuild(std::uint32_t devices, std::vector<KeptSlot> kept, Keeper& keeper);
  void drop_unclaimed(std::vector<UniqueFd>& gone);

  Session& open_session(SessionId id, os::PeerIdentity who);
  Session* session(SessionId id);
  // The greeted session with the smallest id from `first` on.
  const Session* greeted_from(SessionId first) const;
  // Of the session's blocks on the device.
  std::uint64_t charged(const Session& session, std::uint32_t device) const;
  std::size_t sessions() const { return sessions_.size(); }
  // HELLO was answered.
  void greet(Session& session, StatusBoard board, const SecretHash& secret_hash);
  Usage usage_of(std::uint32_t uid) const;
  // The other session of the same process, if there is one (it called exec, or lost its socket).
  std::optional<SessionId> twin_of(const Session& session) const;

  Block& add_block(Session& owner, Block block);
  Block* block(BlockId id);
  std::size_t blocks() const { return blocks_.size(); }
  std::uint64_t used(std::uint32_t device) const { return used_[device]; }

  Share& add_share(Session& exporter, Block& block, Share share);
  Share* share(ShareId id);
  Share* share_of_token(std::uint64_t token);
  std::size_t shares() const { return shares_.size(); }
  // The live or held share with the smallest id above `after`.
  const Share* share_after(ShareId after) const;

  void seal_for(Block& block, Access access);
  // A sparse block's, from now on.
  void charge(Block& block, std::uint64_t bytes);
  void list(Share& share, std::vector<ListedProcess> more);

  // For whoever checks the whole.
  const std::unordered_map<SessionId, Session>& all_sessions() const { return sessions_; }
  const std::unordered_map<BlockId, Block>& all_blocks() const { return blocks_; }
  const std::map<ShareId, Share>& all_shares() const { return shares_; }
  const auto& all_tokens() const { return tokens_; }
  std::uint32_t devices() const { return static_cast<std::uint32_t>(used_.size()); }

  // Each of these takes the session's claim away; descriptors of blocks that thereby cease to exist
  // are appended to `gone`.
  void end_share(Share& share);
  void free_block(Session& owner, Block& block, std::vector<UniqueFd>& gone);
  // Null when the session's status memory has no word left. A second hold is the first one.
  const StatusBoard::Place* hold(Session& session, Share& share);
  void let_go(Session& session, Share& share, std::vector<UniqueFd>& gone);
  // Until the share is forgotten, or an importer lets go of it.
  void watch(Session& session, Share& share);
  void unwatch(Session& session, Share& share);
  void end_session(Session& session, std::vector<UniqueFd>& gone);

 private:
  void forget_share_if_over(Share& share);
  void drop_block_if_over(Block& block, std::vector<UniqueFd>& gone);

  void forget_list(Share& share);
  void store(Session& session);
  void store(Block& block);
  void store(Share& share);
  void forget_token(Share& share);
  // Adds to one counter of a user; a user of whom nothing is kept is forgotten.
  void count(std::uint32_t uid, std::uint64_t Usage::*what, std::uint64_t more);
  void uncount(std::uint32_t uid, std::uint64_t Usage::*what, std::uint64_t less);

  std::unordered_map<SessionId, Session> sessions_;
  std::unordered_map<BlockId, Block> blocks_;
  std::map<ShareId, Share> shares_;  // Ordered: `hufu ls` walks it in steps.
  std::unordered_map<std::uint64_t, ShareId, KeyedHash> tokens_;
  std::vector<std::uint64_t> used_;
  std::map<std::uint32_t, Usage> usage_;
  SlotWriter slots_;
};

}  // namespace hufu::broker
