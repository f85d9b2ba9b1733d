#pragma once

// One audit record: 256 bytes, little endian, the same for every kind of event.
//
// The layout is final (format 1). A fixed size means that a record's place in its segment is its
// number, that a torn write can spoil one record only, and that a reader needs no parser that
// could be confused. Numbers of types are never given a second meaning.
//
//   0     4     8      40     44        48                                224        256
//   +-----+-----+------+------+---------+---------------------------------+----------+
//   |HFU1 | crc | seq, | fmt, | verdict | who, to whom, what; or, for     | chain    |
//   |     | 32c | time | type | reason  | START, RECOVERY, ROTATE, SEAL,  | SHA-256  |
//   |     |     | epoch|      |         | a struct of their own           |          |
//   +-----+-----+------+------+---------+---------------------------------+----------+
//                <----------------- covered by the crc ------------------>
//    <-------------------------- covered by the chain ------------------->

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <variant>

#include "base/reason.h"
#include "base/result.h"
#include "base/units.h"

namespace hufu::audit {

inline constexpr std::size_t kRecordBytes = 256;
inline constexpr std::size_t kLinkedBytes = 224;  // What the chain covers of each 256 bytes.
inline constexpr std::uint16_t kFormat = 1;

using Bytes256 = std::array<std::byte, kRecordBytes>;
using Hash = std::array<std::byte, 32>;
using Id128 = std::array<std::byte, 16>;

enum class Type : std::uint16_t {
  kStart = 1,             // A broker began to write. Own struct: Start.
  kStop = 2,              // It ended in good order; the next record is a START.
  kRecovery = 3,          // What opening the log found wrong. Own struct: Recovery.
  kExport = 4,            // A key was made for a range.
  kListAdd = 5,           // aux: the pid put on the export's list.
  kListDel = 6,           // aux: the pid taken off it.
  kImport = 7,            // A process was handed the memory.
  kDeny = 8,              // A refusal. aux: the Type that was asked for; reason says why.
  kCloseClaimed = 9,      // The importer says that it unmapped.
  kReleaseVerified = 10,  // The kernel confirms: nobody else holds the memory.
  kStillHeld = 11,        // The kernel denies it.
  kProcessExit = 12,      // A session's process died. aux: mappings it held.
  kRevoke = 13,           // aux: level.
  kTripwire = 14,         // Something that no honest client does.
  kLimitHit = 15,         // aux: the limit.
  kSuppressed = 16,       // aux: how many records like this one were not written one by one.
  kPolicyChange = 17,
  kClockStep = 18,  // aux: nanoseconds by which the wall clock moved, two's complement.
  kRotate = 19,     // The last record of a full segment. Own struct: Rotate.
  kSeal = 20,       // The end of an epoch. Own struct: Seal.
  kAuditFault = 21,
  kReleaseProbed = 22,     // No open file, no mapping; an O_PATH descriptor cannot be excluded.
  kFreeClaimed = 23,       // The exporter freed its block.
  kWithdraw = 24,          // The exporter ended the export.
  kGrantUndelivered = 25,  // An IMPORT was recorded, but the reply never left.
  kIllegalAddress = 26,    // aux: the address.
  kExecChanged = 27,       // The process runs another program than when it connected.
};

enum class Outcome : std::uint8_t { kAllow = 1, kDeny = 2, kInfo = 3 };

enum class Backing : std::uint8_t { kNone = 0, kShmem = 1, kHugetlb = 2 };

// Who did it, as the kernel says. Zero where it does not apply.
struct Actor {
  std::uint32_t uid = 0;
  std::uint32_t gid = 0;
  std::uint32_t pid = 0;
  std::uint64_t start_time = 0;
  std::uint64_t pidfs_inode = 0;
  std::uint64_t cgroup_id = 0;
  std::uint64_t exe_dev = 0;
  std::uint64_t exe_ino = 0;
  std::array<char, 16>
      comm{};  // As the kernel has it: may hold any byte. Escape it before showing.
};

// Whose memory it is.
struct Owner {
  std::uint32_t uid = 0;
  std::uint32_t pid = 0;
  std::uint64_t pidfs_inode = 0;
};

struct Start {
  Id128 instance{};  // The broker instance that keys are bound to.
  Id128 boot_id{};
  bool volatile_home = false;      // The log lies where a reboot or logout deletes it.
  bool after_unclean_end = false;  // The record before this one is not a STOP.
  bool damage_accepted = false;    // The operator told the broker to go on after a corruption.
  std::array<char, 32> version{};
};

struct Recovery {
  enum class Kind : std::uint32_t {
    kTornTail = 1,        // Bytes after the last good record were cut off.
    kDamage = 2,          // Bad bytes before good records: the file was kept, a new segment begun.
    kSegmentMissing = 3,  // A ROTATE announced this segment, but it was not there.
  };
  Kind kind = Kind::kTornTail;
  std::uint64_t segment = 0;  // Which file,
  std::uint64_t offset = 0;   // from where in it,
  std::uint64_t bytes = 0;    // how much was cut, or is not to be trusted,
  Hash sha256{};              // and its hash.
  std::uint64_t first_bad_seq = 0;
};

struct Rotate {
  std::uint64_t next_segment = 0;
  // What stays, after old segments are deleted: the anchor for a log without its beginning.
  std::uint64_t oldest_segment = 0;
  std::uint64_t oldest_first_seq = 0;
  Hash oldest_previous{};     // As in that segment's header.
  std::uint64_t deleted = 0;  // How many segments are deleted now.
};

struct Seal {
  std::uint64_t epoch = 0;
  std::uint64_t count = 0;
  Hash head{};
  Hash root{};
};

struct Record {
  // Filled by Log::append.
  std::uint64_t seq = 0;
  std::uint64_t realtime_ns = 0;
  std::uint64_t boottime_ns = 0;
  std::uint64_t epoch = 0;
  Hash chain{};

