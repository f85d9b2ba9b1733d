// Logs with one thing wrong in each.
//
// tests/golden/audit_log holds `intact` and, beside it, copies named by what was done to them. The
// copies are made from `intact` by the functions below, and both are compared with the files: so
// the format cannot change unnoticed, and it is plain what each copy differs in. After a change
// that is meant (a new format number), HUFU_UPDATE_GOLDEN=1 in the environment writes them anew.

#include <array>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <ostream>
#include <random>
#include <span>
#include <string>

#include <gtest/gtest.h>

#include "audit/chain.h"
#include "audit/layout.h"
#include "audit/test_log.h"
#include "audit/text.h"
#include "audit/verify.h"

#include <fmt/format.h>

namespace hufu::audit {
namespace {

using test::Bytes;
using test::read_file;
using test::segment_path;
using test::TemporaryDirectory;
using test::write_file;

constexpr std::uint32_t kGoldenSegment = 8 * kRecordBytes;  // A header, six records, a ROTATE.

// One sharing: export, list, a refusal, an import, its close, proved, and the export's end.
void append_a_sharing(Log& log, std::uint64_t n) {
  const Actor exporter{.uid = 1000,
                       .gid = 1000,
                       .pid = 3999,
                       .start_time = 100,
                       .comm = {'l', 'o', 'a', 'd', 'e', 'r'}};
  const Actor importer{.uid = 1000,
                       .gid = 1000,
                       .pid = 4000,
                       .start_time = 200,
                       .comm = {'w', 'o', 'r', 'k', 'e', 'r'}};
  const auto event = [&](Type type, Outcome outcome, const Actor& actor, std::uint64_t aux = 0,
                         Reason reason = Reason::kNone) {
    Record record = test::refused_import(n);
    record.type = type;
    record.outcome = outcome;
    record.actor = actor;
    record.aux = aux;
    record.reason = reason;
    record.acl_code = outcome == Outcome::kDeny ? 507899 : 0;
    const auto done = log.append(record);
    ASSERT_TRUE(done) << done.error().what();
  };
  event(Type::kExport, Outcome::kAllow, exporter);
  event(Type::kDeny, Outcome::kDeny, importer, static_cast<std::uint64_t>(Type::kImport),
        Reason::kNotListed);
  event(Type::kListAdd, Outcome::kAllow, exporter, importer.pid);
  event(Type::kImport, Outcome::kAllow, importer);
  event(Type::kCloseClaimed, Outcome::kInfo, importer);
  event(Type::kReleaseVerified, Outcome::kInfo, importer);
  event(Type::kWithdraw, Outcome::kInfo, exporter);
  event(Type::kFreeClaimed, Outcome::kInfo, exporter);
}

Log::Options golden_options(const std::string& directory) {
  Log::Options options = test::fixed_options(directory);
  options.segment_bytes = kGoldenSegment;
  return options;
}

// Three segments: START and 16 events, the last record is STOP.
//   segment 1: seq 1 START, 2..6, 7 ROTATE   segment 2: 8..13, 14 ROTATE   segment 3: 15..19, 20
//   STOP
void make_intact(const std::string& directory) {
  test::begin_fixed_log(directory);
  auto log = Log::open(golden_options(directory));
  ASSERT_TRUE(log) << log.error().what();
  append_a_sharing(*log, 1);
  append_a_sharing(*log, 2);
  ASSERT_TRUE(log->stop());
}

void reopen(const std::string& directory) {
  auto log = Log::open(golden_options(directory));
  ASSERT_TRUE(log) << log.error().what();
  ASSERT_TRUE(log->stop());
}

// --- Tampering.
// -----------------------------------------------------------------------------------

class Edited {  // A segment's file in memory, written back at the end.
 public:
  Edited(const std::string& directory, std::uint64_t number)
      : path_(segment_path(directory, number)), bytes(read_file(path_)) {}
  ~Edited() { write_file(path_, bytes); }
  Edited(const Edited&) = delete;
  Edited& operator=(const Edited&) = delete;
  Edited(Edited&&) = delete;
  Edited& operator=(Edited&&) = delete;

