// Holds: who has been given a share's memory, and whether who gave it back did.

#include <utility>

#include "broker/core_parts.h"
#include "os/memfd.h"

namespace hufu::broker {
namespace {

// A block's probe stays open from one release to the next, because opening it costs more than
// asking; so many blocks' at most, as each is a descriptor.
constexpr std::size_t kProbesKept = 32;

}  // namespace

Answer Core::answer(Asking& asking, const wire::Import& import) {
  Session& session = asking.session;
  Found found = find(import.key);
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
  const auto file = os::facts_of(block.fd.get());
  if (!file) return refuse_system(asking, audit::Type::kImport, file.error());
  if (file->size < share.range.offset + share.range.size) {
    return refuse(
        asking, audit::Type::kImport,
        no(Reason::kOutOfRange, share.range.offset, share.range.size, file->size, file->size),
        record);
  }
  auto fd = os::reopen(block.fd.get(), decided.access);
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
    if (auto proof = proof_of_release(session, share, block)) records.push_back(*proof);
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
  if (!block.probe) {
    auto probe = os::HolderProbe::open(block.fd.get());
    if (!probe) return std::nullopt;
    block.probe = std::move(*probe);
    probed_.push_back(block.id);
    if (probed_.size() > kProbesKept) {
      if (Block* oldest = ledger_.block(probed_.front())) oldest->probe.reset();
      probed_.pop_front();
    }
  }
  const auto held = block.probe->held();
  if (!held) return std::nullopt;
  // Whoever may open the inode by its mode may keep an O_PATH descriptor, which no lease sees: the
  // inode's own user, and root. Only of others is silence a proof.
  const std::uint32_t uid = session.who.connected.uid;
  const bool proof = uid != options_.uid && uid != 0;
  const auto type = *held   ? audit::Type::kStillHeld
                    : proof ? audit::Type::kReleaseVerified
                            : audit::Type::kReleaseProbed;
  audit::Record record = record_of(type, audit::Outcome::kInfo, session, 0);
  describe(record, share, block);
  record.refs_after -= 1;
  return record;
}

}  // namespace hufu::broker
