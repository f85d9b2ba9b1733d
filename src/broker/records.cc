#include "broker/records.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace hufu::broker {

audit::Record record_of(audit::Type type, audit::Outcome outcome, const Session& session,
                        std::uint64_t request) {
  audit::Record record;
  record.type = type;
  record.outcome = outcome;
  const os::PeerIdentity& who = session.who;
  record.actor = {.uid = who.connected.uid,
                  .gid = who.connected.gid,
                  .pid = static_cast<std::uint32_t>(who.connected.pid),
                  .start_time = who.start_time,
                  .pidfs_inode = who.pidfs_inode,
                  .cgroup_id = who.cgroup_id,
                  .exe_dev = who.exe_device,
                  .exe_ino = who.exe_inode,
                  .comm = who.name};
  record.connection = session.id;
  record.request = request;
  return record;
}

void describe(audit::Record& record, const Share& share, const Block& block) {
  record.owner = {.uid = share.exporter.uid,
                  .pid = static_cast<std::uint32_t>(share.exporter.pid),
                  .pidfs_inode = share.exporter.pidfs_inode};
  record.share_id = share.id;
  record.offset = share.range.offset;
  record.size = share.range.size;
  record.page = static_cast<std::uint32_t>(bytes_of(block.page));
  record.backing = static_cast<audit::Backing>(block.backing);
  record.access = share.access;
  std::memcpy(record.key_id.data(), share.public_id.data(), record.key_id.size());
  record.refs_after = static_cast<std::uint32_t>(share.holders.size());
  if ((share.flags & wire::kAnyProcess) != 0) record.flags |= kRecordAnyProcess;
  if ((share.flags & wire::kHandle) != 0) record.flags |= kRecordHandle;
}

std::int32_t acl_code_of(Reason reason) {
  constexpr std::int32_t kNoPermission = 207006;
  constexpr std::int32_t kNoResource = 207005;
  constexpr std::int32_t kNoMemory = 207001;
  constexpr std::int32_t kParameter = 107000;
  constexpr std::int32_t kInvalidHandle = 107017;
  constexpr std::int32_t kUnregisteredAddress = 200100;
  constexpr std::int32_t kDriver = 507899;
  switch (reason) {  // With a default: every other refusal is the driver's "no".
    case Reason::kListDisabled:
      return kNoPermission;
    case Reason::kListFull:
    case Reason::kTooManyExports:
    case Reason::kTooManyImports:
    case Reason::kTooManySessions:
    case Reason::kTooManyShares:
    case Reason::kTooManyHolds:
    case Reason::kTooManyListed:
      return kNoResource;
    case Reason::kDescriptors:
    case Reason::kMemory:
      return kNoMemory;
    case Reason::kEmptyRange:
      return kParameter;
    case Reason::kUnregistered:
      return kUnregisteredAddress;
    case Reason::kHandleUnknown:
      return kInvalidHandle;
    default:
      return kDriver;
  }
}

RefusalBudget::Answer RefusalBudget::ask(std::uint32_t uid, std::uint64_t now_ns) {
  constexpr double kBurst = 1000;
  constexpr double kPerNanosecond = 10.0 / 1e9;
  auto [entry, fresh] = buckets_.try_emplace(uid);
  Bucket& bucket = entry->second;
  if (fresh) {
    bucket.tokens = kBurst;
  } else {
    const auto passed = static_cast<double>(now_ns - bucket.filled_ns);
    bucket.tokens = std::min(kBurst, bucket.tokens + passed * kPerNanosecond);
  }
  bucket.filled_ns = now_ns;
  if (bucket.tokens < 1) {
    ++bucket.suppressed;
    return {};
  }
  bucket.tokens -= 1;
  return {.write = true, .suppressed_before = std::exchange(bucket.suppressed, 0)};
}

std::uint64_t RefusalBudget::take_suppressed(std::uint32_t uid) {
  const auto found = buckets_.find(uid);
  return found == buckets_.end() ? 0 : std::exchange(found->second.suppressed, 0);
}

}  // namespace hufu::broker
