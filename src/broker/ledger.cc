#include "broker/ledger.h"

#include <algorithm>
#include <cassert>

namespace hufu::broker {

Session& Ledger::open_session(SessionId id, os::PeerIdentity who) {
  Session& session = sessions_[id];
  session.id = id;
  session.who = std::move(who);
  return session;
}

Session* Ledger::session(SessionId id) {
  const auto found = sessions_.find(id);
  return found == sessions_.end() ? nullptr : &found->second;
}

std::size_t Ledger::sessions_of(std::uint32_t uid) const {
  return static_cast<std::size_t>(std::ranges::count_if(
      sessions_, [&](const auto& entry) { return entry.second.who.connected.uid == uid; }));
}

std::optional<SessionId> Ledger::twin_of(const Session& session) const {
  if (session.who.pidfs_inode == 0) return std::nullopt;
  for (const auto& [id, other] : sessions_) {
    const bool same =
        other.greeted && id != session.id && other.who.pidfs_inode == session.who.pidfs_inode;
    if (same) return id;
  }
  return std::nullopt;
}

Block& Ledger::add_block(Session& owner, Block block) {
  block.owner = owner.id;
  const BlockId id = block.id;
  owner.blocks.insert(id);
  owner.bytes += block.size;
  used_[block.device] += block.size;
  return blocks_.emplace(id, std::move(block)).first->second;
}

Block* Ledger::block(BlockId id) {
  const auto found = blocks_.find(id);
  return found == blocks_.end() ? nullptr : &found->second;
}

Share& Ledger::add_share(Session& exporter, Block& block, Share share) {
  const ShareId id = share.id;
  share.block = block.id;
  exporter.exported.insert(id);
  block.shares.insert(id);
  return shares_.emplace(id, std::move(share)).first->second;
}

Share* Ledger::share(ShareId id) {
  const auto found = shares_.find(id);
  return found == shares_.end() ? nullptr : &found->second;
}

const Share* Ledger::share_after(ShareId after) const {
  const auto found = shares_.upper_bound(after);
  return found == shares_.end() ? nullptr : &found->second;
}

void Ledger::end_share(Share& share) {
  if (!share.live) return;
  share.live = false;
  share.listed.clear();
  if (Session* exporter = session(share.exporter.session)) exporter->exported.erase(share.id);
  if (Block* of = block(share.block)) of->shares.erase(share.id);
  for (const SessionId holder : share.holders) {
    Session& session_of = *session(holder);
    session_of.board->end(session_of.held.at(share.id).slot);
  }
  forget_share_if_over(share);
}

void Ledger::free_block(Session& owner, Block& block, std::vector<UniqueFd>& gone) {
  assert(block.owner == owner.id);
  const std::vector<ShareId> live(block.shares.begin(), block.shares.end());
  for (const ShareId id : live)
    end_share(*share(id));
  owner.blocks.erase(block.id);
  owner.bytes -= block.size;
  block.owner = 0;
  drop_block_if_over(block, gone);
}

const StatusBoard::Place* Ledger::hold(Session& session, Share& share) {
  if (share.holders.contains(session.id)) return &session.held.at(share.id);
  const auto place = session.board->take();
  if (!place) return nullptr;
  share.holders.insert(session.id);
  ++share.imports;
  ++block(share.block)->held;
  return &session.held.emplace(share.id, *place).first->second;
}

void Ledger::let_go(Session& session, Share& share, std::vector<UniqueFd>& gone) {
  if (share.holders.erase(session.id) == 0) return;
  const auto held = session.held.find(share.id);
  session.board->give_back(held->second.slot);
  session.held.erase(held);
  if (share.exporter.session != session.id) {
    share.watchers.erase(session.id);
    session.watched.erase(share.id);
  }
  Block* of = block(share.block);
  --of->held;
  forget_share_if_over(share);
  drop_block_if_over(*of, gone);
}

void Ledger::watch(Session& session, Share& share) {
  share.watchers.insert(session.id);
  session.watched.insert(share.id);
}

void Ledger::end_session(Session& session, std::vector<UniqueFd>& gone) {
  while (!session.held.empty())
    let_go(session, *share(session.held.begin()->first), gone);
  const std::vector<BlockId> owned(session.blocks.begin(), session.blocks.end());
  for (const BlockId id : owned)
    free_block(session, *block(id), gone);
  for (const ShareId id : session.watched)
    share(id)->watchers.erase(session.id);
  sessions_.erase(session.id);
}

void Ledger::forget_share_if_over(Share& share) {
  if (share.live || !share.holders.empty()) return;
  for (const SessionId watcher : share.watchers)
    session(watcher)->watched.erase(share.id);
  shares_.erase(share.id);
}

void Ledger::drop_block_if_over(Block& block, std::vector<UniqueFd>& gone) {
  if (block.owner != 0 || block.held != 0) return;
  used_[block.device] -= block.size;
  if (block.probe) gone.push_back(block.probe->release());
  gone.push_back(std::move(block.fd));
  blocks_.erase(block.id);
}

}  // namespace hufu::broker
