#include "audit/verify.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "audit/layout.h"
#include "audit/segment_file.h"

namespace hufu::audit {
namespace {

constexpr int kMostWaitsForNextSegment = 100;  // Of a millisecond.

// Two reads of a segment that is being written. One could see a record's slot before it was written
// and the slot behind it after: a hole that never was. What the first read saw begun is done by the
// second, except perhaps the last record, which is waited for.
Result<std::vector<std::byte>> read_stable(const Directory& directory, std::uint64_t number) {
  auto first = read_segment(directory, number);
  if (!first) return first;
  std::size_t used = first->size() / kRecordBytes * kRecordBytes;
  while (used > 0 && is_zero(std::span(*first).subspan(used - kRecordBytes, kRecordBytes))) {
    used -= kRecordBytes;
  }
  for (int tries = 0;; ++tries) {
    auto again = read_segment(directory, number);
    if (!again) return again;
    if (again->size() < used) return again;
    std::fill(again->begin() + static_cast<std::ptrdiff_t>(used), again->end(), std::byte{0});
    const bool last_record_whole =
        used < kRecordBytes ||
        decode(std::span(*again).subspan(used - kRecordBytes).first<kRecordBytes>()).has_value();
    if (last_record_whole || tries == 2) return again;
  }
}

class Judge {
 public:
  Judge(Chain chain, const Visit& visit) : chain_(std::move(chain)), visit_(visit) {}

  // False: what follows cannot be judged any more.
  bool take(std::uint64_t number, std::span<const std::byte> bytes, bool last);
  void find(Status status, std::uint64_t seq, std::string file, std::uint64_t offset,
            std::string_view what);
  void finish(bool being_written);

  Verdict verdict;
  std::optional<std::uint64_t> expected;  // The next segment's number.
  bool closed() const { return last_ && last_->type == Type::kRotate; }

 private:
  void note(const Record& record);
  void check_beginning();

