#include "audit/log.h"

#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "audit/test_log.h"
#include "audit/verify.h"

namespace hufu::audit {
namespace {

using test::append_events;
using test::begin_fixed_log;
using test::fixed_options;
using test::read_file;
using test::segment_path;
using test::TemporaryDirectory;
using test::write_file;

std::vector<Record> records_in(const std::string& directory) {
  std::vector<Record> records;
  verify_directory(directory, [&](const Record& record) { records.push_back(record); });
  return records;
}

mode_t mode_of(const std::string& path) {
  struct stat status {};
  EXPECT_EQ(::stat(path.c_str(), &status), 0) << path;
  return status.st_mode & 07777U;
}

TEST(Log, ANewLogBeginsWithStartAndEndsWithStop) {
  const TemporaryDirectory home;
  const std::string directory = home.path() + "/state/hufu";
  {
    auto log = Log::open({.directory = directory, .version = "9"});
    ASSERT_TRUE(log) << log.error().what();
    EXPECT_EQ(log->state(), Log::State::kOpen);
    EXPECT_FALSE(log->recovery());
    append_events(*log, 2);
    ASSERT_TRUE(log->stop());
  }
  const auto records = records_in(directory);
  ASSERT_EQ(records.size(), 4U);
  EXPECT_EQ(records[0].type, Type::kStart);
  EXPECT_EQ(records[1].actor.pid, 4000U);
  EXPECT_EQ(records[3].type, Type::kStop);
  for (std::size_t i = 0; i < records.size(); ++i)
    EXPECT_EQ(records[i].seq, i + 1);
  EXPECT_EQ(verify_directory(directory).status, Status::kOk);
  EXPECT_EQ(mode_of(directory), 0700U);
  EXPECT_EQ(mode_of(directory + "/key0"), 0600U);
  EXPECT_EQ(mode_of(directory + "/000000000001.hfa"), 0640U);
  EXPECT_EQ(std::filesystem::file_size(directory + "/000000000001.hfa"), 4 * kMiB);
}

TEST(Log, RecordsOfOneAppendFollowEachOtherAlsoAcrossSegments) {
  const TemporaryDirectory home;
  auto options = begin_fixed_log(home.path());
  constexpr std::size_t kSlots = 100;
  options.segment_bytes = kSlots * kRecordBytes;
  constexpr std::size_t kAtOnce = 150;  // More than one write, more than what is left of a segment.
  {
    auto log = Log::open(options);
    ASSERT_TRUE(log) << log.error().what();
    for (std::size_t written = 0; written < 3 * kAtOnce; written += kAtOnce) {
      std::vector<Record> records;
      for (std::size_t i = 0; i < kAtOnce; ++i) {
        records.push_back(test::refused_import(0));
        records.back().aux = written + i;
      }
      ASSERT_TRUE(log->append(records));
    }
    ASSERT_TRUE(log->stop());
  }
  const auto verdict = verify_directory(home.path());
  EXPECT_EQ(verdict.status, Status::kOk);
  std::uint64_t next = 0;
  bool rotated = false;
  for (const Record& record : records_in(home.path())) {
    rotated = rotated || record.type == Type::kRotate;
    if (record.type == test::refused_import(0).type) {
      EXPECT_EQ(record.aux, next++);
    }
  }
  EXPECT_TRUE(rotated);
  EXPECT_EQ(next, 3 * kAtOnce);
}

TEST(Log, ARecordIsInTheFileWhenAppendReturns) {
  const TemporaryDirectory home;
  auto log = Log::open(begin_fixed_log(home.path()));
  ASSERT_TRUE(log) << log.error().what();
  Record record = test::refused_import(0);
  ASSERT_TRUE(log->append(record));
  // Nothing synced, nothing closed: what a reader, or the page cache after SIGKILL, has.
  const auto records = records_in(home.path());
  ASSERT_EQ(records.size(), 2U);
  EXPECT_EQ(records[1].chain, record.chain);
  EXPECT_EQ(verify_directory(home.path()).status, Status::kOk) << "it is being written";
}

TEST(Log, TheChainGoesOnAcrossRuns) {
  const TemporaryDirectory home;
  begin_fixed_log(home.path());
  for (int run = 0; run < 3; ++run) {
    auto log = Log::open(fixed_options(home.path()));
    ASSERT_TRUE(log) << log.error().what();
    append_events(*log, 2);
    const bool killed = run == 1;
    ASSERT_TRUE(killed || log->stop());
  }
  const Verdict verdict = verify_directory(home.path());
  EXPECT_EQ(verdict.status, Status::kOk) << verdict.what;
  const auto records = records_in(home.path());
  ASSERT_EQ(records.size(), 11U);
  EXPECT_FALSE(std::get<Start>(records[4].own).after_unclean_end);
  EXPECT_TRUE(std::get<Start>(records[7].own).after_unclean_end);
}

TEST(Log, AFullSegmentEndsInRotateAndTheNextFollowsOn) {
  const TemporaryDirectory home;
  {
    auto log = Log::open(begin_fixed_log(home.path()));
    ASSERT_TRUE(log) << log.error().what();
    append_events(*log, 40);
    ASSERT_TRUE(log->stop());
  }
  const Verdict verdict = verify_directory(home.path());
  EXPECT_EQ(verdict.status, Status::kOk) << verdict.what;
  EXPECT_EQ(verdict.records, 44U);  // START, 40, STOP and two ROTATEs
  const auto records = records_in(home.path());
  EXPECT_EQ(records[14].type, Type::kRotate);
  EXPECT_EQ(std::get<Rotate>(records[14].own).next_segment, 2U);
  EXPECT_EQ(records[29].type, Type::kRotate);
}

TEST(Log, OldSegmentsAreDeletedAndRotateSaysSo) {
  const TemporaryDirectory home;
  auto options = begin_fixed_log(home.path());
  options.keep_bytes = std::uint64_t{4} * test::kSmallSegment;
  {
    auto log = Log::open(options);
    ASSERT_TRUE(log) << log.error().what();
    append_events(*log, 100);
    ASSERT_TRUE(log->stop());
  }
  EXPECT_FALSE(std::filesystem::exists(home.path() + "/000000000001.hfa"));
  const auto numbers = list_segments(*open_directory(home.path()));
  ASSERT_EQ(numbers->size(), 4U);
  const Verdict verdict = verify_directory(home.path());
  EXPECT_EQ(verdict.status, Status::kOk) << verdict.what;
  EXPECT_GT(verdict.first_seq, 1U);

  // What no record says was deleted is missing.
  std::filesystem::remove(home.path() + "/" + segment_name(numbers->front()));
  EXPECT_EQ(verify_directory(home.path()).status, Status::kEndsEarly);
}

TEST(Log, SegmentsOlderThanTheLimitAreDeleted) {
  const TemporaryDirectory home;
  auto options = begin_fixed_log(home.path());
  options.keep_ns = 20'000'000;  // Twenty records long.
  {
    auto log = Log::open(options);
    ASSERT_TRUE(log) << log.error().what();
    append_events(*log, 100);
    ASSERT_TRUE(log->stop());
  }
  EXPECT_EQ(list_segments(*open_directory(home.path()))->size(), 3U);
  EXPECT_EQ(verify_directory(home.path()).status, Status::kOk);
}

TEST(Log, ASecondWriterIsToldThePidOfTheFirst) {
  const TemporaryDirectory home;
  const auto options = begin_fixed_log(home.path());
  {
    const auto first = Log::open(options);
    ASSERT_TRUE(first) << first.error().what();
    const auto second = Log::open(options);
    ASSERT_FALSE(second);
    EXPECT_EQ(second.error().reason, Reason::kAuditFailed);
    EXPECT_NE(second.error().what().find(std::to_string(::getpid())), std::string_view::npos)
        << second.error().what();
  }
  EXPECT_TRUE(Log::open(options)) << "the lock ends with its holder";
}

TEST(Log, AStepOfTheWallClockIsRecorded) {
  const TemporaryDirectory home;
  auto options = begin_fixed_log(home.path());
  static std::uint64_t offset_ns = 0;
  options.now = [] {
    Times times = test::fixed_clock();
    times.realtime_ns -= offset_ns;
    return times;
  };
  auto log = Log::open(options);
  ASSERT_TRUE(log) << log.error().what();
  append_events(*log, 1);
  offset_ns = 60'000'000'000;
  append_events(*log, 1);
  const auto records = records_in(home.path());
  ASSERT_EQ(records.size(), 4U);
  EXPECT_EQ(records[2].type, Type::kClockStep);
  EXPECT_EQ(static_cast<std::int64_t>(records[2].aux), -60'000'000'000);
}

TEST(Log, AMissingKeyIsNotReplaced) {
  const TemporaryDirectory home;
  const auto options = begin_fixed_log(home.path());
  ASSERT_TRUE(Log::open(options));
  std::filesystem::remove(home.path() + "/key0");
  const auto log = Log::open(options);
  ASSERT_FALSE(log);
  EXPECT_NE(log.error().what().find("key0"), std::string_view::npos);
  EXPECT_FALSE(std::filesystem::exists(home.path() + "/key0"));
}

TEST(Log, ADirectoryThatOthersMayWriteIsRefused) {
  const TemporaryDirectory home;
  const auto options = begin_fixed_log(home.path());
  ::chmod(home.path().c_str(), 0777);
  const auto log = Log::open(options);
  ASSERT_FALSE(log);
  EXPECT_NE(log.error().what().find("0777"), std::string_view::npos) << log.error().what();
}

// --- What open() finds.
// ---------------------------------------------------------------------------

// START, `events`, and then the process dies.
void make_log(const std::string& directory, std::uint64_t events) {
  auto log = Log::open(begin_fixed_log(directory));
  ASSERT_TRUE(log) << log.error().what();
  append_events(*log, events);
}

TEST(LogRecovery, AWriteCutAtAnyByteLosesThatRecordOnlyAndSaysSo) {
  const TemporaryDirectory home;
  make_log(home.path(), 5);
  const std::string file = segment_path(home.path(), 1);
  const auto before = read_file(file);
  const auto earlier = records_in(home.path());
  ASSERT_EQ(earlier.size(), 6U);
  constexpr std::size_t kLast = 6 * kRecordBytes;
  for (std::size_t kept = 1; kept < kRecordBytes; ++kept) {
    auto torn = before;
    std::fill(torn.begin() + kLast + static_cast<std::ptrdiff_t>(kept), torn.end(), std::byte{0});
    if (torn == before) continue;  // What was cut was zero anyway.
    write_file(file, torn);
    EXPECT_EQ(verify_directory(home.path()).status, Status::kRecoveredTail) << kept;
    {
      auto log = Log::open(fixed_options(home.path()));
      ASSERT_TRUE(log) << log.error().what();
      EXPECT_EQ(log->state(), Log::State::kOpen);
      ASSERT_TRUE(log->recovery()) << kept;
      ASSERT_TRUE(log->stop());
    }
    const auto records = records_in(home.path());
    ASSERT_EQ(records.size(), 8U) << kept;  // 5 are left, RECOVERY, START, STOP
    for (std::size_t i = 0; i < 5; ++i)
      EXPECT_EQ(encode(records[i]), encode(earlier[i]));
    const auto& recovery = std::get<Recovery>(records[5].own);
    EXPECT_EQ(recovery.kind, Recovery::Kind::kTornTail);
    EXPECT_EQ(recovery.first_bad_seq, 6U);
    EXPECT_EQ(recovery.offset, kLast);
    EXPECT_EQ(recovery.bytes, kRecordBytes);
    EXPECT_EQ(recovery.sha256, Sha256().of({std::span(torn).subspan(kLast, kRecordBytes)}));
    const Verdict verdict = verify_directory(home.path());
    EXPECT_EQ(verdict.status, Status::kRecoveredTail) << verdict.what;
    EXPECT_EQ(verdict.bad_seq, 6U);
  }
}

TEST(LogRecovery, ACutRotateIsWrittenAgain) {
  const TemporaryDirectory home;
  make_log(home.path(), 14);  // With START 15: the last one makes segment 2.
  std::filesystem::remove(segment_path(home.path(), 2));
  auto bytes = read_file(segment_path(home.path(), 1));
  std::fill(bytes.end() - 200, bytes.end(), std::byte{0});
  write_file(segment_path(home.path(), 1), bytes);
  {
    auto log = Log::open(fixed_options(home.path()));
    ASSERT_TRUE(log) << log.error().what();
    EXPECT_EQ(log->recovery()->kind, Recovery::Kind::kTornTail);
    ASSERT_TRUE(log->stop());
  }
  const Verdict verdict = verify_directory(home.path());
  EXPECT_EQ(verdict.status, Status::kRecoveredTail) << verdict.what;
  EXPECT_EQ(verdict.records, 18U);
}

TEST(LogRecovery, ADeathBetweenTwoSegmentsIsMendedAndRecorded) {
  const TemporaryDirectory home;
  make_log(home.path(), 14);
  std::filesystem::remove(segment_path(home.path(), 2));
  EXPECT_EQ(verify_directory(home.path()).status, Status::kEndsEarly);
  {
    auto log = Log::open(fixed_options(home.path()));
    ASSERT_TRUE(log) << log.error().what();
    EXPECT_EQ(log->recovery()->kind, Recovery::Kind::kSegmentMissing);
    EXPECT_EQ(log->recovery()->segment, 2U);
    ASSERT_TRUE(log->stop());
  }
  EXPECT_EQ(verify_directory(home.path()).status, Status::kRecoveredTail);
}

TEST(LogRecovery, DamageIsKeptAndStaysKnownUntilAccepted) {
  const TemporaryDirectory home;
  make_log(home.path(), 5);
  auto bytes = read_file(segment_path(home.path(), 1));
  bytes[3 * kRecordBytes + at::kActorUid] ^= std::byte{1};  // seq 3
  write_file(segment_path(home.path(), 1), bytes);
  const auto check = [&](std::uint64_t records, bool event_after) {
    const Verdict verdict = verify_directory(home.path());
    EXPECT_EQ(verdict.status, Status::kTampered);
    EXPECT_EQ(verdict.bad_seq, 3U) << "damage stays visible for ever";
    EXPECT_EQ(verdict.offset, 3 * kRecordBytes);
    EXPECT_EQ(verdict.records, records);
    EXPECT_EQ(records_in(home.path()).back().type == Type::kDeny, event_after);
  };
  check(2, true);

  {
    auto log = Log::open(fixed_options(home.path()));
    ASSERT_TRUE(log) << log.error().what();
    EXPECT_EQ(log->state(), Log::State::kCorrupt);
    ASSERT_TRUE(log->recovery());
    EXPECT_EQ(log->recovery()->kind, Recovery::Kind::kDamage);
    EXPECT_EQ(log->recovery()->first_bad_seq, 3U);
    append_events(*log, 1);
    ASSERT_TRUE(log->stop());
  }
  EXPECT_EQ(read_file(segment_path(home.path(), 1)), bytes) << "evidence is left alone";
  check(6, false);  // Two before the damage; RECOVERY, START, one, STOP in the new segment.
  EXPECT_EQ(records_in(home.path())[2].seq, 7U) << "no number is used twice";

  {
    auto log = Log::open(fixed_options(home.path()));
    EXPECT_EQ(log->state(), Log::State::kCorrupt) << "nobody has accepted it";
    EXPECT_FALSE(log->recovery()) << "nothing new is wrong";
    append_events(*log, 30);  // Into the next segments: the state goes with them.
  }
  EXPECT_EQ(Log::open(fixed_options(home.path()))->state(), Log::State::kCorrupt);
  auto accepting = fixed_options(home.path());
  accepting.accept_damage = true;
  EXPECT_EQ(Log::open(accepting)->state(), Log::State::kOpen);
  EXPECT_EQ(Log::open(fixed_options(home.path()))->state(), Log::State::kOpen);
  EXPECT_EQ(verify_directory(home.path()).bad_seq, 3U) << "accepting does not hide it";
}

TEST(LogRecovery, ADamagedHeaderIsGoneAroundFromTheSegmentBefore) {
  const TemporaryDirectory home;
  make_log(home.path(), 20);
  auto bytes = read_file(segment_path(home.path(), 2));
  bytes[0] = std::byte{0};
  write_file(segment_path(home.path(), 2), bytes);
  {
    auto log = Log::open(fixed_options(home.path()));
    ASSERT_TRUE(log) << log.error().what();
    EXPECT_EQ(log->state(), Log::State::kCorrupt);
    ASSERT_TRUE(log->stop());
  }
  const Verdict verdict = verify_directory(home.path());
  EXPECT_EQ(verdict.status, Status::kTampered);
  EXPECT_EQ(verdict.bad_seq, 16U);
  EXPECT_EQ(verdict.file, segment_name(2));
  EXPECT_EQ(records_in(home.path()).back().type, Type::kStop) << "and what came after is readable";
}

TEST(LogRecovery, ATruncatedFileIsDamage) {
  const TemporaryDirectory home;
  make_log(home.path(), 5);
  for (const std::size_t size : {kRecordBytes * 3, std::size_t{100}, std::size_t{0}}) {
    std::filesystem::resize_file(segment_path(home.path(), 1), size);
    EXPECT_EQ(verify_directory(home.path()).status, Status::kEndsEarly) << size;
  }
  auto log = Log::open(fixed_options(home.path()));
  ASSERT_TRUE(log) << log.error().what();
  EXPECT_EQ(log->state(), Log::State::kCorrupt);
}

// --- Disks that are full or fail.
// ------------------------------------------------------------------

TEST(LogFailure, AFailedWriteFailsTheLogForEverAndTearsNothing) {
  const TemporaryDirectory home;
  auto options = begin_fixed_log(home.path());
  options.mapped = false;  // A store does not meet this limit.
  auto log = Log::open(options);
  ASSERT_TRUE(log) << log.error().what();
  append_events(*log, 3);

  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, SIG_IGN);
  const rlimit tight{.rlim_cur = 5 * kRecordBytes, .rlim_max = before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &tight), 0);
  Record record = test::refused_import(3);
  const auto first = log->append(record);
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  ASSERT_FALSE(first);
  EXPECT_EQ(first.error().reason, Reason::kAuditFailed);
  EXPECT_EQ(first.error().sys_errno, EFBIG);

