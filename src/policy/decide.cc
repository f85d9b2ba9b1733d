#include "policy/decide.h"

#include <algorithm>

namespace hufu::policy {
namespace {

Verdict no(Reason reason, std::uint64_t n0 = 0, std::uint64_t n1 = 0, std::uint64_t n2 = 0,
           std::uint64_t n3 = 0) {
  return {.reason = reason, .number = {n0, n1, n2, n3}};
}

std::uint64_t number_of(std::int32_t pid) { return static_cast<std::uint32_t>(pid); }

bool is_exporter(const Process& process, const ShareFacts& share) {
  return same_process(
      process,
      {.pid = share.exporter.pid, .pidfs_inode = share.exporter.pidfs_inode, .alive = share.live});
}

// In system mode the exporter's group may import; not group 0 and not the group of nobody.
bool shares_group(const Process& importer, std::uint32_t gid, const OverflowIds& overflow) {
  if (gid == 0 || gid == overflow.gid) return false;
  return importer.gid == gid || std::ranges::find(importer.groups, gid) != importer.groups.end();
}

Verdict users_match(const Process& importer, const Process& exporter, BrokerMode mode,
                    const OverflowIds& overflow) {
  for (const std::uint32_t uid : {importer.uid, exporter.uid}) {
    if (uid == overflow.uid) return no(Reason::kUnmappedUser, uid);
  }
  if (importer.uid == exporter.uid) return {};
  if (mode == BrokerMode::kSystem && shares_group(importer, exporter.gid, overflow)) return {};
  return no(Reason::kOtherUser, importer.uid, exporter.uid);
}

Verdict process_listed(const Process& importer, const ShareFacts& share, bool as_anybody) {
  if (share.any_process) return {};
  if (is_exporter(importer, share) && !as_anybody) return {};
  if (importer.pid == 0 && importer.pidfs_inode == 0) return no(Reason::kNoProcessId);
  const bool listed = std::ranges::any_of(
      share.listed, [&](const Listed& entry) { return same_process(importer, entry); });
  if (listed) return {};
  return no(Reason::kNotListed, number_of(importer.pid), number_of(share.exporter.pid),
            share.listed.size());
}

}  // namespace

bool same_process(const Process& process, const Listed& entry) {
  if (process.pidfs_inode != 0 && entry.pidfs_inode != 0) {
    return process.pidfs_inode == entry.pidfs_inode;
  }
  return process.pid != 0 && process.pid == entry.pid && entry.alive;
}

ExportVerdict decide_export(const wire::Export& request, const BlockFacts& block) {
  // A client may report up to 32 bytes more than the file has (the device runtime's padding, D6).
  // Exporting up to that end means the whole block; the claim never widens what is mapped.
  constexpr std::uint64_t kPadding = 32;
  const std::uint64_t page = bytes_of(block.page);
  const std::uint64_t limit = std::clamp(request.reported_size, block.size, block.size + kPadding);

  if (request.size == 0) return {.verdict = no(Reason::kEmptyRange), .range = {}};
  if (!is_aligned(request.offset, page)) {
    return {.verdict = no(Reason::kNotAligned, request.offset, page, block.size), .range = {}};
  }
  std::uint64_t end = 0;
  if (__builtin_add_overflow(request.offset, request.size, &end) || end > limit ||
      request.offset >= block.size) {
    return {.verdict = no(Reason::kOutOfRange, request.offset, request.size, block.size, limit),
            .range = {}};
  }
  if (!block.sparse && block.committed < block.size) {
    return {.verdict = no(Reason::kNotCommitted, block.committed, block.size), .range = {}};
  }
  const Access access =
      (request.flags & wire::kReadOnly) != 0 ? Access::kReadOnly : Access::kReadWrite;
  if (block.sealed && block.sealed_for != access) {
    return {.verdict = no(Reason::kSealKind, static_cast<std::uint64_t>(block.sealed_for),
                          static_cast<std::uint64_t>(access)),
            .range = {}};
  }
  // The file is whole pages and the offset starts one, so rounding up stays inside the file.
  const std::uint64_t rounded = (request.size + page - 1) & ~(page - 1);
  return {
      .verdict = {},
      .range = {.offset = request.offset, .size = std::min(rounded, block.size - request.offset)}};
}

ImportVerdict decide_import(const Process& importer, const ShareFacts& share,
                            const ImportWish& wish, BrokerMode mode, const OverflowIds& overflow) {
  const auto refused = [](Verdict verdict) { return ImportVerdict{.verdict = verdict}; };
  if (!share.live) return refused(no(Reason::kExportEnded));
  if (const Verdict v = users_match(importer, share.exporter, mode, overflow); !v.allowed()) {
    return refused(v);
  }
  if (const Verdict v = process_listed(importer, share, wish.as_anybody); !v.allowed())
    return refused(v);

  const bool other_user = importer.uid != share.exporter.uid;
  if (other_user && !share.whole_block) {
    return refused(no(Reason::kPartOfBlock, share.size, share.block_size));
  }
  // Another user gets read-only memory whatever the export grants (D14).
  const Access most = other_user ? Access::kReadOnly : share.access;
  if (wish.access == static_cast<std::uint32_t>(Access::kReadWrite) && most == Access::kReadOnly) {
    return refused(no(Reason::kReadOnlyExport));
  }
  const bool less = wish.access == static_cast<std::uint32_t>(Access::kReadOnly);
  return {.verdict = {}, .access = less ? Access::kReadOnly : most};
}

Verdict decide_list(const Process& caller, const ShareFacts& share, std::uint32_t more) {
  if (!share.live) return no(Reason::kExportEnded);
  if (!is_exporter(caller, share)) {
    return no(Reason::kNotExporter, number_of(caller.pid), number_of(share.exporter.pid));
  }
  if (share.any_process) return no(Reason::kListDisabled);
  if (share.listed.size() + more > kMaxListed) {
    return no(Reason::kListFull, share.listed.size(), kMaxListed);
  }
  return {};
}

Verdict decide_withdraw(const Process& caller, const ShareFacts& share) {
  if (!share.live) return no(Reason::kExportEnded);
  if (!is_exporter(caller, share)) {
    return no(Reason::kNotExporter, number_of(caller.pid), number_of(share.exporter.pid));
  }
  return {};
}

}  // namespace hufu::policy
