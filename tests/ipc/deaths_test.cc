// SIGKILL, at every step and to everybody: nothing leaks, nobody else is hurt, and the log never
// says less than what happened.

#include <set>

#include <gtest/gtest.h>

#include "base/units.h"
#include "support/audit_reader.h"
#include "support/test_broker.h"
#include "support/wire_session.h"

namespace hufu::test {
namespace {

using audit::Type;

constexpr std::uint64_t kPage = 4 * kKiB;
constexpr std::uint64_t kSize = 16 * kPage;

// How far the two of them come before one dies.
enum class Step {
  kConnected,
  kGreeted,
  kMinted,
  kExported,
  kListed,
  kImported,
  kClosed,
  kWithdrawn
};
constexpr std::array kSteps = {Step::kConnected, Step::kGreeted,  Step::kMinted, Step::kExported,
                               Step::kListed,    Step::kImported, Step::kClosed, Step::kWithdrawn};

std::string to_string(Step step) {
  switch (step) {
    case Step::kConnected:
      return "Connected";
    case Step::kGreeted:
      return "Greeted";
    case Step::kMinted:
      return "Minted";
    case Step::kExported:
      return "Exported";
    case Step::kListed:
      return "Listed";
    case Step::kImported:
      return "Imported";
    case Step::kClosed:
      return "Closed";
    case Step::kWithdrawn:
      return "Withdrawn";
  }
  return "?";
}

class Death : public ::testing::TestWithParam<Step> {
 protected:
  Death() : exporter(start()), importer(broker.helper("wire")) {}

  Helper start() {
    broker.start();
    return broker.helper("wire");
  }

  // Goes up to the step and stops there.
  void go() {
    const auto reached = [](Step step) { return GetParam() == step; };
    exporter.must("connect");
    importer.must("connect");
    if (reached(Step::kConnected)) return;
    exporter.must("hello");
    importer.must("hello");
    if (reached(Step::kGreeted)) return;
    block = exporter.must(fmt::format("mint {}", kSize)).at(0);
    exporter.must(fmt::format("fill {} 0 {} 42", block, kSize));
    if (reached(Step::kMinted)) return;
    const Words made = exporter.must(fmt::format("export {} 0 {} 0", block, kSize));
    key = made.at(0);
    share = made.at(1);
    if (reached(Step::kExported)) return;
    exporter.must(fmt::format("list {} {}", key, importer.pid()));
    if (reached(Step::kListed)) return;
    importer.must("import " + key);
    held = true;
    if (reached(Step::kImported)) return;
    importer.must("close " + share);
    held = false;
    if (reached(Step::kClosed)) return;
    exporter.must("withdraw " + key);
  }

  TestBroker broker;
  WirePeer exporter;
  WirePeer importer;
  std::string block;
  std::string key;
  std::string share;
  bool held = false;
};

TEST_P(Death, OfTheExporterGivesEverythingBackThatNobodyHolds) {
  go();
  exporter.kill();
  // The broker was told of the death before it can read this.
  WireSession observer(broker.socket());
  EXPECT_EQ(observer.stat().used, held ? kSize : 0);
  if (GetParam() != Step::kConnected && !key.empty()) {
    EXPECT_EQ(importer.run("import " + key).reason, Reason::kExportEnded);
  }
  if (held) {
    EXPECT_EQ(importer.must(fmt::format("peek {} {}", share, kSize - 1)), Words{"42"});
    importer.must("close " + share);
    EXPECT_EQ(observer.stat().used, 0U);
  }
}

TEST_P(Death, OfTheImporterCountsItOut) {
  go();
  importer.kill();
  WireSession observer(broker.socket());
  EXPECT_EQ(observer.stat().used, block.empty() ? 0 : kSize);
  if (held)
    expect_one(broker.records(), {.type = Type::kProcessExit, .pid = importer.pid(), .aux = 1});
  if (!block.empty()) {
    exporter.must("free " + block);
    EXPECT_EQ(observer.stat().used, 0U);
    if (!key.empty()) {
      // Counted out: the exporter's free found nobody holding it.
      expect_one(broker.records(), {.type = Type::kFreeClaimed, .refs_after = 0});
    }
  }
}

TEST_P(Death, OfTheBrokerHurtsNobodyAndLeavesNoOldKeyAlive) {
  go();
  broker.kill();
  EXPECT_TRUE(exporter.run("hello").hung_up());
  if (!block.empty()) {
    EXPECT_EQ(exporter.must(fmt::format("peek {} {}", block, kSize - 1)), Words{"42"});
  }
  if (held) {
    EXPECT_EQ(importer.must(fmt::format("peek {} {}", share, kSize - 1)), Words{"42"});
    importer.must(fmt::format("fill {} 0 1 43", share));
    EXPECT_EQ(exporter.must(fmt::format("peek {} 0", block)), Words{"43"});
  }
  broker.start();
  importer.must("connect");
  importer.must("hello");
  EXPECT_EQ(importer.run("stat").value(0), 0U);
  if (!key.empty()) {
    EXPECT_EQ(importer.run("import " + key).reason, Reason::kKeyUnknown);
  }
}

INSTANTIATE_TEST_SUITE_P(AtEveryStep, Death, ::testing::ValuesIn(kSteps),
                         [](const auto& parameter) { return to_string(parameter.param); });

// D19
TEST(Undelivered, AGrantToTheDeadIsTakenBack) {
  TestBroker broker;
  broker.start();
  WireSession exporter(broker.socket());
  WirePeer importer(broker.helper("wire"));
  importer.must("hello");
  const auto made = exporter.share_block(kPage, std::byte{1}, wire::kAnyProcess);

  broker.pause();
  importer.must("ask-import " + made.key);
  const pid_t pid = importer.pid();
  importer.kill();
  broker.resume();

  ASSERT_TRUE(exporter.free(made.block).body);
  EXPECT_EQ(exporter.stat().used, 0U);
  // Whether the question or the death was seen first: what was granted was taken back.
  const auto log = broker.records();
  EXPECT_EQ(count(log, {.type = Type::kImport, .pid = pid}),
            count(log, {.type = Type::kGrantUndelivered, .pid = pid}));
  expect_one(log, {.type = Type::kFreeClaimed, .refs_after = 0});
}

// R13
TEST(Record, IsThereForEveryGrantThatAnybodySaw) {
  TestBroker broker;
  std::set<std::uint64_t> seen;
  for (int round = 0; round < rounds(30); ++round) {
    broker.start();
    WirePeer exporter(broker.helper("wire"));
    exporter.must("hello");
    const std::string block = exporter.must(fmt::format("mint {}", kPage)).at(0);
    exporter.helper.tell(fmt::format("export-until-gone {} {}", block, kPage));
    exporter.helper.hear();  // It is in the middle of it.
    broker.kill();
    const auto granted = WirePeer::parse(exporter.helper.hear());
    ASSERT_GT(granted.words.size(), 1U);
    for (std::size_t i = 0; i < granted.words.size(); ++i)
      seen.insert(granted.value(i));
  }
  std::set<std::uint64_t> recorded;
  for (const auto& record : broker.records()) {
    if (record.type == Type::kExport) recorded.insert(record.share_id);
  }
  for (const std::uint64_t share : seen)
    ASSERT_TRUE(recorded.contains(share)) << "share " << share << " was granted, not recorded";
}

}  // namespace
}  // namespace hufu::test
