// The way back from slots to books. Everything here was written by a broker of this format, but it
// went through another process and may stop in the middle of a change: each slot is judged by its
// own sum, and then by what the others say.

#include <map>
#include <tuple>
#include <utility>

#include "broker/ledger.h"

namespace hufu::broker {
namespace {

struct Read {
  std::uint32_t number = 0;
  std::uint64_t generation = 0;
  UniqueFd fd;
};

// One kind's slots, the latest of each thing.
template <class Key, class Body>
class Latest {
 public:
  struct Entry {
    Read from;
    Body body;
  };
  // The number of the slot that lost against this one, or of this one; 0: neither.
  std::uint32_t add(const Key& key, Read from, const Body& body) {
    const auto [place, fresh] = entries_.try_emplace(key);
    if (!fresh && place->second.from.generation >= from.generation) return from.number;
    const std::uint32_t older = fresh ? 0 : place->second.from.number;
    place->second = {.from = std::move(from), .body = body};
    return older;
  }
  std::map<Key, Entry>& entries() { return entries_; }

 private:
  std::map<Key, Entry> entries_;
};

struct Sorted {
  Latest<SessionId, SessionSlot> sessions;
  Latest<BlockId, BlockSlot> blocks;
  Latest<ShareId, ExportSlot> shares;
  Latest<std::tuple<ShareId, std::int32_t, std::uint64_t>, ListedSlot> listed;
  Latest<ShareId, HandleSlot> handles;
  std::vector<std::uint32_t> useless;
};

Sorted sort(std::vector<KeptSlot> kept) {
  Sorted sorted;
  for (KeptSlot& one : kept) {
    const auto slot = decode_slot(one.bytes);
    if (!slot) {
      sorted.useless.push_back(one.number);
      continue;
    }
    Read from{.number = one.number, .generation = slot->generation, .fd = std::move(one.fd)};
    std::uint32_t loser = 0;
    if (const auto* session = std::get_if<SessionSlot>(&slot->body)) {
      loser = sorted.sessions.add(session->id, std::move(from), *session);
    } else if (const auto* block = std::get_if<BlockSlot>(&slot->body)) {
      loser = sorted.blocks.add(block->id, std::move(from), *block);
    } else if (const auto* share = std::get_if<ExportSlot>(&slot->body)) {
      loser = sorted.shares.add(share->id, std::move(from), *share);
    } else if (const auto* listed = std::get_if<ListedSlot>(&slot->body)) {
      loser = sorted.listed.add({listed->share, listed->pid, listed->pidfs_inode}, std::move(from),
                                *listed);
    } else if (const auto* handle = std::get_if<HandleSlot>(&slot->body)) {
      loser = sorted.handles.add(handle->share, std::move(from), *handle);
    }
    if (loser != 0) sorted.useless.push_back(loser);
  }
  return sorted;
}

std::optional<Session> session_from(const SessionSlot& slot, std::uint32_t number) {
  if (slot.id == 0 || slot.reserved != 0) return std::nullopt;
  Session session;
  session.id = slot.id;
  session.who.connected = {.pid = slot.pid, .uid = slot.uid, .gid = slot.gid};
  session.who.pidfs_inode = slot.pidfs_inode;
  session.secret_hash = slot.secret_hash;
  session.slot = number;
  return session;
}

std::optional<Block> block_from(const BlockSlot& slot, std::uint32_t number, UniqueFd fd) {
  const auto page = page_size_of(slot.page);
  const auto access = static_cast<Access>(slot.sealed_for);
  const bool access_known =
      slot.sealed_for == 0 || access == Access::kReadOnly || access == Access::kReadWrite;
  const auto backing = static_cast<wire::Backing>(slot.backing);
  const bool backing_known = backing == wire::Backing::kShmem || backing == wire::Backing::kHugetlb;
  const bool sparse = slot.sparse == 1;
  const std::uint64_t charged = sparse ? slot.charged_units * wire::kChargeUnit : slot.size;
  if (slot.id == 0 || !page || slot.size == 0 || !is_aligned(slot.size, bytes_of(*page)) ||
      !access_known || !backing_known || slot.sparse > 1 || charged > slot.size || !fd.valid()) {
    return std::nullopt;
  }
  Block block;
  block.id = slot.id;
  block.owner = slot.owner;
  block.uid = slot.uid;
  block.device = slot.device;
  block.size = slot.size;
  block.sparse = sparse;
  block.charged = charged;
  block.page = *page;
  block.backing = backing;
  block.fd = std::move(fd);
  if (slot.sealed_for != 0) block.sealed_for = access;
  block.slot = number;
  return block;
}

// `exporter`: the block's owner; null when it has let go, and then only the uid is known.
std::optional<Share> share_from(const ExportSlot& slot, std::uint32_t number, const Block& block,
                                const Session* exporter) {
  const std::uint64_t pages = std::uint64_t{slot.offset_pages_high} << 32 | slot.offset_pages_low;
  const std::uint64_t offset = pages * bytes_of(PageSize::k4KiB);
  const auto rounded = round_up(slot.asked_size, bytes_of(block.page));
  const Access access =
      (slot.flags & wire::kReadOnly) != 0 ? Access::kReadOnly : Access::kReadWrite;
  const bool inside = offset < block.size && is_aligned(offset, bytes_of(block.page));
  const bool live = slot.live == 1;
  if (slot.id == 0 || slot.live > 1 || !inside || slot.asked_size == 0 || !rounded ||
      block.sealed_for != access || (live && exporter == nullptr)) {
    return std::nullopt;
  }
  Share share;
  share.id = slot.id;
  share.block = block.id;
  share.exporter.uid = block.uid;
  if (exporter != nullptr) {
    share.exporter = {.session = exporter->id,
                      .pid = exporter->who.connected.pid,
                      .pidfs_inode = exporter->who.pidfs_inode,
                      .uid = exporter->uid(),
                      .gid = exporter->who.connected.gid,
                      .name = exporter->who.name};
  }
  share.range = {.offset = offset, .size = std::min(*rounded, block.size - offset)};
  share.asked_size = slot.asked_size;
  share.flags = slot.flags;
  share.access = access;
  share.public_id = slot.public_id;
  share.live = live;
  share.slot = number;
  return share;
}

}  // namespace

Ledger Ledger::rebuild(std::uint32_t devices, std::vector<KeptSlot> kept, Keeper& keeper) {
  Ledger ledger(devices, &keeper);
  Sorted sorted = sort(std::move(kept));
  const auto adopt = [&](const Read& from) { ledger.slots_.adopt(from.number, from.generation); };

  for (auto& [id, entry] : sorted.sessions.entries()) {
    auto session = session_from(entry.body, entry.from.number);
    if (!session) {
      sorted.useless.push_back(entry.from.number);
      continue;
    }
    adopt(entry.from);
    ledger.count(session->uid(), &Usage::connections, 1);
    ledger.sessions_.emplace(id, std::move(*session));
  }

  for (auto& [id, entry] : sorted.blocks.entries()) {
    auto block = block_from(entry.body, entry.from.number, std::move(entry.from.fd));
    Session* owner = block && block->owner != 0 ? ledger.session(block->owner) : nullptr;
    const bool orphan = block && block->owner != 0 && owner == nullptr;
    const bool foreign = owner != nullptr && owner->uid() != block->uid;
    std::uint64_t used = 0;
    if (!block || orphan || foreign || block->device >= devices ||
        __builtin_add_overflow(ledger.used_[block->device], block->charged, &used)) {
      sorted.useless.push_back(entry.from.number);
      continue;
    }
    adopt(entry.from);
    ledger.used_[block->device] = used;
    ledger.count(block->uid, &Usage::blocks, 1);
    if (owner != nullptr) {
      owner->blocks.insert(id);
      owner->bytes += block->charged;
    }
    ledger.blocks_.emplace(id, std::move(*block));
  }

  for (auto& [id, entry] : sorted.shares.entries()) {
    Block* block = ledger.block(entry.body.block);
    Session* exporter = block != nullptr ? ledger.session(block->owner) : nullptr;
    auto share = block != nullptr ? share_from(entry.body, entry.from.number, *block, exporter)
                                  : std::nullopt;
    const bool needs_token = share && share->live && (share->flags & wire::kHandle) != 0;
    const auto handle = sorted.handles.entries().find(id);
    const bool has_token = needs_token && handle != sorted.handles.entries().end() &&
                           handle->second.body.token != 0 &&
                           ledger.tokens_.emplace(handle->second.body.token, id).second;
    // One that should have a token and has none was being made, or being ended.
    if (!share || needs_token != has_token) {
      sorted.useless.push_back(entry.from.number);
      continue;
    }
    adopt(entry.from);
    if (has_token) {
      adopt(handle->second.from);
      share->token = handle->second.body.token;
      share->token_slot = handle->second.from.number;
    }
    ledger.count(share->exporter.uid, &Usage::shares, 1);
    if (share->live) {
      exporter->exported.insert(id);
      block->shares.insert(id);
    }
    ledger.shares_.emplace(id, std::move(*share));
  }

  for (auto& [key, entry] : sorted.listed.entries()) {
    Share* share = ledger.share(entry.body.share);
    if (share == nullptr || !share->live) {
      sorted.useless.push_back(entry.from.number);
      continue;
    }
    adopt(entry.from);
    ledger.count(share->exporter.uid, &Usage::listed, 1);
    share->listed.push_back({.pid = entry.body.pid,
                             .pidfs_inode = entry.body.pidfs_inode,
                             .start_time = entry.body.start_time,
                             .pidfd = {},
                             .slot = entry.from.number});
  }

  for (const auto& [id, entry] : sorted.handles.entries()) {
    const Share* share = ledger.share(id);
    const bool taken = share != nullptr && share->token_slot == entry.from.number;
    if (!taken) sorted.useless.push_back(entry.from.number);
  }

  for (std::uint32_t number : sorted.useless) {
    ledger.slots_.adopt(number, 0);
    ledger.slots_.drop(number);
  }
  return ledger;
}

void Ledger::drop_unclaimed(std::vector<UniqueFd>& gone) {
  for (auto next = shares_.begin(); next != shares_.end();) {
    Share& share = next->second;
    ++next;
    forget_share_if_over(share);
  }
  for (auto next = blocks_.begin(); next != blocks_.end();) {
    Block& block = next->second;
    ++next;
    drop_block_if_over(block, gone);
  }
}

}  // namespace hufu::broker
