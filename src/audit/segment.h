#pragma once

// A segment: one file of the log, judged as bytes.
//
// A segment is a header and then records, 256 bytes each, then zeros up to its full size. The
// header is a link of the chain like any record: it takes up the chain where the segment before
// ended, so segments cannot be swapped, dropped or brought in from another log, and the first
// record of a segment follows on from its header. A record's number is therefore header.first_seq +
// slot - 1.
//
//   slot   0        1        2              n        n+1 ...
//        +--------+--------+--------+-----+--------+-----------------+
//        | header | record | record | ... | record | zeros (or, when |
//        +--------+--------+--------+-----+--------+ full, a ROTATE) |
//            `--h----^ `-h---^                     +-----------------+
//
// Nothing here reads a file or knows a clock: bytes in, verdict out.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string_view>

#include "audit/chain.h"
#include "audit/record.h"
#include "base/result.h"
#include "base/units.h"

namespace hufu::audit {

inline constexpr std::uint32_t kSegmentBytes = 4 * kMiB;
// A header, a START, one record and a ROTATE: below this a log could only talk about itself.
inline constexpr std::uint32_t kMinSegmentBytes = 4 * kRecordBytes;

struct SegmentHeader {
  std::uint64_t number = 0;
  std::uint64_t first_seq = 0;
  std::uint64_t epoch = 0;
  std::uint64_t created_ns = 0;  // Wall clock: what age is counted from.
  std::uint32_t segment_bytes = 0;
  bool damage_unaccepted = false;  // See Log::State::kCorrupt.
  Id128 log_id{};
  Hash previous{};  // The chain's value at the end of the segment before; zeros in the first.
  Hash chain{};
};

Bytes256 encode(const SegmentHeader& header);
Result<SegmentHeader> decode_header(std::span<const std::byte, kRecordBytes> bytes);

// Where the chain stands.
struct Link {
  Hash head{};
  std::uint64_t next_seq = 1;
};

enum class Fault : std::uint8_t {
  kNone,
  kShort,         // The file is smaller than its header says, or smaller than a header.
  kHeader,        // Slot 0 is not a header.
  kForeign,       // The header is of another log, or the key is.
  kNotFollowing,  // The header does not take up the chain where it stood.
  kNotARecord,    // Magic, CRC, format or zeros.
  kMissing,       // Zeros where a record should be: a later slot holds one.
  kTrailing,      // Something that is no record after the last record.
  kWrongSeq,      // A record, but not the one that belongs here.
  kWrongEpoch,
  kChain,        // Whole and in place, but its link does not fit: altered, or before it.
  kAfterRotate,  // Something follows the ROTATE that should be last.
  kNoRotate,     // Full, and the last record is not a ROTATE.
};

std::string_view text_of(Fault fault);

struct SegmentVerdict {
  std::optional<SegmentHeader> header;
  Link link;                   // After the last good record.
  std::uint64_t records = 0;   // Good ones.
  std::optional<Record> last;  // The last good one.

  Fault fault = Fault::kNone;
  std::size_t bad_slot = 0;    // Of the first bad 256 bytes.
  std::uint64_t bad_seq = 0;   // The record that should be there.
  bool torn_tail = false;      // It looks like an interrupted write: nothing whole follows.
  std::size_t used_bytes = 0;  // Up to the end of the last slot that is not all zeros.
};

using Visit = std::function<void(const Record&)>;

// Follows the chain through one segment. `before` is where it stood at the end of the segment
// before; nothing means that this is the oldest one there is, whose header is taken at its word.
// `visit` sees every good record, in order, and no other.
SegmentVerdict verify_segment(std::span<const std::byte> bytes, Chain& chain,
                              const std::optional<Link>& before, const Visit& visit = {});

}  // namespace hufu::audit