  Chain chain_;
  const Visit& visit_;
  std::optional<Link> link_;
  std::optional<Record> last_;
  std::uint64_t end_offset_ = 0;  // Of its end, in its segment.
  std::optional<SegmentHeader> oldest_;
  std::optional<std::pair<std::uint64_t, Rotate>> newest_rotate_;
  std::optional<std::pair<std::uint64_t, Recovery>> recovered_;
  bool distrusted_ = false;  // Numbers may jump: the segment before was damaged.
};

void Judge::find(Status status, std::uint64_t seq, std::string file, std::uint64_t offset,
                 std::string_view what) {
  if (verdict.status != Status::kOk) return;  // The first one is named.
  verdict.status = status;
  verdict.bad_seq = seq;
  verdict.file = std::move(file);
  verdict.offset = offset;
  verdict.what = what;
}

void Judge::note(const Record& record) {
  if (verdict.records++ == 0) verdict.first_seq = record.seq;
  verdict.last_seq = record.seq;
  if (const auto* rotate = std::get_if<Rotate>(&record.own)) {
    newest_rotate_ = {record.seq, *rotate};
  }
  if (const auto* recovery = std::get_if<Recovery>(&record.own); recovery && !recovered_) {
    recovered_ = {record.seq, *recovery};
  }
  if (visit_) visit_(record);
}

bool Judge::take(std::uint64_t number, std::span<const std::byte> bytes, bool last) {
  const std::string file = segment_name(number);
  if (expected && number != *expected) {
    find(Status::kEndsEarly, link_->next_seq, segment_name(*expected), 0,
         "the segment is missing, and later ones are there");
    return false;
  }
  expected = number + 1;
  // After damage the log goes on from its last good record, but not from that record's number.
  if (distrusted_ && bytes.size() >= kRecordBytes) {
    const auto header = decode_header(bytes.first<kRecordBytes>());
    if (header && header->previous == link_->head && header->first_seq >= link_->next_seq) {
      link_->next_seq = header->first_seq;
    }
  }
  const SegmentVerdict segment =
      verify_segment(bytes, chain_, link_, [this](const Record& record) { note(record); });
  if (segment.header && segment.header->number != number) {
    find(Status::kTampered, segment.header->first_seq, file, 0,
         "the file was renamed: its header has another number");
  }
  if (segment.header && !oldest_) oldest_ = segment.header;
  if (segment.fault != Fault::kNone) {
    // Only the end of the whole log can have been interrupted: a segment is left when it is full.
    const bool torn = segment.torn_tail && last;
    const Status status = torn                             ? Status::kRecoveredTail
                          : segment.fault == Fault::kShort ? Status::kEndsEarly
                                                           : Status::kTampered;
    find(status, segment.bad_seq, file, segment.bad_slot * kRecordBytes,
         torn ? "an interrupted write: what follows the last whole record is none; the next broker "
                "to "
                "open the log cuts it off"
              : text_of(segment.fault));
  }
  const bool linked = segment.header.has_value() || link_.has_value();
  distrusted_ = segment.fault != Fault::kNone;
  link_ = segment.link;
  end_offset_ = (segment.records + 1) * kRecordBytes;
  // A segment with no record yet has no last one; one with no header says nothing.
  if (segment.header) last_ = segment.last;
  return linked;
}

// A log that does not begin with segment 1 has lost its beginning, unless a ROTATE that is itself
// verified says that it was deleted for age or size, and where the rest takes up the chain.
void Judge::check_beginning() {
  if (!oldest_ || oldest_->number == 1) {
    if (oldest_ && oldest_->previous != Hash{}) {
      find(Status::kTampered, oldest_->first_seq, segment_name(1), 0,
           "the first segment claims to follow another one");
    }
    return;
  }
  const std::string file = segment_name(oldest_->number);
  if (!newest_rotate_ || oldest_->number > newest_rotate_->second.oldest_segment) {
    const std::uint64_t missing = newest_rotate_ ? newest_rotate_->second.oldest_segment : 1;
    const std::uint64_t seq = newest_rotate_ ? newest_rotate_->second.oldest_first_seq : 1;
    find(Status::kEndsEarly, seq, segment_name(missing), 0,
         "the log's beginning is missing, and no record says that it was deleted for age or size");
    return;
  }
  const Rotate& rotate = newest_rotate_->second;
  if (oldest_->number == rotate.oldest_segment && (oldest_->previous != rotate.oldest_previous ||
                                                   oldest_->first_seq != rotate.oldest_first_seq)) {
    find(Status::kTampered, oldest_->first_seq, file, 0,
         "the oldest segment is not the one that the last ROTATE left");
  }
}

void Judge::finish(bool being_written) {
  verdict.being_written = being_written;
  check_beginning();
  const std::uint64_t next = link_ ? link_->next_seq : 1;
  if (!expected) {
    find(Status::kEndsEarly, 1, "", 0, "there is no segment here: the whole log is missing");
  } else if (closed()) {
    find(Status::kEndsEarly, next, segment_name(*expected), 0,
         "the segment is missing: the last record announces it");
  } else if (!being_written && (!last_ || last_->type != Type::kStop)) {
    find(
        Status::kEndsEarly, next, segment_name(*expected - 1), end_offset_,
        "the log ends without STOP and no process writes it: its writer was killed, or the end was "
        "cut off");
  }
  if (recovered_) {
    const Recovery& recovery = recovered_->second;
    find(recovery.kind == Recovery::Kind::kDamage ? Status::kTampered : Status::kRecoveredTail,
         recovery.first_bad_seq, segment_name(recovery.segment), recovery.offset,
         fmt::format("{}; record {} says so",
                     recovery.kind == Recovery::Kind::kTornTail
                         ? "an interrupted write was cut off when the log was reopened"
                     : recovery.kind == Recovery::Kind::kDamage
                         ? "the log was damaged before it was reopened"
                         : "the segment was not there when the log was reopened",
                     recovered_->first));
  }
}

}  // namespace

Verdict verify_directory(const std::string& path, const Visit& visit) {
  const auto failed = [&](const Error& error) {
    const bool missing = error.sys_errno == ENOENT;
    return Verdict{.status = missing ? Status::kEndsEarly : Status::kIoError,
                   .file = path,
                   .what = std::string(error.what())};
  };
  const auto directory = open_directory(path);
  if (!directory) return failed(directory.error());
  const auto key = read_key(*directory);
  if (!key) return failed(key.error());

  Judge judge(Chain(*key), visit);
  const bool being_written = is_being_written(*directory);
  bool go_on = true;
  std::uint64_t done = 0;  // Segments up to this number have been judged.
  int waited = 0;
  // Listed again while the last segment ends in a ROTATE: its writer may have gone on meanwhile, or
  // be about to name the next segment, which it does microseconds later.
  do {
    const auto numbers = list_segments(*directory);
    if (!numbers) return failed(numbers.error());
    const auto fresh = std::ranges::upper_bound(*numbers, done);
    if (fresh == numbers->end()) {
      if (numbers->empty() || ++waited > kMostWaitsForNextSegment) break;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    for (auto number = fresh; go_on && number != numbers->end(); ++number) {
      const bool last = number + 1 == numbers->end();
      const auto bytes = being_written && last ? read_stable(*directory, *number)
                                               : read_segment(*directory, *number);
      if (!bytes && bytes.error().sys_errno == ENOENT && !judge.expected)
        continue;  // Rotated away.
      if (!bytes) {
        judge.find(Status::kIoError, 0, segment_name(*number), 0, bytes.error().what());
        go_on = false;
        break;
      }
      go_on = judge.take(*number, *bytes, last);
      done = *number;
    }
  } while (go_on && being_written && judge.closed());
  if (go_on) judge.finish(being_written || is_being_written(*directory));
  return judge.verdict;
}

}  // namespace hufu::audit
