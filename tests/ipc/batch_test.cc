// Many exports, imports and closes in one call.

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "acl_peer.h"
#include "base/units.h"
#include "support/audit_reader.h"

namespace hufu::test {
namespace {

using audit::Type;

constexpr std::uint64_t kSize = 4 * kKiB;
constexpr std::size_t kMany = 100;  // More than one message holds.

std::string joined(const std::string& verb, const std::vector<std::string>& words) {
  std::string line = verb;
  for (const std::string& word : words)
    line += " " + word;
  return line;
}

std::vector<std::string> repeated(std::size_t count, const std::string& word) {
  return std::vector<std::string>(count, word);
}

std::vector<std::string> slice(const Words& words, std::size_t from, std::size_t count) {
  const auto begin = words.begin() + static_cast<std::ptrdiff_t>(from);
  return {begin, begin + static_cast<std::ptrdiff_t>(count)};
}

class Batch : public ::testing::Test {
 protected:
  void SetUp() override {
    for (std::size_t i = 0; i < kMany; ++i) {
      blocks.push_back(exporter.allocate(kSize));
      exporter.fill(blocks[i], kSize, static_cast<int>(i));
    }
  }
  std::vector<std::string> addresses() const {
    std::vector<std::string> texts;
    for (const std::uint64_t block : blocks)
      texts.push_back(std::to_string(block));
    return texts;
  }

  TestBroker broker;
  AclPeer exporter = AclPeer::ready(broker);
  AclPeer importer = AclPeer::ready(broker);
  std::vector<std::uint64_t> blocks;
};

TEST_F(Batch, DoesWhatAsManySingleCallsWould) {
  const auto made = exporter.must(joined(fmt::format("export-batch {}", kSize), addresses())).words;
  ASSERT_EQ(made.size(), 1 + 2 * kMany);
  EXPECT_EQ(slice(made, 0, 1 + kMany), repeated(1 + kMany, "0"));
  const auto keys = slice(made, 1 + kMany, kMany);

  const auto got = importer.must(joined("import-batch", keys)).words;
  ASSERT_EQ(got.size(), 1 + 2 * kMany);
  EXPECT_EQ(slice(got, 0, 1 + kMany), repeated(1 + kMany, "0"));
  for (std::size_t i = 0; i < kMany; ++i)
    EXPECT_EQ(importer.peek(std::stoull(got[1 + kMany + i])), static_cast<int>(i));

  EXPECT_EQ(importer.must(joined("close-batch", keys)).words, repeated(1 + kMany, "0"));
  // Behind the closes, on the same socket.
  EXPECT_TRUE(importer.import(keys[0]).ok());
  importer.must("close " + keys[0]);
  EXPECT_EQ(exporter.must(joined("close-batch", keys)).words, repeated(1 + kMany, "0"));
  EXPECT_FALSE(importer.import(keys[1]).ok());

  const auto records = broker.records();
  EXPECT_EQ(count(records, {.type = Type::kExport}), kMany);
  EXPECT_EQ(count(records, {.type = Type::kImport}), kMany + 1);
  EXPECT_EQ(count(records, {.type = Type::kCloseClaimed}), kMany + 1);
  EXPECT_EQ(count(records, {.type = Type::kWithdraw}), kMany);
}

TEST_F(Batch, OneThatFailsKeepsNoOtherFromBeingDone) {
  // A range that ends outside its block, and memory that is nobody's, among good ones.
  const std::string line =
      fmt::format("export-batch {} {} {} {} {}", kSize, blocks[0], blocks[1] + 64, 4096, blocks[2]);
  const auto made = exporter.must(line).words;
  ASSERT_EQ(made.size(), 9U);
  EXPECT_EQ(made[1], "0");
  EXPECT_EQ(made[2], std::to_string(ACL_ERROR_RT_DRV_INTERNAL_ERROR));
  EXPECT_EQ(made[3], "200100");
  EXPECT_EQ(made[4], "0");
  EXPECT_EQ(made[0], made[2]) << "the first failure is the call's";
  EXPECT_EQ(made[6], "-");
  EXPECT_EQ(made[7], "-");
  const std::string first = made[5];
  const std::string last = made[8];

  const auto got = importer.must(joined("import-batch", {first, "short", last, first, last})).words;
  ASSERT_EQ(got.size(), 11U);
  EXPECT_EQ(slice(got, 1, 5), (std::vector<std::string>{"0", got[0], "0", "0", "0"}));
  EXPECT_NE(got[0], "0");
  EXPECT_EQ(got[7], "0") << "an output of one that failed";
  EXPECT_EQ(got[6], got[9]) << "the same key has one address";
  EXPECT_EQ(got[8], got[10]);

  // Each open needs its close.
  EXPECT_EQ(importer.must(joined("close-batch", {first, first, last})).words, repeated(4, "0"));
  EXPECT_EQ(importer.peek(std::stoull(got[8])), 2);
  EXPECT_NE(importer.must(joined("close-batch", {first, last})).words[0], "0");
  EXPECT_EQ(exporter.must("query " + last).value(1), 0U);
}

TEST_F(Batch, OfNothingIsNothing) {
  EXPECT_EQ(exporter.must("export-batch 1").words, repeated(1, "0"));
  EXPECT_EQ(exporter.must("import-batch").words, repeated(1, "0"));
  EXPECT_EQ(exporter.must("close-batch").words, repeated(1, "0"));
}

}  // namespace
}  // namespace hufu::test
