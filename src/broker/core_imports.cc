// Holds: who has been given a share's memory, and whether who gave it back did.

#include <array>
#include <utility>

#include "broker/core_parts.h"
#include "os/memfd.h"

namespace hufu::broker {
namespace {

// A block's file opened ahead is a descriptor each; so many at most, of the broker's own 512.
constexpr std::size_t kMostAhead = 128;
constexpr std::size_t kOpenedAtOnce = 16;

// When the kernel is asked again whether a process that has ended holds its memory: 2, 10 and 42 ms
// after its end. So many are in doubt at most; a descriptor goes with some.
constexpr std::array<std::uint64_t, 3> kAskAgainNs = {2'000'000, 8'000'000, 32'000'000};
constexpr std::size_t kMostDoubts = 64;

}  // namespace

Answer Core::answer(Asking& asking, const wire::Import& import) {
  Session& session = asking.session;
  const Found found = find(import.key);
  audit::Record record =
      record_of(audit::Type::kImport, audit::Outcome::kAllow, session, asking.request);
  record.key_id = found.key_id;
  if (found.share == nullptr) {
    return refuse(asking, audit::Type::kImport, found.verdict, record);
  }
  Share& share = *found.share;
  Block& block = *ledger_.block(share.block);
  describe(record, share, block);
  std::vector<policy::Listed> listed;
  const auto decided = policy::decide_import(
      session.process(), facts_of(share, block, listed),
      {.access = import.access, .as_anybody = (import.flags & wire::kAsAnybody) != 0},
      options_.mode, options_.overflow);
  if (!decided.verdict.allowed()) {
    return refuse(asking, audit::Type::kImport, decided.verdict, record);
  }
  // The file has the range: decide_export() saw to that, and it was sealed against shrinking before
  // anybody else had it.
  auto fd = take_file(block, decided.access);
  if (!fd) return refuse_system(asking, audit::Type::kImport, fd.error());

  const bool repeat = session.held.contains(share.id);
  record.access = decided.access;
  record.refs_after = static_cast<std::uint32_t>(share.holders.size() + (repeat ? 0U : 1U));
  if (repeat) record.flags |= kRecordRepeat;
  if (const std::uint64_t holds = ledger_.usage_of(session.uid()).holds;
      !repeat && holds >= options_.limits.holds_per_uid) {
    return refuse(asking, audit::Type::kImport,
                  no(Reason::kTooManyHolds, holds, options_.limits.holds_per_uid), record);
  }
  const StatusBoard::Place* place = ledger_.hold(session, share);
  if (place == nullptr) {
    return refuse(asking, audit::Type::kImport,
                  no(Reason::kTooManyImports, session.held.size(), wire::kStatusWords - 1), record);
  }
  if (!recorded(record)) {
    std::vector<UniqueFd> gone;
    if (!repeat) ledger_.let_go(session, share, gone);
    return decline(asking, no(Reason::kAuditFailed));
  }

  wire::ImportReply body{};
  body.share = share.id;
  body.offset = share.range.offset;
  body.size = share.range.size;
  body.reported_size = share.asked_size;
  body.status = place->live;
  body.slot = place->slot;
  body.page = static_cast<std::uint32_t>(bytes_of(block.page));
  body.access = static_cast<std::uint32_t>(decided.access);
  body.device = block.device;
  body.exporter_pid = share.exporter.pid;
  body.backing = block.backing;
  body.public_id = share.public_id;
  Answer result = reply<wire::Import>(asking, body);
  result.fds.push_back(std::move(*fd));
  if (!repeat) {
    result.granted.push_back(share.id);
    tell(share, wire::EventKind::kImported);
  }
  return result;
}

Answer Core::answer(Asking& asking, const wire::Close& close) {
  Share* share = ledger_.share(close.share);
  if (share == nullptr || !asking.session.held.contains(close.share)) {
    return refuse(asking, audit::Type::kCloseClaimed, no(Reason::kNotImported));
  }
  audit::Record record =
      record_of(audit::Type::kCloseClaimed, audit::Outcome::kInfo, asking.session, asking.request);
  describe(record, *share, *ledger_.block(share->block));
  record.refs_after -= 1;
  release(asking.session, *share, {&record, 1});
  return reply<wire::Close>(asking, {});
}

void Core::undelivered(SessionId id, const Answer& answer) {
  Session* session = ledger_.session(id);
  if (session == nullptr) return;
  std::vector<UniqueFd> gone;
  for (const BlockId minted : answer.minted) {
    if (Block* block = ledger_.block(minted)) ledger_.free_block(*session, *block, gone);
  }
  for (const ShareId granted : answer.granted) {
    Share* share = ledger_.share(granted);
    if (share == nullptr) continue;
    audit::Record record =
        record_of(audit::Type::kGrantUndelivered, audit::Outcome::kInfo, *session, 0);
    describe(record, *share, *ledger_.block(share->block));
    record.refs_after -= 1;
    (void)recorded(record);
    if (share->holders.size() == 1) tell(*share, wire::EventKind::kLastImporterLeft);
    ledger_.let_go(*session, *share, gone);
  }
  reaper_.take(std::move(gone));
}

void Core::release(Session& session, Share& share, std::span<const audit::Record> claim) {
  std::vector<audit::Record> records(claim.begin(), claim.end());
  Block& block = *ledger_.block(share.block);
  // With other holders left the kernel could only say "somebody", which is known.
  if (block.held == 1) {
    auto proof = proof_of_release(session, share, block);
    if (proof && claim.empty() && may_doubt(*proof)) {
      doubt(block, *proof);
    } else if (proof) {
      records.push_back(*proof);
    }
  }
  (void)recorded(records);  // A release is never refused, recorded or not.
  if (share.holders.size() == 1) tell(share, wire::EventKind::kLastImporterLeft);
  std::vector<UniqueFd> gone;
  ledger_.let_go(session, share, gone);
  reaper_.take(std::move(gone));
}

std::optional<audit::Record> Core::proof_of_release(const Session& session, const Share& share,
                                                    Block& block) {
  if (!leases_work_) return std::nullopt;  // Then the records claim no more than the importer did.
  if (!block.ahead && !open_ahead(block)) return std::nullopt;
  const auto held = block.ahead->held();
  if (!held) return std::nullopt;
  audit::Record record = record_of(audit::Type::kStillHeld, audit::Outcome::kInfo, session, 0);
  if (!*held) record.type = released(record);
  describe(record, share, block);
  record.refs_after -= 1;
  return record;
}

// Whoever may open the inode by its mode may keep an O_PATH descriptor, which no lease sees: the
// inode's own user, and root. Only of others is silence a proof.
audit::Type Core::released(const audit::Record& record) const {
  const bool proof = record.actor.uid != options_.uid && record.actor.uid != 0;
  return proof ? audit::Type::kReleaseVerified : audit::Type::kReleaseProbed;
}

bool Core::may_doubt(const audit::Record& proof) const {
  return proof.type == audit::Type::kStillHeld && doubts_.size() < kMostDoubts;
}

void Core::doubt(Block& block, const audit::Record& proof) {
  Doubt& doubt = doubts_.emplace_back(Doubt{.record = proof, .block = block.id, .file = {}});
  doubt.due_ns = now_ns() + kAskAgainNs[0];
  if (block.owner == 0) {
    doubt.file = std::move(block.ahead);
    block.ahead.reset();
    std::erase(ahead_, block.id);
  }
}

bool Core::ask_again(Doubt& doubt) {
  Block* block = ledger_.block(doubt.block);
  // Somebody else has it by now, and the kernel could only say "somebody".
  if (block != nullptr && block->held != 0) return true;
  if (block != nullptr && !block->ahead) (void)open_ahead(*block);
  auto& file = block != nullptr ? block->ahead : doubt.file;
  const auto held = file ? file->held() : Result<bool>(true);
  const bool still = !held || *held;
  const auto next = static_cast<std::size_t>(doubt.asked++);
  if (still && file && next < kAskAgainNs.size()) {
    doubt.due_ns = now_ns() + kAskAgainNs[next];
    return false;
  }
  if (!still) doubt.record.type = released(doubt.record);
  (void)recorded(doubt.record);
  if (doubt.file) {
    std::vector<UniqueFd> gone;
    gone.push_back(doubt.file->release());
    reaper_.take(std::move(gone));
  }
  return true;
}

void Core::settle_doubts() {
  for (Doubt& doubt : doubts_)
    (void)recorded(doubt.record);
  doubts_.clear();
}

// Opening a file costs a third of what the whole import does else, so it is done before one is
// asked for: the next importer gets the file that the last release was proven with, and when there
// is nothing to do a file is opened for each block that may be imported next. Nobody else has such
// a file, so it is as fresh as one opened now, and the question that is asked through it sees all
// others.
bool Core::open_ahead(Block& block) {
  auto file = os::HolderProbe::open(block.fd.get(), block.sealed_for.value_or(Access::kReadOnly));
  if (!file) return false;
  block.ahead = std::move(*file);
  ahead_.push_back(block.id);
  if (ahead_.size() > kMostAhead) {
    if (Block* oldest = ledger_.block(ahead_.front())) oldest->ahead.reset();
    ahead_.pop_front();
  }
  return true;
}

Result<UniqueFd> Core::take_file(Block& block, Access access) {
  // The last holder's end opens the next one, to ask with; who comes before that needs another.
  if (block.held != 0) want_ahead(block);
  if (!block.ahead || block.ahead->access() != access) return os::reopen(block.fd.get(), access);
  UniqueFd file = block.ahead->release();
  block.ahead.reset();
  std::erase(ahead_, block.id);
  return file;
}

void Core::want_ahead(const Block& block) {
  wanted_.push_back(block.id);
  if (wanted_.size() > kMostAhead) wanted_.pop_front();
}

void Core::do_spare_work() {
  for (std::size_t i = 0; i < kOpenedAtOnce && !wanted_.empty(); ++i) {
    Block* block = ledger_.block(wanted_.front());
    wanted_.pop_front();
    if (block != nullptr && !block->ahead && !block->shares.empty()) (void)open_ahead(*block);
  }
}

}  // namespace hufu::broker
