#include "audit/segment.h"

#include <algorithm>

#include "audit/layout.h"

namespace hufu::audit {
namespace {

constexpr Magic kMagic = {'H', 'F', 'U', 'S'};
constexpr std::uint32_t kDamageUnaccepted = 1;

using Slot = std::span<const std::byte, kRecordBytes>;

Slot slot_at(std::span<const std::byte> bytes, std::size_t slot) {
  return bytes.subspan(slot * kRecordBytes).first<kRecordBytes>();
}

void lay_out(auto& io, auto& header, auto& format, auto& flags) {
  io.field(8, header.number);
  io.field(16, header.first_seq);
  io.field(24, header.created_ns);
  io.field(32, header.epoch);
  io.field(at::kFormat, format);
  io.zeros(42, 44);
  io.field(44, header.segment_bytes);
  io.field(48, flags);
  io.only_bits(flags, kDamageUnaccepted);
  io.zeros(52, 56);
  io.field(56, header.log_id);
  io.field(72, header.previous);
  io.zeros(104, at::kChain);
  io.field(at::kChain, header.chain);
}

// Does any slot in [slot, end) hold a whole record, its own or another's?
bool any_record(std::span<const std::byte> bytes, std::size_t slot, std::size_t end) {
  for (; slot < end; ++slot) {
    if (decode(slot_at(bytes, slot))) return true;
  }
  return false;
}

std::size_t count_used_slots(std::span<const std::byte> bytes) {
  std::size_t slots = bytes.size() / kRecordBytes;
  while (slots > 0 && is_zero(slot_at(bytes, slots - 1)))
    --slots;
  return slots;
}

}  // namespace

std::string_view text_of(Fault fault) {
  switch (fault) {
    case Fault::kNone:
      return "nothing is wrong";
    case Fault::kShort:
      return "the file is shorter than its segment";
    case Fault::kHeader:
      return "the segment's header is damaged";
    case Fault::kForeign:
      return "the segment belongs to another log, or key0 does";
    case Fault::kNotFollowing:
      return "the segment does not follow on from the one before it";
    case Fault::kNotARecord:
      return "the bytes are not a whole record";
    case Fault::kMissing:
      return "the record is missing: its place is empty, and others follow";
    case Fault::kTrailing:
      return "bytes that are no record follow the last one";
    case Fault::kWrongSeq:
      return "another record stands in this one's place";
    case Fault::kWrongEpoch:
      return "the record is of another epoch than its segment";
    case Fault::kChain:
      return "the record was altered: it is whole, but its chain value does not fit";
    case Fault::kAfterRotate:
      return "a record follows the one that closed the segment";
    case Fault::kNoRotate:
      return "the segment is full but was never closed";
  }
  return "unknown";
}

Bytes256 encode(const SegmentHeader& header) {
  Bytes256 bytes{};
  const std::uint32_t flags = header.damage_unaccepted ? kDamageUnaccepted : 0;
  Writer out(bytes);
  lay_out(out, header, kFormat, flags);
  put_magic_and_crc(bytes, kMagic);
  return bytes;
}

Result<SegmentHeader> decode_header(std::span<const std::byte, kRecordBytes> bytes) {
  SegmentHeader header;
  std::uint16_t format = 0;
  std::uint32_t flags = 0;
  Reader in(bytes);
  lay_out(in, header, format, flags);
  if (!magic_is(bytes, kMagic) || !crc_fits(bytes) || format != kFormat || !in.zeros_are_zero() ||
      header.segment_bytes < kMinSegmentBytes || header.segment_bytes % kRecordBytes != 0) {
    return fail(Errc::kInvalidArgument, Reason::kMalformed, "not a segment header");
  }
  header.damage_unaccepted = (flags & kDamageUnaccepted) != 0;
  return header;
}

SegmentVerdict verify_segment(std::span<const std::byte> bytes, Chain& chain,
                              const std::optional<Link>& before, const Visit& visit) {
  SegmentVerdict verdict;
  if (before) verdict.link = *before;
  verdict.bad_seq = verdict.link.next_seq;
  const std::size_t used_slots = count_used_slots(bytes);
  verdict.used_bytes = used_slots * kRecordBytes;
  const auto bad = [&](Fault fault) {
    verdict.fault = fault;
    return verdict;
  };

  if (bytes.size() < kRecordBytes) return bad(Fault::kShort);
  const auto header = decode_header(slot_at(bytes, 0));
  if (!header) return bad(Fault::kHeader);
  if (!before) verdict.bad_seq = header->first_seq;
  if (header->log_id != chain.log_id()) return bad(Fault::kForeign);
  if (before && (header->previous != before->head || header->first_seq != before->next_seq)) {
    return bad(Fault::kNotFollowing);
  }
  if (chain.link(header->previous, bytes.first<kLinkedBytes>()) != header->chain) {
    return bad(Fault::kHeader);
  }
  verdict.header = *header;
  verdict.link = {.head = header->chain, .next_seq = header->first_seq};

  const std::size_t slots = std::size_t{header->segment_bytes} / kRecordBytes;
  for (std::size_t slot = 1; slot < used_slots; ++slot) {
    const Slot here = slot_at(bytes, slot);
    const auto bad_record = [&](Fault fault) {
      verdict.bad_slot = slot;
      verdict.bad_seq = header->first_seq + slot - 1;
      // A record that was written whole is not the remains of an interrupted write, unless only its
      // chain value was cut: an interrupted write leaves the zeros that were there before.
      const bool interrupted = fault == Fault::kNotARecord || fault == Fault::kTrailing ||
                               (fault == Fault::kChain && here.back() == std::byte{0});
      verdict.torn_tail = interrupted && !any_record(bytes, slot + 1, used_slots);
      return bad(fault);
    };
    if (slot >= slots || (verdict.last && verdict.last->type == Type::kRotate)) {
      return bad_record(Fault::kAfterRotate);
    }
    if (is_zero(here)) {
      if (any_record(bytes, slot + 1, used_slots)) return bad_record(Fault::kMissing);
      while (is_zero(slot_at(bytes, slot)))
        ++slot;
      return bad_record(Fault::kTrailing);
    }
    const auto record = decode(here);
    if (!record) return bad_record(Fault::kNotARecord);
    if (record->seq != verdict.link.next_seq) return bad_record(Fault::kWrongSeq);
    if (record->epoch != header->epoch) return bad_record(Fault::kWrongEpoch);
    if (chain.link(verdict.link.head, here.first<kLinkedBytes>()) != record->chain) {
      return bad_record(Fault::kChain);
    }
    verdict.link = {.head = record->chain, .next_seq = record->seq + 1};
    verdict.last = *record;
    ++verdict.records;
    if (visit) visit(*record);
  }
  verdict.bad_seq = verdict.link.next_seq;
  verdict.bad_slot = std::max<std::size_t>(used_slots, 1);
  if (bytes.size() < header->segment_bytes) return bad(Fault::kShort);
  if (used_slots == slots && verdict.last && verdict.last->type != Type::kRotate) {
    return bad(Fault::kNoRotate);
  }
  return verdict;
}

}  // namespace hufu::audit
