#include "audit/record.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

#include <gtest/gtest.h>

#include "audit/chain.h"
#include "audit/crc32c.h"
#include "audit/test_log.h"

namespace hufu::audit {
namespace {

template <class T>
T number_at(const Bytes256& bytes, std::size_t offset) {
  T value{};
  std::memcpy(&value, bytes.data() + offset, sizeof value);
  return value;
}

void put_crc(Bytes256& bytes) {
  const std::uint32_t crc = crc32c(std::span(bytes).subspan(8, 216));
  std::memcpy(bytes.data() + 4, &crc, sizeof crc);
}

// The published table, once more and by number, against a record with a value in every field.
TEST(Record, EveryFieldIsWhereTheTableSays) {
  Record record = test::refused_import(3);
  record.seq = 11;
  record.realtime_ns = 12;
  record.boottime_ns = 13;
  record.epoch = 14;
  record.chain.fill(std::byte{0xCC});
  record.acl_code = -2;
  const Bytes256 bytes = encode(record);

  EXPECT_EQ(std::memcmp(bytes.data(), "HFU1", 4), 0);
  EXPECT_EQ(number_at<std::uint32_t>(bytes, 4), crc32c(std::span(bytes).subspan(8, 216)));
  EXPECT_EQ(number_at<std::uint64_t>(bytes, 8), 11U);
  EXPECT_EQ(number_at<std::uint64_t>(bytes, 16), 12U);
  EXPECT_EQ(number_at<std::uint64_t>(bytes, 24), 13U);
  EXPECT_EQ(number_at<std::uint64_t>(bytes, 32), 14U);
  EXPECT_EQ(number_at<std::uint16_t>(bytes, 40), 1U);
  EXPECT_EQ(number_at<std::uint16_t>(bytes, 42), 8U);
  EXPECT_EQ(number_at<std::uint8_t>(bytes, 44), 2U);
  EXPECT_EQ(number_at<std::uint8_t>(bytes, 45), 3U);
  EXPECT_EQ(number_at<std::uint16_t>(bytes, 46), 43U);
  EXPECT_EQ(number_at<std::uint32_t>(bytes, 48), 1000U);
  EXPECT_EQ(number_at<std::uint32_t>(bytes, 52), 1001U);
  EXPECT_EQ(number_at<std::uint32_t>(bytes, 56), 4003U);
  EXPECT_EQ(number_at<std::int32_t>(bytes, 60), -2);
  EXPECT_EQ(number_at<std::uint64_t>(bytes, 64), 123456U);
  EXPECT_EQ(number_at<std::uint64_t>(bytes, 72), 777U);
  EXPECT_EQ(number_at<std::uint64_t>(bytes, 80), 42U);
  EXPECT_EQ(number_at<std::uint64_t>(bytes, 88), 0xFE01U);
  EXPECT_EQ(number_at<std::uint64_t>(bytes, 96), 9001U);
  EXPECT_EQ(std::memcmp(bytes.data() + 104, "python3\0\0\0\0\0\0\0\0\0", 16), 0);
  EXPECT_EQ(number_at<std::uint32_t>(bytes, 120), 1000U);
  EXPECT_EQ(number_at<std::uint32_t>(bytes, 124), 3999U);
  EXPECT_EQ(number_at<std::uint64_t>(bytes, 128), 776U);
  EXPECT_EQ(number_at<std::uint64_t>(bytes, 136), 0x112233445566778BU);
  EXPECT_EQ(number_at<std::uint64_t>(bytes, 144), 4096U);
  EXPECT_EQ(number_at<std::uint64_t>(bytes, 152), 8192U);
  EXPECT_EQ(number_at<std::uint32_t>(bytes, 160), 4096U);
  EXPECT_EQ(number_at<std::uint32_t>(bytes, 164), 1U);  // backing, then three zeros
  EXPECT_EQ(number_at<std::uint64_t>(bytes, 168), 0x0303030303030303U);
  EXPECT_EQ(number_at<std::uint64_t>(bytes, 176), 0x0303030303030303U);
  EXPECT_EQ(number_at<std::uint64_t>(bytes, 184), 5U);
  EXPECT_EQ(number_at<std::uint64_t>(bytes, 192), 3U);
  EXPECT_EQ(number_at<std::uint32_t>(bytes, 200), 1U);
  EXPECT_EQ(number_at<std::uint32_t>(bytes, 204), 1U);
  EXPECT_EQ(number_at<std::uint64_t>(bytes, 208), 7U);
  EXPECT_EQ(number_at<std::uint64_t>(bytes, 216), 0U);
  EXPECT_EQ(number_at<std::uint64_t>(bytes, 248), 0xCCCCCCCCCCCCCCCCU);
}

TEST(Record, DecodingGivesBackWhatWasEncoded) {
  Start start{.instance = test::id_of(1),
              .boot_id = test::id_of(2),
              .volatile_home = true,
              .damage_accepted = true,
              .version = {'1', '.', '2'}};
  Recovery recovery{.kind = Recovery::Kind::kDamage,
                    .segment = 3,
                    .offset = 512,
                    .bytes = 700,
                    .first_bad_seq = 9};
  recovery.sha256.fill(std::byte{7});
  Rotate rotate{.next_segment = 8, .oldest_segment = 2, .oldest_first_seq = 33, .deleted = 1};
  rotate.oldest_previous.fill(std::byte{8});
  Seal seal{.epoch = 5, .count = 6};
  seal.head.fill(std::byte{9});
  seal.root.fill(std::byte{10});

  const std::array<Record, 5> records = {
      test::refused_import(200), Record{.type = Type::kStart, .own = start},
      Record{.type = Type::kRecovery, .own = recovery},
      Record{.type = Type::kRotate, .own = rotate}, Record{.type = Type::kSeal, .own = seal}};
  for (const Record& record : records) {
    const Bytes256 bytes = encode(record);
    const auto decoded = decode(bytes);
    ASSERT_TRUE(decoded) << decoded.error().what();
    EXPECT_EQ(decoded->own.index(), record.own.index());
    EXPECT_EQ(encode(*decoded), bytes);
    // Encoding it again would also agree if a field were dropped on both ways; so not all is zero.
    EXPECT_FALSE(std::ranges::all_of(std::span(bytes).subspan(48, 100),
                                     [](std::byte b) { return b == std::byte{0}; }));
  }
  EXPECT_EQ(std::get<Start>(decode(encode(records[1]))->own).damage_accepted, true);
  EXPECT_EQ(std::get<Start>(decode(encode(records[1]))->own).after_unclean_end, false);
  EXPECT_EQ(std::get<Recovery>(decode(encode(records[2]))->own).bytes, 700U);
  EXPECT_EQ(std::get<Rotate>(decode(encode(records[3]))->own).oldest_first_seq, 33U);
  EXPECT_EQ(std::get<Seal>(decode(encode(records[4]))->own).count, 6U);
}

TEST(Record, AFlippedBitIsNotDecoded) {
  const Bytes256 good = encode(test::refused_import(1));
  for (std::size_t bit = 0; bit < at::kChain * 8; ++bit) {
    Bytes256 bytes = good;
    bytes[bit / 8] ^= std::byte{1} << (bit % 8);
    EXPECT_FALSE(decode(bytes)) << "bit " << bit;
  }
}

TEST(Record, BytesWithoutAMeaningMustBeZero) {
  for (const std::size_t offset : {std::size_t{165}, std::size_t{167}, std::size_t{216}}) {
    Bytes256 bytes = encode(test::refused_import(1));
    bytes[offset] = std::byte{1};
    put_crc(bytes);
    EXPECT_FALSE(decode(bytes)) << offset;
  }
}

TEST(Record, FlagsWithoutAMeaningMustBeZero) {
  Bytes256 bytes = encode(Record{.type = Type::kStart, .own = Start{}});
  bytes[at::kOwn + 32] = std::byte{8};
  put_crc(bytes);
  EXPECT_FALSE(decode(bytes));
}

TEST(Record, AnotherFormatIsRefusedAndAnUnknownTypeIsNot) {
  Bytes256 bytes = encode(test::refused_import(1));
  bytes[at::kType] = std::byte{0xEE};
  put_crc(bytes);
  EXPECT_TRUE(decode(bytes));
  bytes[at::kFormat] = std::byte{2};
  put_crc(bytes);
  EXPECT_FALSE(decode(bytes));
}

TEST(Crc32c, FitsThePublishedExamples) {
  // RFC 3720, B.4.
  std::array<std::byte, 32> bytes{};
  EXPECT_EQ(crc32c(bytes), 0x8A9136AAU);
  bytes.fill(std::byte{0xFF});
  EXPECT_EQ(crc32c(bytes), 0x62A8AB43U);
  for (std::size_t i = 0; i < bytes.size(); ++i)
    bytes[i] = static_cast<std::byte>(i);
  EXPECT_EQ(crc32c(bytes), 0x46DD794EU);
  const std::string check = "123456789";
  EXPECT_EQ(crc32c(std::as_bytes(std::span(check))), 0xE3069283U);
}

}  // namespace
}  // namespace hufu::audit