  EXPECT_EQ(log->state(), Log::State::kFailed);
  const auto again = log->append(record);
  ASSERT_FALSE(again) << "the limit is gone, the failure is not";
  EXPECT_EQ(again.error().what(), first.error().what());
  EXPECT_FALSE(log->sync());
  const Verdict verdict = verify_directory(home.path());
  EXPECT_EQ(verdict.status, Status::kOk) << verdict.what;
  EXPECT_EQ(verdict.records, 4U);
}

TEST(LogFailure, ASegmentCutShortUnderItsWriterFailsTheLogForEver) {
  const TemporaryDirectory home;
  auto options = begin_fixed_log(home.path());
  options.segment_bytes = 8 * kKiB;
  auto log = Log::open(options);
  ASSERT_TRUE(log) << log.error().what();
  append_events(*log, 14);  // With the header and START: the first page.
  std::filesystem::resize_file(segment_path(home.path(), 1), 4 * kKiB);

  Record grant = test::refused_import(14);
  grant.type = Type::kImport;
  grant.outcome = Outcome::kAllow;
  const auto first = log->append(grant);
  ASSERT_FALSE(first);
  EXPECT_EQ(first.error().reason, Reason::kAuditFailed);
  EXPECT_NE(first.error().what().find("segment 1"), std::string_view::npos);
  EXPECT_EQ(log->state(), Log::State::kFailed);
  std::filesystem::resize_file(segment_path(home.path(), 1), 8 * kKiB);
  EXPECT_FALSE(log->append(grant)) << "the page is there again, the failure stays";
}

TEST(Log, WrittenAndStoredItIsTheSameLog) {
  std::vector<test::Bytes> logs;
  for (const bool mapped : {false, true}) {
    const TemporaryDirectory home;
    test::g_clock_ticks = 0;
    auto options = begin_fixed_log(home.path());
    options.mapped = mapped;
    auto log = Log::open(options);
    ASSERT_TRUE(log) << log.error().what();
    append_events(*log, 20);
    ASSERT_TRUE(log->stop());
    logs.push_back(read_file(segment_path(home.path(), 1)));
    logs.push_back(read_file(segment_path(home.path(), 2)));
  }
  EXPECT_EQ(logs[0], logs[2]);
  EXPECT_EQ(logs[1], logs[3]);
}

// What was stored when the process is killed, with nothing flushed, is in the file.
TEST(Log, ARecordSurvivesTheDeathOfItsWriter) {
  const TemporaryDirectory home;
  const pid_t child = ::fork();
  if (child == 0) {
    auto log = Log::open(begin_fixed_log(home.path()));
    if (log) append_events(*log, 3);
    ::kill(::getpid(), SIGKILL);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status));
  const Verdict verdict = verify_directory(home.path());
  EXPECT_EQ(verdict.status, Status::kEndsEarly) << verdict.what;
  EXPECT_EQ(verdict.records, 4U);
}

