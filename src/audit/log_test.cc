#include "audit/log.h"

#include <sys/resource.h>
#include <sys/stat.h>

#include <csignal>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
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

}  // namespace
}  // namespace hufu::audit
