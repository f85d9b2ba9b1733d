#include "broker/ledger.h"

#include <algorithm>
#include <cassert>

#include <sodium.h>

namespace hufu::broker {

std::array<std::uint8_t, 16> KeyedHash::random_key() {
  std::array<std::uint8_t, 16> key{};
  static_assert(sizeof(key) == crypto_shorthash_KEYBYTES);
  ::crypto_shorthash_keygen(key.data());
  return key;
}

std::size_t KeyedHash::operator()(std::uint64_t value) const {
  std::uint64_t hash = 0;
  static_assert(sizeof(hash) == crypto_shorthash_BYTES);
  ::crypto_shorthash(reinterpret_cast<unsigned char*>(&hash),
                     reinterpret_cast<const unsigned char*>(&value), sizeof(value), key.data());
  return hash;
}

Session& Ledger::open_session(SessionId id, os::PeerIdentity who) {
  Session& session = sessions_[id];
  session.id = id;
  session.who = std::move(who);
  count(session.uid(), &Usage::connections, 1);
  return session;
}

Session* Ledger::session(SessionId id) {
  const auto found = sessions_.find(id);
  return found == sessions_.end() ? nullptr : &found->second;
}

void Ledger::greet(Session& session, StatusBoard board, const SecretHash& secret_hash) {
  session.secret_hash = secret_hash;
  session.board = std::make_unique<StatusBoard>(std::move(board));
  session.greeted = true;
  count(session.uid(), &Usage::sessions, 1);
  store(session);
}

void Ledger::store(Session& session) {
  slots_.store(session.slot, SessionSlot{.id = session.id,
                                         .secret_hash = session.secret_hash,
                                         .pidfs_inode = session.who.pidfs_inode,
                                         .uid = session.who.connected.uid,
                                         .gid = session.who.connected.gid,
                                         .pid = session.who.connected.pid,
                                         .reserved = 0});
}

void Ledger::store(Block& block) {
  const auto sealed_for = block.sealed_for ? static_cast<std::uint8_t>(*block.sealed_for) : 0;
  slots_.store(block.slot, BlockSlot{.id = block.id,
                                     .owner = block.owner,
                                     .size = block.size,
                                     .page = static_cast<std::uint32_t>(bytes_of(block.page)),
                                     .device = block.device,
                                     .uid = block.uid,
                                     .backing = static_cast<std::uint8_t>(block.backing),
                                     .sealed_for = static_cast<std::uint8_t>(sealed_for),
                                     .sparse = static_cast<std::uint8_t>(block.sparse ? 1 : 0),
                                     .reserved = 0,
                                     .charged_units = static_cast<std::uint32_t>(
                                         block.sparse ? block.charged / wire::kChargeUnit : 0),
                                     .reserved_too = {}});
}

void Ledger::store(Share& share) {
  const std::uint64_t pages = share.range.offset / bytes_of(PageSize::k4KiB);
  slots_.store(share.slot, ExportSlot{.id = share.id,
                                      .block = share.block,
                                      .public_id = share.public_id,
                                      .asked_size = share.asked_size,
                                      .offset_pages_low = static_cast<std::uint32_t>(pages),
                                      .offset_pages_high = static_cast<std::uint16_t>(pages >> 32),
                                      .flags = static_cast<std::uint8_t>(share.flags),
                                      .live = static_cast<std::uint8_t>(share.live ? 1 : 0)});
}

Usage Ledger::usage_of(std::uint32_t uid) const {
  const auto found = usage_.find(uid);
  return found == usage_.end() ? Usage{} : found->second;
}

void Ledger::count(std::uint32_t uid, std::uint64_t Usage::*what, std::uint64_t more) {
  if (more != 0) usage_[uid].*what += more;
}

void Ledger::uncount(std::uint32_t uid, std::uint64_t Usage::*what, std::uint64_t less) {
  if (less == 0) return;
  const auto found = usage_.find(uid);
  assert(found != usage_.end() && found->second.*what >= less);
  found->second.*what -= less;
  if (found->second == Usage{}) usage_.erase(found);
}

const Session* Ledger::greeted_from(SessionId first) const {
  const Session* found = nullptr;
  for (const auto& [id, session] : sessions_) {
    if (!session.greeted || id < first) continue;
    if (found == nullptr || id < found->id) found = &session;
  }
  return found;
}

std::uint64_t Ledger::charged(const Session& session, std::uint32_t device) const {
  std::uint64_t bytes = 0;
  for (const BlockId id : session.blocks) {
    const Block& block = blocks_.at(id);
    if (block.device == device) bytes += block.charged;
  }
  return bytes;
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
  block.uid = owner.uid();
  count(block.uid, &Usage::blocks, 1);
  const BlockId id = block.id;
  owner.blocks.insert(id);
  if (!block.sparse) block.charged = block.size;
  owner.bytes += block.charged;
  used_[block.device] += block.charged;
  Block& added = blocks_.emplace(id, std::move(block)).first->second;
  store(added);
  slots_.keep(added.slot, added.fd);
  return added;
}

void Ledger::charge(Block& block, std::uint64_t bytes) {
  assert(block.sparse && bytes <= block.size);
  if (block.charged == bytes) return;
  used_[block.device] += bytes - block.charged;
  session(block.owner)->bytes += bytes - block.charged;
  block.charged = bytes;
  store(block);
}

void Ledger::seal_for(Block& block, Access access) {
  if (block.sealed_for == access) return;
  block.sealed_for = access;
  store(block);
}

Block* Ledger::block(BlockId id) {
  const auto found = blocks_.find(id);
  return found == blocks_.end() ? nullptr : &found->second;
}

Share& Ledger::add_share(Session& exporter, Block& block, Share share) {
  const ShareId id = share.id;
  share.block = block.id;
  count(share.exporter.uid, &Usage::shares, 1);
  exporter.exported.insert(id);
  block.shares.insert(id);
  Share& added = shares_.emplace(id, std::move(share)).first->second;
  store(added);
  if (added.token != 0) {
    tokens_.emplace(added.token, id);
    slots_.store(added.token_slot, HandleSlot{.share = id, .token = added.token, .reserved = {}});
  }
  return added;
}

Share* Ledger::share(ShareId id) {
  const auto found = shares_.find(id);
  return found == shares_.end() ? nullptr : &found->second;
}

Share* Ledger::share_of_token(std::uint64_t token) {
  const auto found = tokens_.find(token);
  return found == tokens_.end() ? nullptr : share(found->second);
}

void Ledger::forget_token(Share& share) {
  if (share.token == 0) return;
  tokens_.erase(share.token);
  share.token = 0;
  slots_.drop(share.token_slot);
}

const Share* Ledger::share_after(ShareId after) const {
  const auto found = shares_.upper_bound(after);
  return found == shares_.end() ? nullptr : &found->second;
}

void Ledger::list(Share& share, std::vector<ListedProcess> more) {
  count(share.exporter.uid, &Usage::listed, more.size());
  for (ListedProcess& process : more) {
    slots_.store(process.slot, ListedSlot{.share = share.id,
                                          .pidfs_inode = process.pidfs_inode,
                                          .start_time = process.start_time,
                                          .pid = process.pid,
                                          .reserved = {}});
    share.listed.push_back(std::move(process));
  }
}

void Ledger::forget_list(Share& share) {
  uncount(share.exporter.uid, &Usage::listed, share.listed.size());
  for (ListedProcess& process : share.listed)
    slots_.drop(process.slot);
  share.listed.clear();
}

void Ledger::end_share(Share& share) {
  if (!share.live) return;
  share.live = false;
  if (!share.holders.empty()) store(share);
  forget_list(share);
  forget_token(share);
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
  owner.bytes -= block.charged;
  block.owner = 0;
  if (block.held != 0) store(block);
  drop_block_if_over(block, gone);
}

const StatusBoard::Place* Ledger::hold(Session& session, Share& share) {
  if (share.holders.contains(session.id)) return &session.held.at(share.id);
  const auto place = session.board->take();
  if (!place) return nullptr;
  if (!share.live) session.board->end(place->slot);  // Resumed by who held it before.
  share.holders.insert(session.id);
  count(session.uid(), &Usage::holds, 1);
  ++share.imports;
  ++block(share.block)->held;
  return &session.held.emplace(share.id, *place).first->second;
}

void Ledger::let_go(Session& session, Share& share, std::vector<UniqueFd>& gone) {
  if (share.holders.erase(session.id) == 0) return;
  const auto held = session.held.find(share.id);
  session.board->give_back(held->second.slot);
  session.held.erase(held);
  if (share.exporter.session != session.id) unwatch(session, share);
  uncount(session.uid(), &Usage::holds, 1);
  Block* of = block(share.block);
  --of->held;
  forget_share_if_over(share);
  drop_block_if_over(*of, gone);
}

void Ledger::watch(Session& session, Share& share) {
  share.watchers.insert(session.id);
  session.watched.insert(share.id);
}

void Ledger::unwatch(Session& session, Share& share) {
  share.watchers.erase(session.id);
  session.watched.erase(share.id);
}

void Ledger::end_session(Session& session, std::vector<UniqueFd>& gone) {
  while (!session.held.empty())
    let_go(session, *share(session.held.begin()->first), gone);
  const std::vector<BlockId> owned(session.blocks.begin(), session.blocks.end());
  for (const BlockId id : owned)
    free_block(session, *block(id), gone);
  for (const ShareId id : session.watched)
    share(id)->watchers.erase(session.id);
  if (session.greeted) uncount(session.uid(), &Usage::sessions, 1);
  uncount(session.uid(), &Usage::connections, 1);
  slots_.drop(session.slot);
  sessions_.erase(session.id);
}

void Ledger::forget_share_if_over(Share& share) {
  if (share.live || !share.holders.empty()) return;
  for (const SessionId watcher : share.watchers)
    session(watcher)->watched.erase(share.id);
  uncount(share.exporter.uid, &Usage::shares, 1);
  slots_.drop(share.slot);
  shares_.erase(share.id);
}

void Ledger::drop_block_if_over(Block& block, std::vector<UniqueFd>& gone) {
  if (block.owner != 0 || block.held != 0) return;
  used_[block.device] -= block.charged;
  if (block.ahead) gone.push_back(block.ahead->release());
  uncount(block.uid, &Usage::blocks, 1);
  slots_.drop(block.slot);
  gone.push_back(std::move(block.fd));
  blocks_.erase(block.id);
}

}  // namespace hufu::broker
