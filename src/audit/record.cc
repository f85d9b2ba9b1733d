#include "audit/record.h"

#include <cassert>
#include <type_traits>

#include "audit/layout.h"

namespace hufu::audit {
namespace {

constexpr Magic kMagic = {'H', 'F', 'U', '1'};

// START's flags, one bit per bool.
constexpr std::uint32_t kVolatileHome = 1;
constexpr std::uint32_t kAfterUncleanEnd = 2;
constexpr std::uint32_t kDamageAccepted = 4;

// --- The layouts. Each is the only place that knows where its fields are.
// -------------------------

void lay_out_own(
    auto& io, auto&& start) requires std::is_same_v<std::remove_cvref_t<decltype(start)>, Start> {
  std::uint32_t flags = (start.volatile_home ? kVolatileHome : 0) |
                        (start.after_unclean_end ? kAfterUncleanEnd : 0) |
                        (start.damage_accepted ? kDamageAccepted : 0);
  io.field(at::kOwn, start.instance);
  io.field(at::kOwn + 16, start.boot_id);
  io.field(at::kOwn + 32, flags);
  io.only_bits(flags, kVolatileHome | kAfterUncleanEnd | kDamageAccepted);
  io.zeros(at::kOwn + 36, at::kOwn + 40);
  io.field(at::kOwn + 40, start.version);
  io.zeros(at::kOwn + 72, at::kChain);
  if constexpr (!std::is_const_v<std::remove_reference_t<decltype(start)>>) {
    start.volatile_home = (flags & kVolatileHome) != 0;
    start.after_unclean_end = (flags & kAfterUncleanEnd) != 0;
    start.damage_accepted = (flags & kDamageAccepted) != 0;
  }
}

void lay_out_own(auto& io, auto&& recovery) requires
    std::is_same_v<std::remove_cvref_t<decltype(recovery)>, Recovery> {
  io.field(at::kOwn, recovery.kind);
  io.zeros(at::kOwn + 4, at::kOwn + 8);
  io.field(at::kOwn + 8, recovery.segment);
  io.field(at::kOwn + 16, recovery.offset);
  io.field(at::kOwn + 24, recovery.bytes);
  io.field(at::kOwn + 32, recovery.first_bad_seq);
  io.field(at::kOwn + 40, recovery.sha256);
  io.zeros(at::kOwn + 72, at::kChain);
}

void lay_out_own(auto& io, auto&& rotate) requires
    std::is_same_v<std::remove_cvref_t<decltype(rotate)>, Rotate> {
  io.field(at::kOwn, rotate.next_segment);
  io.field(at::kOwn + 8, rotate.oldest_segment);
  io.field(at::kOwn + 16, rotate.oldest_first_seq);
  io.field(at::kOwn + 24, rotate.deleted);
  io.field(at::kOwn + 32, rotate.oldest_previous);
  io.zeros(at::kOwn + 64, at::kChain);
}

void lay_out_own(auto& io,
                 auto&& seal) requires std::is_same_v<std::remove_cvref_t<decltype(seal)>, Seal> {
  io.field(at::kOwn, seal.epoch);
  io.field(at::kOwn + 8, seal.count);
  io.field(at::kOwn + 16, seal.head);
  io.field(at::kOwn + 48, seal.root);
  io.zeros(at::kOwn + 80, at::kChain);
}

void lay_out_head(auto& io, auto& record) {
  std::uint16_t format = kFormat;
  io.field(at::kSeq, record.seq);
  io.field(at::kRealtime, record.realtime_ns);
  io.field(at::kBoottime, record.boottime_ns);
  io.field(at::kEpoch, record.epoch);
  io.field(at::kFormat, format);
  io.field(at::kType, record.type);
  io.field(at::kOutcome, record.outcome);
  io.field(at::kAccess, record.access);
  io.field(at::kReason, record.reason);
  io.field(at::kChain, record.chain);
}

void lay_out_event(auto& io, auto& record) {
  io.field(at::kActorUid, record.actor.uid);
  io.field(at::kActorGid, record.actor.gid);
  io.field(at::kActorPid, record.actor.pid);
  io.field(at::kAclCode, record.acl_code);
  io.field(at::kStartTime, record.actor.start_time);
  io.field(at::kPidfsInode, record.actor.pidfs_inode);
  io.field(at::kCgroupId, record.actor.cgroup_id);
  io.field(at::kExeDev, record.actor.exe_dev);
  io.field(at::kExeIno, record.actor.exe_ino);
  io.field(at::kComm, record.actor.comm);
  io.field(at::kOwnerUid, record.owner.uid);
  io.field(at::kOwnerPid, record.owner.pid);
  io.field(at::kOwnerPidfsInode, record.owner.pidfs_inode);
  io.field(at::kShareId, record.share_id);
  io.field(at::kOffset, record.offset);
  io.field(at::kSize, record.size);
  io.field(at::kPage, record.page);
  io.field(at::kBacking, record.backing);
  io.zeros(at::kBacking + 1, at::kKeyId);
  io.field(at::kKeyId, record.key_id);
  io.field(at::kConnection, record.connection);
  io.field(at::kRequest, record.request);
  io.field(at::kRefsAfter, record.refs_after);
  io.field(at::kFlags, record.flags);
  io.field(at::kAux, record.aux);
  io.zeros(at::kAux + 8, at::kChain);
}

// Gives `own` the alternative that the type asks for.
void choose_own(Record& record) {
  switch (record.type) {
    case Type::kStart:
      record.own.emplace<Start>();
      return;
    case Type::kRecovery:
      record.own.emplace<Recovery>();
      return;
    case Type::kRotate:
      record.own.emplace<Rotate>();
      return;
    case Type::kSeal:
      record.own.emplace<Seal>();
      return;
    default:  // Every other type, and those that a later version adds: an event.
      record.own.emplace<std::monostate>();
  }
}

void lay_out_body(auto& io, auto& record) {
  std::visit(
      [&](auto& own) {
        if constexpr (std::is_same_v<std::remove_cvref_t<decltype(own)>, std::monostate>) {
          lay_out_event(io, record);
        } else {
          lay_out_own(io, own);
        }
      },
      record.own);
}

Error malformed(std::string_view what) {
  return fail(Errc::kInvalidArgument, Reason::kMalformed, "not an audit record: {}", what);
}

}  // namespace

Bytes256 encode(const Record& record) {
#ifndef NDEBUG
  Record expected{.type = record.type};
  choose_own(expected);
  assert(expected.own.index() == record.own.index() && "the type does not own this struct");
#endif
  Bytes256 bytes{};
  Writer out(bytes);
  lay_out_head(out, record);
  lay_out_body(out, record);
  put_magic_and_crc(bytes, kMagic);
  return bytes;
}

Result<Record> decode(std::span<const std::byte, kRecordBytes> bytes) {
  if (!magic_is(bytes, kMagic)) return malformed("it does not begin with HFU1");
  if (!crc_fits(bytes)) return malformed("its CRC does not fit its bytes");
  Reader in(bytes);
  std::uint16_t format = 0;
  in.field(at::kFormat, format);
  if (format != kFormat) return malformed("its format is not 1");
  Record record;
  lay_out_head(in, record);
  choose_own(record);
  lay_out_body(in, record);
  if (!in.zeros_are_zero()) return malformed("a byte or flag without a meaning is not zero");
  return record;
}

}  // namespace hufu::audit
