// How the log is taken up again.
//
// Records go into slots in order, and a slot is zeros before it is written. So what a crash can
// leave is little: whole records, perhaps the remains of one, then zeros. open() walks the last
// segment and tells four ends apart:
//
//   good good good 0 0 0      in order: go on in the next slot
//   good good tor0 0 0 0      an interrupted write: put zeros there, RECOVERY says what was cut
//   good BAD  good 0 0 0      no crash does this: leave the file alone for whoever investigates,
//                             go on in a new segment that takes up the chain at the last good
//                             record, RECOVERY says so, and grants wait until somebody accepts it
//   good good ROTATE          the process died, or somebody deleted a file, between two segments:
//                             begin the one that was announced, RECOVERY says so
//
// Only the last segment is read, so a start costs milliseconds; the verifier reads them all.

#include "audit/log.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "audit/layout.h"

namespace hufu::audit {
namespace {

// 64 KiB at the end of a segment: what denials and closes still get when no segment can be made.
constexpr std::size_t kReserveSlots = 64 * kKiB / kRecordBytes;

// What is written at once passes through the stack: 16 KiB.
constexpr std::size_t kMostInOneWrite = 64;

// The wall clock moved by itself if it and the boot clock disagree by more than this, or by more
// than a clock that is being slewed can (0.05 %), whichever is larger.
constexpr std::int64_t kStepNs = 1'000'000'000;
constexpr std::int64_t kSlewDivisor = 1000;

bool is_grant(const Record& record) {
  return record.outcome == Outcome::kAllow &&
         (record.type == Type::kExport || record.type == Type::kImport ||
          record.type == Type::kListAdd);
}

}  // namespace

Log::Log(const Options& options, Directory directory, UniqueFd lock, const ChainKey& key)
    : options_(options), directory_(std::move(directory)), lock_(std::move(lock)), chain_(key) {}

Result<Log> Log::open(const Options& options) {
  if (options.segment_bytes < kMinSegmentBytes || options.segment_bytes % kRecordBytes != 0) {
    return fail(Errc::kInvalidArgument, Reason::kAuditFailed,
                "audit segments of {} bytes: must be a multiple of {}, at least {}",
                options.segment_bytes, kRecordBytes, kMinSegmentBytes);
  }
  auto directory = open_or_make_directory(options.directory);
  if (!directory) return directory.error();
  auto lock = lock_for_writing(*directory);
  if (!lock) return lock.error();
  const auto numbers = list_segments(*directory);
  if (!numbers) return numbers.error();
  auto key = read_key(*directory);
  if (!key && key.error().sys_errno == ENOENT) {
    if (!numbers->empty()) {
      return fail(Errc::kUnavailable, Reason::kAuditFailed,
                  "audit log {}: key0 is gone, so its {} segments can be neither continued nor "
                  "verified; restore it, or move the directory away and a new log begins",
                  options.directory, numbers->size());
    }
    key = make_key(*directory);
  }
  if (!key) return key.error();

  Log log(options, std::move(*directory), std::move(*lock), *key);
  if (auto done = log.take_up(*numbers); !done) return done.error();
  return log;
}

Result<void> Log::take_up(const std::vector<std::uint64_t>& numbers) {
  for (const std::uint64_t number : numbers) {
    Bytes256 bytes{};
    const auto file = open_segment(directory_, number, false);
    if (!file) return file.error();
    if (auto got = read_at(file->get(), 0, bytes); !got) return got.error();
    // A header that cannot be read has nothing to keep but its number.
    const auto header = decode_header(bytes);
    kept_.push_back(header ? Kept{.number = number,
                                  .first_seq = header->first_seq,
                                  .created_ns = header->created_ns,
                                  .damage_unaccepted = header->damage_unaccepted,
                                  .previous = header->previous}
                           : Kept{.number = number});
  }
  if (numbers.empty()) {
    if (auto done = begin_segment(1, options_.now()); !done) return done.error();
    return write_all_that_open_found(false);
  }

  const std::uint64_t last = numbers.back();
  const auto bytes = read_segment(directory_, last);
  if (!bytes) return bytes.error();
  const auto watch_damage = [this](const Record& record) {
    if (const auto* recovery = std::get_if<Recovery>(&record.own)) {
      corrupt_ = corrupt_ || recovery->kind == Recovery::Kind::kDamage;
    }
    if (const auto* start = std::get_if<Start>(&record.own)) {
      corrupt_ = corrupt_ && !start->damage_accepted;
    }
  };
  corrupt_ = kept_.back().damage_unaccepted;
  const SegmentVerdict verdict = verify_segment(*bytes, chain_, std::nullopt, watch_damage);
  const bool after_unclean_end = !verdict.last || verdict.last->type != Type::kStop;

  if (verdict.fault != Fault::kNone && !verdict.torn_tail) {
    if (auto done = take_up_after_damage(numbers, *bytes, verdict); !done) return done.error();
    return write_all_that_open_found(true);
  }
  link_ = verdict.link;
  if (verdict.last && verdict.last->type == Type::kRotate) {
    recovery_ = Recovery{.kind = Recovery::Kind::kSegmentMissing,
                         .segment = last + 1,
                         .first_bad_seq = link_.next_seq};
    if (auto done = begin_segment(last + 1, options_.now()); !done) return done.error();
    return write_all_that_open_found(true);
  }
  auto file = open_segment(directory_, last, true);
  if (!file) return file.error();
  slots_ = verdict.header->segment_bytes / kRecordBytes;
  use(std::move(*file));
  slot_ = verdict.records + 1;
  if (verdict.torn_tail) {
    const std::size_t offset = verdict.bad_slot * kRecordBytes;
    const auto tail = std::span(*bytes).subspan(offset, verdict.used_bytes - offset);
    recovery_ = Recovery{.kind = Recovery::Kind::kTornTail,
                         .segment = last,
                         .offset = offset,
                         .bytes = tail.size(),
                         .sha256 = Sha256().of({tail}),
                         .first_bad_seq = verdict.bad_seq};
    const std::vector<std::byte> zeros(tail.size());
    if (auto done = write_at(file_->get(), offset, zeros); !done) return done.error();
  }
  return write_all_that_open_found(after_unclean_end);
}

Result<void> Log::take_up_after_damage(const std::vector<std::uint64_t>& numbers,
                                       std::span<const std::byte> segment, SegmentVerdict verdict) {
  const std::uint64_t damaged = numbers.back();
  if (!verdict.header && numbers.size() > 1) {
    // Without a good header there is no good record in it: the chain stands where the segment
    // before ended.
    const auto before = read_segment(directory_, numbers[numbers.size() - 2]);
    if (!before) return before.error();
    verdict.link = verify_segment(*before, chain_, std::nullopt).link;
    verdict.bad_seq = verdict.link.next_seq;
  }
  const std::size_t offset = std::min(verdict.bad_slot * kRecordBytes, verdict.used_bytes);
  const auto distrusted = segment.subspan(offset, verdict.used_bytes - offset);
  recovery_ = Recovery{.kind = Recovery::Kind::kDamage,
                       .segment = damaged,
                       .offset = offset,
                       .bytes = distrusted.size(),
                       .sha256 = Sha256().of({distrusted}),
                       .first_bad_seq = verdict.bad_seq};
  // Past every number that the distrusted bytes may have used: no two records share one.
  link_ = {.head = verdict.link.head,
           .next_seq = verdict.link.next_seq + distrusted.size() / kRecordBytes};
  corrupt_ = true;
  return begin_segment(damaged + 1, options_.now());
}

Result<void> Log::write_all_that_open_found(bool after_unclean_end) {
  if (recovery_) {
    Record record{.type = Type::kRecovery, .own = *recovery_};
    if (auto done = append(record); !done) return done.error();
  }
  Start start{.instance = options_.instance,
              .boot_id = options_.boot_id,
              .volatile_home = options_.volatile_home,
              .after_unclean_end = after_unclean_end,
              .damage_accepted = corrupt_ && options_.accept_damage};
  std::copy_n(options_.version.begin(), std::min(options_.version.size(), start.version.size()),
              start.version.begin());
  corrupt_ = corrupt_ && !options_.accept_damage;
  Record record{.type = Type::kStart, .own = start};
  return append(record);
}

Result<void> Log::append(std::span<Record> records) {
  const std::lock_guard guard(*mutex_);
  if (failure_) return *failure_;
  const Times times = options_.now();
  if (auto done = record_clock_step(times); !done) return done.error();
  const bool grants = std::ranges::any_of(records, is_grant);
  while (!records.empty()) {
    if (auto done = make_room(grants, times); !done) return done.error();
    const std::size_t fit = std::min({records.size(), slots_ - slot_ - 1, kMostInOneWrite});
    if (auto done = write(records.first(fit), times); !done) return done.error();
    records = records.subspan(fit);
  }
  return {};
}

Result<void> Log::record_clock_step(const Times& times) {
  const auto before = std::exchange(last_times_, times);
  if (!before) return {};
  const auto since = [](std::uint64_t later, std::uint64_t earlier) {
    return static_cast<std::int64_t>(later - earlier);
  };
  const std::int64_t elapsed = since(times.boottime_ns, before->boottime_ns);
  const std::int64_t step = since(times.realtime_ns, before->realtime_ns) - elapsed;
  if (std::abs(step) <= std::max(kStepNs, elapsed / kSlewDivisor)) return {};
  Record record{.type = Type::kClockStep, .aux = static_cast<std::uint64_t>(step)};
  if (auto done = make_room(false, times); !done) return done.error();
  return write({&record, 1}, times);
}

// The last slot of a segment is ROTATE's. Near the end the next segment is made ahead of time;
// while that fails, what is left is for records that grant nothing.
Result<void> Log::make_room(bool for_grants, const Times& times) {
  const std::size_t left = slots_ - slot_ - 1;
  if (left == 0) return rotate(times);
  if (spare_ || left > std::min(kReserveSlots, slots_ / 4)) return {};
  auto spare = make_spare(directory_, options_.segment_bytes);
  if (spare) {
    spare_ = std::move(*spare);
  } else if (for_grants) {
    return spare.error();
  }
  return {};
}

Result<void> Log::write(std::span<Record> records, const Times& times) {
  std::array<Bytes256, kMostInOneWrite> slots;
  Link link = link_;
  for (std::size_t i = 0; i < records.size(); ++i) {
    Record& record = records[i];
    record.seq = link.next_seq;
    record.realtime_ns = times.realtime_ns;
    record.boottime_ns = times.boottime_ns;
    record.epoch = 0;
    slots[i] = encode(record);
    record.chain = chain_.link(link.head, std::span(slots[i]).first<kLinkedBytes>());
    std::ranges::copy(record.chain, slots[i].begin() + at::kChain);
    link = {.head = record.chain, .next_seq = record.seq + 1};
  }
  if (auto done = put(std::span(slots).first(records.size())); !done) {
    failure_ = done.error();
    return *failure_;
  }
  link_ = link;
  slot_ += records.size();
  return {};
}

Result<void> Log::put(std::span<const Bytes256> slots) {
  const std::size_t offset = slot_ * kRecordBytes;
  if (!mapped_) return write_at(file_->get(), offset, std::as_bytes(slots));
  // One after the other: a death in between leaves whole records and the remains of one, as a write
  // does, and never a gap.
  for (std::size_t i = 0; i < slots.size(); ++i) {
    if (auto done = mapped_.store(offset + i * kRecordBytes, slots[i]); !done) {
      return failed_store(directory_, kept_.back().number, done.error().sys_errno);
    }
  }
  return {};
}

void Log::use(UniqueFd file) {
  mapped_ = {};
  if (options_.mapped) {
    if (auto mapped = os::MappedFile::map(file.get(), slots_ * kRecordBytes)) {
      mapped_ = std::move(*mapped);
    }
  }
  file_ = std::make_shared<UniqueFd>(std::move(file));
}

Result<void> Log::rotate(const Times& times) {
  if (!spare_) {
    auto spare = make_spare(directory_, options_.segment_bytes);
    if (!spare) return spare.error();
    spare_ = std::move(*spare);
  }
  const Rotate plan = plan_rotation(times);
  Record record{.type = Type::kRotate, .own = plan};
  if (auto done = write({&record, 1}, times); !done) return done.error();
  if (auto done = begin_segment(plan.next_segment, times); !done) {
    failure_ = done.error();  // The old segment is closed and there is no new one.
    return *failure_;
  }
  for (std::uint64_t i = 0; i < plan.deleted; ++i) {
    // One that cannot be deleted stays: it verifies like the rest, and the next run tries again.
    static_cast<void>(delete_segment(directory_, kept_.front().number));
    kept_.pop_front();
  }
  return {};
}

Rotate Log::plan_rotation(const Times& times) const {
  const std::uint64_t room =
      std::max<std::uint64_t>(options_.keep_bytes / options_.segment_bytes, 2);
  const std::uint64_t cutoff = times.realtime_ns - std::min(times.realtime_ns, options_.keep_ns);
  std::size_t first = 0;  // The oldest one that stays; at the latest the one being closed.
  while (first + 1 < kept_.size() && (kept_.size() + 1 - first > room ||
                                      // Its last record is as old as its successor's header.
                                      kept_[first + 1].created_ns < cutoff)) {
    ++first;
  }
  return {.next_segment = kept_.back().number + 1,
          .oldest_segment = kept_[first].number,
          .oldest_first_seq = kept_[first].first_seq,
          .oldest_previous = kept_[first].previous,
          .deleted = first};
}

Result<void> Log::begin_segment(std::uint64_t number, const Times& times) {
  if (!spare_) {
    auto spare = make_spare(directory_, options_.segment_bytes);
    if (!spare) return spare.error();
    spare_ = std::move(*spare);
  }
  SegmentHeader header{.number = number,
                       .first_seq = link_.next_seq,
                       .created_ns = times.realtime_ns,
                       .segment_bytes = options_.segment_bytes,
                       .damage_unaccepted = corrupt_,
                       .log_id = chain_.log_id(),
                       .previous = link_.head};
  const Bytes256 unlinked = encode(header);
  header.chain = chain_.link(link_.head, std::span(unlinked).first<kLinkedBytes>());
  if (auto done = write_at(spare_.get(), 0, encode(header)); !done) return done.error();
  if (auto done = rename_spare(directory_, number); !done) return done.error();
  if (file_) unsynced_.push_back(std::move(file_));
  directory_unsynced_ = true;
  slots_ = options_.segment_bytes / kRecordBytes;
  use(std::move(spare_));
  slot_ = 1;
  link_.head = header.chain;
  kept_.push_back({.number = number,
                   .first_seq = header.first_seq,
                   .created_ns = header.created_ns,
                   .damage_unaccepted = corrupt_,
                   .previous = header.previous});
  return {};
}

Result<void> Log::sync() {
  std::unique_lock guard(*mutex_);
  if (failure_) return *failure_;
  auto files = std::exchange(unsynced_, {});
  files.push_back(file_);
  const bool names_too = std::exchange(directory_unsynced_, false);
  guard.unlock();

  Result<void> done;
  for (const auto& file : files) {
    done = flush(file->get());
    if (!done) break;
  }
  if (done && names_too) done = flush(directory_.fd.get());
  if (done) return {};
  guard.lock();
  if (!failure_) failure_ = done.error();
  return *failure_;
}

Result<void> Log::stop() {
  Record record{.type = Type::kStop};
  if (auto done = append(record); !done) return done.error();
  return sync();
}

Log::State Log::state() const {
  const std::lock_guard guard(*mutex_);
  if (failure_) return State::kFailed;
  return corrupt_ ? State::kCorrupt : State::kOpen;
}

}  // namespace hufu::audit