  std::span<std::byte, kRecordBytes> slot(std::size_t n) {
    return std::span(bytes).subspan(n * kRecordBytes).first<kRecordBytes>();
  }
  Bytes256 copy(std::size_t n) {
    Bytes256 copy{};
    std::ranges::copy(slot(n), copy.begin());
    return copy;
  }
  void put(std::size_t n, const Bytes256& record) { std::ranges::copy(record, slot(n).begin()); }
  void zero(std::size_t n) { put(n, Bytes256{}); }

 private:
  std::string path_;

 public:
  Bytes bytes;
};

void edit_without_crc(const std::string& directory) {
  Edited(directory, 2).slot(3)[at::kActorUid] ^= std::byte{1};
}

// What somebody does who knows the format but not the key.
void edit_with_crc(const std::string& directory) {
  Edited segment(directory, 2);
  Record record = *decode(segment.slot(3));
  record.actor.uid = 0;
  segment.put(3, encode(record));
}

void delete_record(const std::string& directory) {
  Edited segment(directory, 2);
  for (std::size_t n = 3; n < 7; ++n)
    segment.put(n, segment.copy(n + 1));
  segment.zero(7);
}

void blank_record(const std::string& directory) { Edited(directory, 2).zero(3); }

void swap_records(const std::string& directory) {
  Edited segment(directory, 2);
  const Bytes256 third = segment.copy(3);
  segment.put(3, segment.copy(4));
  segment.put(4, third);
}

void repeat_record(const std::string& directory) {
  Edited segment(directory, 3);
  segment.put(7, segment.copy(6));
}

void insert_record(const std::string& directory) {
  Edited segment(directory, 3);
  Record forged = *decode(segment.slot(3));
  forged.seq = 21;
  segment.put(7, encode(forged));
}

void truncate_tail(const std::string& directory) {
  Edited segment(directory, 3);
  segment.zero(5);
  segment.zero(6);
}

void truncate_file(const std::string& directory) {
  Edited(directory, 3).bytes.resize(3 * kRecordBytes);
}

void tear_tail(const std::string& directory) {
  Edited segment(directory, 3);
  std::ranges::fill(segment.slot(6).subspan(100), std::byte{0});
}

void remove_first(const std::string& directory) {
  std::filesystem::remove(segment_path(directory, 1));
}
void remove_middle(const std::string& directory) {
  std::filesystem::remove(segment_path(directory, 2));
}
void remove_last(const std::string& directory) {
  std::filesystem::remove(segment_path(directory, 3));
}
void remove_all(const std::string& directory) {
  remove_first(directory);
  remove_middle(directory);
  remove_last(directory);
}

void swap_segments(const std::string& directory) {
  const Bytes second = read_file(segment_path(directory, 2));
  write_file(segment_path(directory, 2), read_file(segment_path(directory, 3)));
  write_file(segment_path(directory, 3), second);
}

// The last segment of another log: one with the same key but other events, one with its own key.
void splice_same_key(const std::string& directory) {
  const TemporaryDirectory other;
  test::begin_fixed_log(other.path());
  {
    auto log = Log::open(golden_options(other.path()));
    ASSERT_TRUE(log) << log.error().what();
    test::append_events(*log, 16);
    ASSERT_TRUE(log->stop());
  }
  write_file(segment_path(directory, 3), read_file(segment_path(other.path(), 3)));
}

void splice_other_key(const std::string& directory) {
  const TemporaryDirectory other;
  ChainKey key{};
  key.fill(std::byte{0xEE});
  test::begin_fixed_log(other.path());
  write_file(other.path() + "/key0", key);
  {
    auto log = Log::open(golden_options(other.path()));
    ASSERT_TRUE(log) << log.error().what();
    append_a_sharing(*log, 1);
    append_a_sharing(*log, 2);
    ASSERT_TRUE(log->stop());
  }
  write_file(segment_path(directory, 3), read_file(segment_path(other.path(), 3)));
}

void replace_key(const std::string& directory) {
  ChainKey key{};
  key.fill(std::byte{0xEE});
  write_file(directory + "/key0", key);
}

void tear_and_reopen(const std::string& directory) {
  tear_tail(directory);
  reopen(directory);
}

void edit_last_segment_and_reopen(const std::string& directory) {
  Edited(directory, 3).slot(3)[at::kActorUid] ^= std::byte{1};
  reopen(directory);
}

struct Case {
  const char* name;
  void (*tamper)(const std::string& directory);
  Status status;
  std::uint64_t bad_seq;
  std::uint64_t segment;  // 0: no file is named.
  std::uint64_t offset;
  const char* says;  // Part of what the verdict says.
};

std::ostream& operator<<(std::ostream& out, const Case& a_case) { return out << a_case.name; }

void leave_alone(const std::string&) {}

constexpr auto kCases = std::to_array<Case>({
    {"intact", leave_alone, Status::kOk, 0, 0, 0, ""},
    {"record_edited", edit_without_crc, Status::kTampered, 10, 2, 768, "not a whole record"},
    {"record_edited_with_crc", edit_with_crc, Status::kTampered, 10, 2, 768, "was altered"},
    {"record_deleted", delete_record, Status::kTampered, 10, 2, 768, "another record"},
    {"record_blanked", blank_record, Status::kTampered, 10, 2, 768, "its place is empty"},
    {"records_swapped", swap_records, Status::kTampered, 10, 2, 768, "another record"},
    {"record_repeated", repeat_record, Status::kTampered, 21, 3, 1792, "another record"},
    {"record_inserted", insert_record, Status::kTampered, 21, 3, 1792, "was altered"},
    {"tail_truncated", truncate_tail, Status::kEndsEarly, 19, 3, 1280, "without STOP"},
    {"file_truncated", truncate_file, Status::kEndsEarly, 17, 3, 768, "shorter"},
    {"tail_torn", tear_tail, Status::kRecoveredTail, 20, 3, 1536, "interrupted write"},
    {"first_segment_missing", remove_first, Status::kEndsEarly, 1, 1, 0, "beginning is missing"},
    {"segment_missing", remove_middle, Status::kEndsEarly, 8, 2, 0, "is missing"},
    {"last_segment_missing", remove_last, Status::kEndsEarly, 15, 3, 0, "is missing"},
    {"all_segments_missing", remove_all, Status::kEndsEarly, 1, 0, 0, "no segment"},
    {"segments_swapped", swap_segments, Status::kTampered, 8, 2, 0, "does not follow"},
    {"spliced_same_key", splice_same_key, Status::kTampered, 15, 3, 0, "does not follow"},
    {"spliced_other_key", splice_other_key, Status::kTampered, 15, 3, 0, "another log"},
    {"key_replaced", replace_key, Status::kTampered, 1, 1, 0, "another log"},
    {"tail_recovered", tear_and_reopen, Status::kRecoveredTail, 20, 3, 1536, "was cut off"},
    {"damage_reopened", edit_last_segment_and_reopen, Status::kTampered, 17, 3, 768,
     "not a whole record"},
});

std::map<std::string, Bytes> files_in(const std::string& directory) {
  std::map<std::string, Bytes> files;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    const std::string name = entry.path().filename();
    if (name != "lock") files[name] = read_file(entry.path());
  }
  return files;
}

class Golden : public testing::TestWithParam<Case> {};

TEST_P(Golden, IsFoundAndNamed) {
  const Case& wrong = GetParam();
  const TemporaryDirectory made;
  make_intact(made.path());
  wrong.tamper(made.path());
  const std::string golden = fmt::format("{}/{}", HUFU_GOLDEN_DIR, wrong.name);
  // NOLINTNEXTLINE(concurrency-mt-unsafe): nothing here sets the environment.
  if (std::getenv("HUFU_UPDATE_GOLDEN") != nullptr) {
    std::filesystem::remove_all(golden);
    std::filesystem::create_directories(golden);
    for (const auto& [name, bytes] : files_in(made.path()))
      write_file(fmt::format("{}/{}", golden, name), bytes);
  }
  EXPECT_TRUE(files_in(made.path()) == files_in(golden))
      << "the format of " << golden << " changed";

  std::uint64_t seen = 0;
  const Verdict verdict = verify_directory(golden, [&](const Record&) { ++seen; });
  EXPECT_EQ(verdict.status, wrong.status) << verdict.what;
  EXPECT_EQ(verdict.bad_seq, wrong.bad_seq);
  EXPECT_EQ(verdict.file, wrong.segment == 0 ? "" : segment_name(wrong.segment));
  EXPECT_EQ(verdict.offset, wrong.offset);
  EXPECT_NE(verdict.what.find(wrong.says), std::string::npos) << verdict.what;
  EXPECT_EQ(verdict.records, seen);
}

INSTANTIATE_TEST_SUITE_P(AuditLog, Golden, testing::ValuesIn(kCases),
                         [](const auto& instance) { return std::string(instance.param.name); });

// --- docs/audit_log.md
// ----------------------------------------------------------------------------

std::string page() {
  const Bytes bytes = read_file(HUFU_AUDIT_PAGE);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

TEST(Page, ShowsARecordOfTheGoldenLog) {
  const Bytes segment = read_file(segment_path(HUFU_GOLDEN_DIR "/intact", 1));
  const auto record = std::span(segment).subspan(3 * kRecordBytes, kRecordBytes);
  const std::string text = page();
  for (std::size_t at = 0; at < kRecordBytes; at += 16) {
    const auto row = record.subspan(at, 16);
    const std::string line =
        fmt::format("{:3}  {:02x}\n", at, fmt::join(row.begin(), row.end(), " "));
    EXPECT_NE(text.find(line), std::string::npos) << line;
  }
  const auto decoded = decode(record.first<kRecordBytes>());
  ASSERT_TRUE(decoded);
  EXPECT_NE(text.find(to_line(*decoded)), std::string::npos) << to_line(*decoded);
}

TEST(Page, HasARowForEveryTypeOfRecord) {
  const std::string text = page();
  std::uint16_t number = 1;
  for (; name_of(static_cast<Type>(number)) != "UNKNOWN"; ++number) {
    const std::string row = fmt::format("| {} | {} |", number, name_of(static_cast<Type>(number)));
    EXPECT_NE(text.find(row), std::string::npos) << row;
  }
  EXPECT_GT(number, 27);
}

// --- Every bit.
// -----------------------------------------------------------------------------------

void flip_bit(const std::string& path, std::size_t bit) {
  std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
  const auto offset = static_cast<std::streamoff>(bit / 8);
  file.seekg(offset);
  const int byte = file.get();
  file.seekp(offset);
  file.put(static_cast<char>(byte ^ 1 << (bit % 8)));
  ASSERT_TRUE(file.flush());
}

TEST(Tamper, TwoThousandFlippedBitsAreAllFoundAndNamed) {
  const TemporaryDirectory home;
  make_intact(home.path());
  ASSERT_EQ(verify_directory(home.path()).status, Status::kOk);
  constexpr std::array<std::uint64_t, 3> kFirstSeq = {1, 8, 15};
  std::mt19937_64 random(20260730);  // NOLINT: the same bits in every run.
  std::array<int, 5> found{};
  for (int i = 0; i < 2000; ++i) {
    const std::uint64_t number = random() % 3 + 1;
    const std::size_t bit = random() % (std::size_t{kGoldenSegment} * 8);
    const auto flip = [&] { flip_bit(segment_path(home.path(), number), bit); };
    flip();
    const Verdict verdict = verify_directory(home.path());
    flip();
    const std::size_t slot = bit / 8 / kRecordBytes;
    ASSERT_NE(verdict.status, Status::kOk) << "segment " << number << " bit " << bit;
    ++found[static_cast<std::size_t>(verdict.status)];
    EXPECT_EQ(verdict.bad_seq, kFirstSeq[number - 1] + (slot == 0 ? 0 : slot - 1))
        << "segment " << number << " bit " << bit << ": " << verdict.what;
    EXPECT_EQ(verdict.file, segment_name(number));
    EXPECT_EQ(verdict.offset, slot * kRecordBytes);
  }
  // Flips in the last record, or in the zeros behind it, look like an interrupted write: 2 slots
  // of 24.
  EXPECT_GT(found[1], 1700);
  EXPECT_EQ(found[1] + found[3], 2000);
  EXPECT_EQ(verify_directory(home.path()).status, Status::kOk);
}

}  // namespace
}  // namespace hufu::audit