// A file system of a few pages. Needs root and a mount namespace of this process's own.
bool mount_small(const std::string& path) {
  return ::unshare(CLONE_NEWNS) == 0 &&
         ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
         ::mount("hufu-test", path.c_str(), "tmpfs", 0, "size=64k,mode=0700") == 0;
}

TEST(LogFailure, AFullDiskRefusesGrantsFirstAndMendsWhenThereIsRoom) {
  const TemporaryDirectory home;
  const std::string directory = home.path() + "/full";
  ASSERT_EQ(::mkdir(directory.c_str(), 0700), 0);
  if (!mount_small(directory)) GTEST_SKIP() << "mounting a tmpfs needs root";
  auto log = Log::open(begin_fixed_log(directory));
  ASSERT_TRUE(log) << log.error().what();
  const std::string filler = directory + "/filler";
  {
    std::ofstream out(filler, std::ios::binary);
    while (out.put('x').flush())
      out << std::string(4095, 'x');
  }

  Record grant = test::refused_import(0);
  grant.type = Type::kImport;
  grant.outcome = Outcome::kAllow;
  std::uint64_t granted = 0;
  Result<void> done;
  while ((done = log->append(grant)))
    ++granted;
  EXPECT_EQ(done.error().reason, Reason::kAuditFailed);
  EXPECT_EQ(done.error().sys_errno, ENOSPC) << done.error().what();
  EXPECT_NE(done.error().what().find("4096"), std::string_view::npos) << done.error().what();
  Record denial = test::refused_import(0);
  std::uint64_t denied = 0;
  while ((done = log->append(denial)))
    ++denied;
  EXPECT_EQ(done.error().sys_errno, ENOSPC);
  // 15 slots: START, ROTATE's, and a reserve of a quarter of the segment.
  EXPECT_EQ(granted, 9U);
  EXPECT_EQ(denied, 4U);
  EXPECT_EQ(log->state(), Log::State::kOpen);
  EXPECT_EQ(verify_directory(directory).records, 1 + granted + denied);

  ASSERT_TRUE(std::filesystem::remove(filler));
  ASSERT_TRUE(log->append(grant)) << "there is room again";
  ASSERT_TRUE(log->stop());
  EXPECT_EQ(verify_directory(directory).status, Status::kOk);
  ASSERT_EQ(::umount2(directory.c_str(), MNT_DETACH), 0);
}

// --- Threads.
// -------------------------------------------------------------------------------------

TEST(LogThreads, SyncAndVerifyGoOnWhileRecordsAreAppended) {
  const TemporaryDirectory home;
  auto options = begin_fixed_log(home.path());
  options.keep_bytes = kGiB;
  auto log = Log::open(options);
  ASSERT_TRUE(log) << log.error().what();
  std::atomic<bool> done = false;
  std::thread syncing([&] {
    while (!done)
      EXPECT_TRUE(log->sync());
  });
  std::thread verifying([&] {
    while (!done) {
      const Verdict verdict = verify_directory(home.path());
      EXPECT_EQ(verdict.status, Status::kOk) << verdict.what << " at " << verdict.bad_seq;
    }
  });
  append_events(*log, 3'000);
  done = true;
  syncing.join();
  verifying.join();
  ASSERT_TRUE(log->stop());
  EXPECT_GE(verify_directory(home.path()).records, 3'002U);
}

}  // namespace
}  // namespace hufu::audit