  Type type{};
  Outcome outcome = Outcome::kInfo;
  Access access{};  // Zero: none asked for.
  Reason reason = Reason::kNone;

  std::int32_t acl_code = 0;
  Actor actor{};
  Owner owner{};
  std::uint64_t share_id = 0;
  std::uint64_t offset = 0;
  std::uint64_t size = 0;
  std::uint32_t page = 0;
  Backing backing = Backing::kNone;
  Id128 key_id{};  // See key_id() in chain.h; never the key.
  std::uint64_t connection = 0;
  std::uint64_t request = 0;
  std::uint32_t refs_after = 0;
  std::uint32_t flags = 0;
  std::uint64_t aux = 0;  // What it means depends on the type.

  // Set exactly for the four types that use 48..223 for it; the fields from acl_code on are then
  // not written.
  std::variant<std::monostate, Start, Recovery, Rotate, Seal> own{};
};

// Offsets in the 256 bytes, each the end of the field before it.
namespace at {
inline constexpr std::size_t kMagic = 0;
inline constexpr std::size_t kCrc = kMagic + 4;
inline constexpr std::size_t kSeq = kCrc + 4;
inline constexpr std::size_t kRealtime = kSeq + 8;
inline constexpr std::size_t kBoottime = kRealtime + 8;
inline constexpr std::size_t kEpoch = kBoottime + 8;
inline constexpr std::size_t kFormat = kEpoch + 8;
inline constexpr std::size_t kType = kFormat + 2;
inline constexpr std::size_t kOutcome = kType + 2;
inline constexpr std::size_t kAccess = kOutcome + 1;
inline constexpr std::size_t kReason = kAccess + 1;
inline constexpr std::size_t kActorUid = kReason + 2;
inline constexpr std::size_t kOwn = kActorUid;
inline constexpr std::size_t kActorGid = kActorUid + 4;
inline constexpr std::size_t kActorPid = kActorGid + 4;
inline constexpr std::size_t kAclCode = kActorPid + 4;
inline constexpr std::size_t kStartTime = kAclCode + 4;
inline constexpr std::size_t kPidfsInode = kStartTime + 8;
inline constexpr std::size_t kCgroupId = kPidfsInode + 8;
inline constexpr std::size_t kExeDev = kCgroupId + 8;
inline constexpr std::size_t kExeIno = kExeDev + 8;
inline constexpr std::size_t kComm = kExeIno + 8;
inline constexpr std::size_t kOwnerUid = kComm + 16;
inline constexpr std::size_t kOwnerPid = kOwnerUid + 4;
inline constexpr std::size_t kOwnerPidfsInode = kOwnerPid + 4;
inline constexpr std::size_t kShareId = kOwnerPidfsInode + 8;
inline constexpr std::size_t kOffset = kShareId + 8;
inline constexpr std::size_t kSize = kOffset + 8;
inline constexpr std::size_t kPage = kSize + 8;
inline constexpr std::size_t kBacking = kPage + 4;
inline constexpr std::size_t kKeyId = kBacking + 1 + 3;
inline constexpr std::size_t kConnection = kKeyId + 16;
inline constexpr std::size_t kRequest = kConnection + 8;
inline constexpr std::size_t kRefsAfter = kRequest + 8;
inline constexpr std::size_t kFlags = kRefsAfter + 4;
inline constexpr std::size_t kAux = kFlags + 4;
inline constexpr std::size_t kChain = kAux + 8 + 8;

// The published layout. A change here is a change of format and needs a new format number.
static_assert(kCrc == 4 && kSeq == 8 && kRealtime == 16 && kBoottime == 24 && kEpoch == 32);
static_assert(kFormat == 40 && kType == 42 && kOutcome == 44 && kAccess == 45 && kReason == 46);
static_assert(kActorUid == 48 && kActorGid == 52 && kActorPid == 56 && kAclCode == 60);
static_assert(kStartTime == 64 && kPidfsInode == 72 && kCgroupId == 80 && kExeDev == 88);
static_assert(kExeIno == 96 && kComm == 104 && kOwnerUid == 120 && kOwnerPid == 124);
static_assert(kOwnerPidfsInode == 128 && kShareId == 136 && kOffset == 144 && kSize == 152);
static_assert(kPage == 160 && kBacking == 164 && kKeyId == 168 && kConnection == 184);
static_assert(kRequest == 192 && kRefsAfter == 200 && kFlags == 204 && kAux == 208);
static_assert(kChain == kLinkedBytes && kChain + sizeof(Hash) == kRecordBytes);
}  // namespace at

// The record's own type says which alternative of `own` it must hold; anything else is our mistake
// and asserts. The chain is written as it stands in the record.
Bytes256 encode(const Record& record);

// Exactly what encode() writes, else kMalformed with what is wrong. The chain is not checked here:
// that needs the record before. Type numbers of a later version decode, with no name.
Result<Record> decode(std::span<const std::byte, kRecordBytes> bytes);

}  // namespace hufu::audit
