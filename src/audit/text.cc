#include "audit/text.h"

#include <algorithm>
#include <ctime>
#include <iterator>

#include "audit/chain.h"
#include "audit/segment_file.h"

#include <fmt/format.h>

namespace hufu::audit {
namespace {

using Out = std::back_insert_iterator<std::string>;

constexpr std::uint64_t kNanoseconds = 1'000'000'000;

void put_time(Out out, std::uint64_t realtime_ns) {
  const auto seconds = static_cast<std::time_t>(realtime_ns / kNanoseconds);
  std::tm utc{};
  ::gmtime_r(&seconds, &utc);
  fmt::format_to(out, "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:09}Z", utc.tm_year + 1900,
                 utc.tm_mon + 1, utc.tm_mday, utc.tm_hour, utc.tm_min, utc.tm_sec,
                 realtime_ns % kNanoseconds);
}

template <std::size_t N>
std::string hex_of(const std::array<std::byte, N>& bytes) {
  return fmt::format("{:02x}", fmt::join(bytes.begin(), bytes.end(), ""));
}

void put_body(Out out, const Record& record, std::monostate) {
  const Actor& actor = record.actor;
  if (actor.pid != 0 || actor.uid != 0) {
    fmt::format_to(out, " pid={} uid={} comm=\"{}\"", actor.pid, actor.uid, escaped(actor.comm));
  }
  if (record.key_id != Id128{}) fmt::format_to(out, " key={}", hex(record.key_id));
  if (record.size != 0) fmt::format_to(out, " size={}", record.size);
  if (record.owner.pid != 0) {
    fmt::format_to(out, " owner_pid={} owner_uid={}", record.owner.pid, record.owner.uid);
  }
  switch (record.type) {
    case Type::kListAdd:
    case Type::kListDel:
      fmt::format_to(out, " listed_pid={}", record.aux);
      return;
    case Type::kClockStep:
      fmt::format_to(out, " step_ns={}", static_cast<std::int64_t>(record.aux));
      return;
    case Type::kIllegalAddress:
      fmt::format_to(out, " address={:#x}", record.aux);
      return;
    case Type::kSuppressed:
      fmt::format_to(out, " records={}", record.aux);
      return;
    default:  // No other type has an aux that the line needs.
      return;
  }
}

void put_body(Out out, const Record&, const Start& start) {
  fmt::format_to(out, " version={} instance={}{}{}{}", escaped(start.version), hex(start.instance),
                 start.volatile_home ? " volatile" : "",
                 start.after_unclean_end ? " after_unclean_end" : "",
                 start.damage_accepted ? " damage_accepted" : "");
}

void put_body(Out out, const Record&, const Recovery& recovery) {
  const std::string file = segment_name(recovery.segment);
  switch (recovery.kind) {
    case Recovery::Kind::kTornTail:
      fmt::format_to(out, " torn_tail file={} offset={} cut={} sha256={}", file, recovery.offset,
                     recovery.bytes, hex_of(recovery.sha256));
      return;
    case Recovery::Kind::kDamage:
      fmt::format_to(out, " damage file={} offset={} distrusted={} sha256={} first_bad={}", file,
                     recovery.offset, recovery.bytes, hex_of(recovery.sha256),
                     recovery.first_bad_seq);
      return;
    case Recovery::Kind::kSegmentMissing:
      fmt::format_to(out, " segment_missing file={} first_missing={}", file,
                     recovery.first_bad_seq);
      return;
  }
  fmt::format_to(out, " kind={}", static_cast<std::uint32_t>(recovery.kind));
}

void put_body(Out out, const Record&, const Rotate& rotate) {
  fmt::format_to(out, " next={} oldest={} deleted={}", segment_name(rotate.next_segment),
                 segment_name(rotate.oldest_segment), rotate.deleted);
}

void put_body(Out out, const Record&, const Seal& seal) {
  fmt::format_to(out, " epoch={} count={} head={}", seal.epoch, seal.count, hex_of(seal.head));
}

}  // namespace

std::string_view name_of(Type type) {
  switch (type) {
    case Type::kStart:
      return "START";
    case Type::kStop:
      return "STOP";
    case Type::kRecovery:
      return "RECOVERY";
    case Type::kExport:
      return "EXPORT";
    case Type::kListAdd:
      return "LIST_ADD";
    case Type::kListDel:
      return "LIST_DEL";
    case Type::kImport:
      return "IMPORT";
    case Type::kDeny:
      return "DENY";
    case Type::kCloseClaimed:
      return "CLOSE_CLAIMED";
    case Type::kReleaseVerified:
      return "RELEASE_VERIFIED";
    case Type::kStillHeld:
      return "STILL_HELD";
    case Type::kProcessExit:
      return "PROCESS_EXIT";
    case Type::kRevoke:
      return "REVOKE";
    case Type::kTripwire:
      return "TRIPWIRE";
    case Type::kLimitHit:
      return "LIMIT_HIT";
    case Type::kSuppressed:
      return "SUPPRESSED";
    case Type::kPolicyChange:
      return "POLICY_CHANGE";
    case Type::kClockStep:
      return "CLOCK_STEP";
    case Type::kRotate:
      return "ROTATE";
    case Type::kSeal:
      return "SEAL";
    case Type::kAuditFault:
      return "AUDIT_FAULT";
    case Type::kReleaseProbed:
      return "RELEASE_PROBED";
    case Type::kFreeClaimed:
      return "FREE_CLAIMED";
    case Type::kWithdraw:
      return "WITHDRAW";
    case Type::kGrantUndelivered:
      return "GRANT_UNDELIVERED";
    case Type::kIllegalAddress:
      return "ILLEGAL_ADDRESS";
    case Type::kExecChanged:
      return "EXEC_CHANGED";
  }
  return "UNKNOWN";
}

std::string_view name_of(Outcome outcome) {
  switch (outcome) {
    case Outcome::kAllow:
      return "allow";
    case Outcome::kDeny:
      return "deny";
    case Outcome::kInfo:
      return "info";
  }
  return "unknown";
}

std::string escaped(std::span<const char> name) {
  std::string text;
  for (const char c : std::string_view(name.begin(), std::ranges::find(name, '\0'))) {
    if (c < ' ' || c > '~' || c == '\\' || c == '"') {
      fmt::format_to(std::back_inserter(text), "\\x{:02x}", static_cast<unsigned char>(c));
    } else {
      text += c;
    }
  }
  return text;
}

std::string to_line(const Record& record) {
  std::string line;
  const Out out = std::back_inserter(line);
  const bool refusal = record.type == Type::kDeny && record.aux != 0;
  const Type verb = refusal ? static_cast<Type>(record.aux) : record.type;
  put_time(out, record.realtime_ns);
  fmt::format_to(out, " #{} {} {}", record.seq, name_of(verb), name_of(record.outcome));
  if (record.reason != Reason::kNone) fmt::format_to(out, "/{}", name_of(record.reason));
  std::visit([&](const auto& own) { put_body(out, record, own); }, record.own);
  return line;
}

}  // namespace hufu::audit
