#pragma once

// For tests: is everything true that broker/ledger.h says is always true?
//
// Computed from scratch, by a second way, so that a counter that was forgotten somewhere shows.

#include <map>
#include <string>

#include "broker/ledger.h"

#include <fmt/format.h>

namespace hufu::broker {

// The first contradiction found, or nothing.
inline std::string contradiction_in(const Ledger& ledger) {
  std::map<std::uint32_t, Usage> usage;
  std::map<std::uint32_t, std::uint64_t> used;
  std::map<BlockId, std::uint32_t> held;
  for (const auto& [id, session] : ledger.all_sessions()) {
    Usage& of = usage[session.uid()];
    ++of.connections;
    if (session.greeted) ++of.sessions;
    of.holds += session.held.size();
    if (!session.held.empty() && !session.board) return fmt::format("{} holds unseen", id);
    std::uint64_t bytes = 0;
    for (const BlockId block : session.blocks) {
      const auto found = ledger.all_blocks().find(block);
      if (found == ledger.all_blocks().end() || found->second.owner != id) {
        return fmt::format("session {} owns block {}, which is not its", id, block);
      }
      bytes += found->second.charged;
    }
    if (bytes != session.bytes) return fmt::format("session {} counts its bytes wrong", id);
    for (const auto& [share, place] : session.held) {
      const auto found = ledger.all_shares().find(share);
      if (found == ledger.all_shares().end() || !found->second.holders.contains(id)) {
        return fmt::format("session {} holds share {}, which does not know", id, share);
      }
      ++held[found->second.block];
    }
    for (const ShareId share : session.exported) {
      const auto found = ledger.all_shares().find(share);
      if (found == ledger.all_shares().end() || !found->second.live) {
        return fmt::format("session {} exports share {}, which is over", id, share);
      }
    }
    for (const ShareId share : session.watched) {
      const auto found = ledger.all_shares().find(share);
      if (found == ledger.all_shares().end() || !found->second.watchers.contains(id)) {
        return fmt::format("session {} watches share {}, which does not know", id, share);
      }
    }
  }
  std::size_t tokens = 0;
  for (const auto& [id, share] : ledger.all_shares()) {
    Usage& of = usage[share.exporter.uid];
    ++of.shares;
    of.listed += share.listed.size();
    if (!share.live && share.holders.empty()) return fmt::format("share {} is a ghost", id);
    if (!share.live && !share.listed.empty()) return fmt::format("share {} lists, ended", id);
    const auto block = ledger.all_blocks().find(share.block);
    if (block == ledger.all_blocks().end()) return fmt::format("share {} has no block", id);
    if (share.range.size == 0 || share.range.offset + share.range.size > block->second.size) {
      return fmt::format("share {} is not inside its block", id);
    }
    if (share.live != block->second.shares.contains(id)) {
      return fmt::format("share {} and its block disagree on its life", id);
    }
    const auto exporter = ledger.all_sessions().find(share.exporter.session);
    if (share.live &&
        (exporter == ledger.all_sessions().end() || block->second.owner != share.exporter.session ||
         !exporter->second.exported.contains(id))) {
      return fmt::format("share {} lives without its exporter", id);
    }
    for (const SessionId holder : share.holders) {
      const auto session = ledger.all_sessions().find(holder);
      if (session == ledger.all_sessions().end() || !session->second.held.contains(id)) {
        return fmt::format("share {} is held by {}, who does not know", id, holder);
      }
      const StatusBoard::Place& place = session->second.held.at(id);
      if ((session->second.board->word(place.slot) == place.live) != share.live) {
        return fmt::format("the status word of share {} lies to session {}", id, holder);
      }
    }
    for (const SessionId watcher : share.watchers) {
      const auto session = ledger.all_sessions().find(watcher);
      if (session == ledger.all_sessions().end() || !session->second.watched.contains(id)) {
        return fmt::format("share {} is watched by {}, who does not know", id, watcher);
      }
    }
    const bool named = share.live && (share.flags & wire::kHandle) != 0;
    if (named != (share.token != 0)) return fmt::format("share {} has a wrong token", id);
    if (!named) continue;
    ++tokens;
    const auto opened = ledger.all_tokens().find(share.token);
    if (opened == ledger.all_tokens().end() || opened->second != id) {
      return fmt::format("the token of share {} opens another", id);
    }
  }
  if (tokens != ledger.all_tokens().size()) return "a token is nobody's";
  for (const auto& [id, block] : ledger.all_blocks()) {
    ++usage[block.uid].blocks;
    used[block.device] += block.charged;
    const bool charge_right =
        block.sparse ? block.charged <= block.size : block.charged == block.size;
    if (!charge_right) return fmt::format("block {} is charged wrong", id);
    if (block.owner == 0 && block.held == 0) return fmt::format("block {} is nobody's", id);
    if (block.held != held[id]) return fmt::format("block {} counts its holders wrong", id);
    if (!block.fd.valid()) return fmt::format("block {} has no file", id);
    for (const ShareId share : block.shares) {
      if (!ledger.all_shares().contains(share)) return fmt::format("block {}: no share", id);
    }
  }
  for (std::uint32_t device = 0; device < ledger.devices(); ++device) {
    if (ledger.used(device) != used[device]) return fmt::format("device {} is miscounted", device);
  }
  for (const auto& [uid, counted] : usage) {
    if (ledger.usage_of(uid) != counted) return fmt::format("user {} is miscounted", uid);
  }
  return {};
}

}  // namespace hufu::broker
