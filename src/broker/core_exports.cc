// Shares: from a range of a block to a key, from a key back to the share, and what its exporter may
// do with it meanwhile: say who may import it, and end it.

#include <fcntl.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "audit/chain.h"
#include "broker/core_parts.h"
#include "os/kernel_abi.h"
#include "os/memfd.h"

namespace hufu::broker {

policy::Verdict Core::seal_for_export(Block& block, Access access) {
  if (block.sealed_for || options_.mode == policy::BrokerMode::kSystem) return {};
  const auto failed = [](const Error& error) {
    return no(Reason::kSystem, static_cast<std::uint64_t>(error.sys_errno));
  };
  const auto seals = os::seals_of(block.fd.get());
  if (!seals) return failed(seals.error());
  constexpr int kExpected = F_SEAL_SHRINK | F_SEAL_GROW;
  if ((*seals & ~F_SEAL_EXEC) != kExpected) {
    return no(Reason::kSealsChanged, static_cast<std::uint64_t>(*seals), kExpected);
  }
  const int added = access == Access::kReadOnly ? F_SEAL_FUTURE_WRITE | F_SEAL_SEAL : F_SEAL_SEAL;
  if (auto sealed = os::add_seals(block.fd.get(), added); !sealed) return failed(sealed.error());
  return {};
}

Answer Core::answer(Asking& asking, const wire::Export& request) {
  Shared made = share_range(asking, request);
  if (made.share == nullptr) return std::move(made.refused);
  return reply<wire::Export>(
      asking, {.key = made.key, .public_id = made.share->public_id, .share = made.share->id});
}

Answer Core::answer(Asking& asking, const wire::ExportHandle& request) {
  const Block* block = ledger_.block(request.block);
  const std::uint64_t size = block != nullptr ? block->size : 0;
  Shared made = share_range(asking, {.block = request.block,
                                     .offset = 0,
                                     .size = size,
                                     .reported_size = size,
                                     .flags = request.flags | wire::kHandle,
                                     .reserved = 0});
  if (made.share == nullptr) return std::move(made.refused);
  return reply<wire::ExportHandle>(asking, {.key = made.key,
                                            .public_id = made.share->public_id,
                                            .share = made.share->id,
                                            .token = made.share->token});
}

Core::Shared Core::share_range(Asking& asking, const wire::Export& request) {
  const auto refused = [](Answer answer) { return Shared{.refused = std::move(answer)}; };
  Block* block = ledger_.block(request.block);
  if (block == nullptr || block->owner != asking.session.id) {
    return refused(refuse(asking, audit::Type::kExport, no(Reason::kUnknownBlock, request.block)));
  }
  const auto file = os::facts_of(block->fd.get());
  if (!file) return refused(refuse_system(asking, audit::Type::kExport, file.error()));

  audit::Record record =
      record_of(audit::Type::kExport, audit::Outcome::kAllow, asking.session, asking.request);
  record.offset = request.offset;
  record.size = request.size;
  record.page = static_cast<std::uint32_t>(bytes_of(block->page));
  if ((request.flags & wire::kHandle) != 0) record.flags |= kRecordHandle;
  const auto answer = policy::decide_export(
      request, {.size = file->size,
                .committed = file->committed,
                .page = block->page,
                .sparse = block->sparse,
                .sealed = block->sealed_for.has_value(),
                .sealed_for = block->sealed_for.value_or(Access::kReadWrite)});
  if (!answer.verdict.allowed()) {
    return refused(refuse(asking, audit::Type::kExport, answer.verdict, record));
  }
  const bool as_handle = (request.flags & wire::kHandle) != 0;
  const auto is_handle = [&](ShareId id) {
    return (ledger_.share(id)->flags & wire::kHandle) != 0;
  };
  if (as_handle && std::ranges::any_of(block->shares, is_handle)) {
    return refused(refuse(asking, audit::Type::kExport, no(Reason::kHandleExists), record));
  }
  if (asking.session.exported.size() >= options_.limits.exports_per_session) {
    return refused(refuse(asking, audit::Type::kExport,
                          no(Reason::kTooManyExports, asking.session.exported.size(),
                             options_.limits.exports_per_session),
                          record));
  }
  if (const std::uint64_t shares = ledger_.usage_of(asking.session.uid()).shares;
      shares >= options_.limits.shares_per_uid) {
    return refused(refuse(asking, audit::Type::kExport,
                          no(Reason::kTooManyShares, shares, options_.limits.shares_per_uid),
                          record));
  }
  const Access access =
      (request.flags & wire::kReadOnly) != 0 ? Access::kReadOnly : Access::kReadWrite;
  if (const auto sealed = seal_for_export(*block, access); !sealed.allowed()) {
    return refused(refuse(asking, audit::Type::kExport, sealed, record));
  }
  ledger_.seal_for(*block, access);

  const Session& session = asking.session;
  Share share;
  share.id = random_id();
  share.exporter = {.session = session.id,
                    .pid = session.who.connected.pid,
                    .pidfs_inode = session.who.pidfs_inode,
                    .uid = session.who.connected.uid,
                    .gid = session.who.connected.gid,
                    .name = session.who.name};
  share.range = answer.range;
  share.asked_size = request.size;
  share.flags = request.flags;
  share.access = access;
  share.created_ns = now_ns();
  while (as_handle && (share.token == 0 || ledger_.share_of_token(share.token) != nullptr))
    share.token = random_id();
  const KeyBytes key = seal_.seal({.share = share.id,
                                   .offset = share.range.offset,
                                   .size = share.range.size,
                                   .flags = static_cast<std::uint8_t>(share.flags)});
  const audit::Id128 id = audit::key_id(key);
  std::memcpy(share.public_id.data(), id.data(), id.size());

  describe(record, share, *block);
  if (!recorded(record)) return refused(decline(asking, no(Reason::kAuditFailed)));

  Shared made;
  made.share = &ledger_.add_share(asking.session, *block, std::move(share));
  made.key = text_of(key);
  want_ahead(*block);
  return made;
}

Core::Found Core::find(const wire::KeyText& text) {
  Found found;
  if (const auto token = wire::token_of(text)) {
    found.share = ledger_.share_of_token(*token);
    if (found.share == nullptr) found.verdict = no(Reason::kHandleUnknown, 0);
    return found;
  }
  const bool handle = text.length == wire::kFabricForm;
  const auto key = key_from(wire::view_of(text));
  const auto nothing = [&](Reason reason, std::uint64_t number = 0) {
    found.verdict = handle ? no(Reason::kHandleUnknown, 1) : no(reason, number);
    if (key) found.key_id = audit::key_id(*key);
    return found;
  };
  if (!key) return nothing(Reason::kKeyMalformed, text.length);
  const auto contents = seal_.open(*key);
  // A handle's key opens as a handle only, and another one never.
  const bool fits = contents && ((contents->flags & wire::kHandle) != 0) == handle;
  if (!fits) return nothing(Reason::kKeyUnknown);
  Share* share = ledger_.share(contents->share);
  // The sealed range is compared although nobody can alter it: a mistake of ours must not become
  // somebody's memory.
  const bool same = share != nullptr && share->range.offset == contents->offset &&
                    share->range.size == contents->size && (share->live || !handle);
  if (!same) return nothing(Reason::kExportEnded);
  found.share = share;
  return found;
}

policy::ShareFacts Core::facts_of(const Share& share, const Block& block,
                                  std::vector<policy::Listed>& listed) const {
  listed.reserve(share.listed.size());
  for (const ListedProcess& process : share.listed) {
    listed.push_back({.pid = process.pid,
                      .pidfs_inode = process.pidfs_inode,
                      .alive = process.pidfd.valid() && !os::has_ended(process.pidfd.get())});
  }
  return {.live = share.live,
          .exporter = {.pid = share.exporter.pid,
                       .pidfs_inode = share.exporter.pidfs_inode,
                       .uid = share.exporter.uid,
                       .gid = share.exporter.gid,
                       .groups = {}},
          .any_process = (share.flags & wire::kAnyProcess) != 0,
          .listed = listed,
          .access = share.access,
          .whole_block = share.whole_block(block),
          .size = share.range.size,
          .block_size = block.size};
}

Answer Core::answer(Asking& asking, const wire::Withdraw& withdraw) {
  Found found = find(withdraw.key);
  audit::Record record =
      record_of(audit::Type::kWithdraw, audit::Outcome::kInfo, asking.session, asking.request);
  record.key_id = found.key_id;
  if (found.share == nullptr) {
    return refuse(asking, audit::Type::kWithdraw, found.verdict, record);
  }
  const Block& block = *ledger_.block(found.share->block);
  describe(record, *found.share, block);
  std::vector<policy::Listed> listed;
  const auto verdict =
      policy::decide_withdraw(asking.session.process(), facts_of(*found.share, block, listed));
  if (!verdict.allowed()) return refuse(asking, audit::Type::kWithdraw, verdict, record);
  (void)recorded(record);
  tell(*found.share, wire::EventKind::kExportEnded);
  ledger_.end_share(*found.share);
  return reply<wire::Withdraw>(asking, {});
}

Answer Core::answer(Asking& asking, const wire::EndAll& end) {
  const Block* block = ledger_.block(end.block);
  if (block == nullptr || block->owner != asking.session.id) {
    return refuse(asking, audit::Type::kWithdraw, no(Reason::kUnknownBlock, end.block));
  }
  end_shares(asking, *block, {.offset = 0, .size = block->size});
  return reply<wire::EndAll>(asking, {});
}

Answer Core::answer(Asking& asking, const wire::EndRange& end) {
  const Block* block = ledger_.block(end.block);
  if (block == nullptr || block->owner != asking.session.id) {
    return refuse(asking, audit::Type::kWithdraw, no(Reason::kUnknownBlock, end.block));
  }
  end_shares(asking, *block, {.offset = end.offset, .size = end.size});
  return reply<wire::EndRange>(asking, {});
}

void Core::end_shares(Asking& asking, const Block& block, policy::Range within) {
  const std::vector<ShareId> live(block.shares.begin(), block.shares.end());
  for (const ShareId id : live) {
    Share& share = *ledger_.share(id);
    const policy::Range& range = share.range;
    const bool inside =
        range.offset >= within.offset && range.offset + range.size <= within.offset + within.size;
    if (!inside) continue;
    audit::Record record =
        record_of(audit::Type::kWithdraw, audit::Outcome::kInfo, asking.session, asking.request);
    describe(record, share, block);
    (void)recorded(record);
    tell(share, wire::EventKind::kExportEnded);
    ledger_.end_share(share);
  }
}

Answer Core::answer(Asking& asking, const wire::ListPid& list) {
  // 0 and the exporter's own pid are skipped, as the device runtime does.
  std::vector<ListedProcess> wanted;
  for (std::uint32_t i = 0; i < list.count; ++i) {
    const std::int32_t pid = list.pids[i];
    if (pid == 0 || pid == asking.session.who.connected.pid) continue;
    ListedProcess process{.pid = pid};
    if (auto pidfd = os::open_pidfd(pid)) {
      process.pidfs_inode = os::pidfs_inode_of(pidfd->get());
      if (process.pidfs_inode == 0) {
        process.start_time = os::start_time_of(pid);
        process.pidfd = std::move(*pidfd);
      }
    }
    wanted.push_back(std::move(process));
  }
  return list_processes(asking, list.key, std::move(wanted));
}

Answer Core::answer(Asking& asking, const wire::ListProcess& list) {
  std::vector<ListedProcess> wanted;
  wanted.push_back({.pid = 0, .pidfs_inode = list.pidfs_inode, .start_time = 0, .pidfd = {}});
  return list_processes(asking, list.key, std::move(wanted));
}

Answer Core::list_processes(Asking& asking, const wire::KeyText& key,
                            std::vector<ListedProcess> wanted) {
  Session& session = asking.session;
  Found found = find(key);
  audit::Record record =
      record_of(audit::Type::kListAdd, audit::Outcome::kAllow, session, asking.request);
  record.key_id = found.key_id;
  if (found.share == nullptr) {
    return refuse(asking, audit::Type::kListAdd, found.verdict, record);
  }
  Share& share = *found.share;
  const Block& block = *ledger_.block(share.block);
  describe(record, share, block);
  std::vector<policy::Listed> facts;
  const auto verdict = policy::decide_list(session.process(), facts_of(share, block, facts),
                                           static_cast<std::uint32_t>(wanted.size()));
  if (!verdict.allowed()) return refuse(asking, audit::Type::kListAdd, verdict, record);

  // All or nothing.
  std::vector<ListedProcess> fresh;
  for (ListedProcess& listed : wanted) {
    if (listed.pidfs_inode == 0 && !listed.pidfd) {
      return refuse(asking, audit::Type::kListAdd,
                    no(Reason::kNoSuchProcess, number_of(listed.pid)), record);
    }
    const policy::Process process{
        .pid = listed.pid, .pidfs_inode = listed.pidfs_inode, .groups = {}};
    const auto known = [&](const policy::Listed& entry) {
      return policy::same_process(process, entry);
    };
    if (std::ranges::any_of(facts, known)) continue;
    facts.push_back({.pid = listed.pid, .pidfs_inode = listed.pidfs_inode, .alive = true});
    fresh.push_back(std::move(listed));
  }
  if (const std::uint64_t entries = ledger_.usage_of(share.exporter.uid).listed;
      entries + fresh.size() > options_.limits.listed_per_uid) {
    return refuse(asking, audit::Type::kListAdd,
                  no(Reason::kTooManyListed, entries, options_.limits.listed_per_uid), record);
  }
  for (const ListedProcess& process : fresh) {
    const bool by_inode = process.pid == 0;
    record.aux = by_inode ? process.pidfs_inode : number_of(process.pid);
    if (by_inode) record.flags |= kRecordByInode;
    if (!recorded(record)) return decline(asking, no(Reason::kAuditFailed));
  }
  const wire::ListPidReply body{
      .added = static_cast<std::uint32_t>(fresh.size()),
      .listed = static_cast<std::uint32_t>(share.listed.size() + fresh.size())};
  ledger_.list(share, std::move(fresh));
  Answer result;  // Under the kind that was asked.
  result.frame = wire::encode(asking.kind, wire::kReply, asking.request, body);
  return result;
}

}  // namespace hufu::broker
