// The thin path on the wire: memory made by the broker, shared by key, and given back; with the
// kernel as judge of whether it is the same memory.

#include <gtest/gtest.h>

#include "base/units.h"
#include "support/audit_reader.h"
#include "support/probe.h"
#include "support/test_broker.h"
#include "support/wire_session.h"

namespace hufu::test {
namespace {

using audit::Type;

constexpr std::uint64_t kPage = 4 * kKiB;

TEST(WirePath, AKeyHandsOverTheSamePagesAndEverythingComesBack) {
  TestBroker broker;
  broker.start();
  WirePeer exporter(broker.helper("wire"));
  WirePeer importer(broker.helper("wire"));
  WireSession observer(broker.socket());
  constexpr std::uint64_t kSize = 64 * kPage;

  EXPECT_EQ(exporter.must("hello"), Words{std::to_string(exporter.pid())});
  importer.must("hello");
  const auto made = exporter.share_block(kSize, 0x5a);
  exporter.must(fmt::format("list {} {}", made.key, importer.pid()));
  const Words granted = importer.must("import " + made.key);
  EXPECT_EQ(granted, (Words{std::to_string(made.share), std::to_string(kSize), "3"}));

  EXPECT_EQ(importer.must(fmt::format("peek {} {}", made.share, kSize - 1)), Words{"90"});
  importer.must(fmt::format("fill {} 0 {} 17", made.share, kSize));
  EXPECT_EQ(exporter.must(fmt::format("peek {} {}", made.block, kSize - 1)), Words{"17"});
  expect_same_memory(exporter.pid(), exporter.run(fmt::format("where {} 0", made.block)).value(0),
                     importer.pid(), importer.run(fmt::format("where {} 0", made.share)).value(0),
                     kSize);

  EXPECT_EQ(observer.stat().used, kSize);
  importer.must(fmt::format("close {}", made.share));
  exporter.must(fmt::format("free {}", made.block));
  EXPECT_EQ(observer.stat().used, 0U);

  const auto log = broker.records();
  const auto exported = expect_one(log, {.type = Type::kExport, .pid = exporter.pid()});
  const auto listed = expect_one(log, {.type = Type::kListAdd,
                                       .pid = exporter.pid(),
                                       .aux = static_cast<std::uint64_t>(importer.pid())});
  const auto imported = expect_one(log, {.type = Type::kImport,
                                         .pid = importer.pid(),
                                         .owner_pid = exporter.pid(),
                                         .share = made.share,
                                         .size = kSize,
                                         .refs_after = 1});
  const auto closed = expect_one(
      log,
      {.type = Type::kCloseClaimed, .pid = importer.pid(), .share = made.share, .refs_after = 0});
  const auto freed = expect_one(log, {.type = Type::kFreeClaimed, .pid = exporter.pid()});
  EXPECT_LT(exported.seq, listed.seq);
  EXPECT_LT(listed.seq, imported.seq);
  EXPECT_LT(imported.seq, closed.seq);
  EXPECT_LT(closed.seq, freed.seq);
  EXPECT_EQ(exported.key_id, imported.key_id);
}

TEST(WirePath, ImportingCopiesNothing) {
  TestBroker broker;
  broker.start();
  WirePeer importer(broker.helper("wire"));
  importer.must("hello");
  WireSession exporter(broker.socket());
  constexpr std::uint64_t kSize = 64 * kMiB;
  // Less than a page for each MiB.
  constexpr std::uint64_t kMostKib = kSize / kMiB * kPage / kKiB + kSanitizerKib;
  const auto made = exporter.share_block(kSize, std::byte{7}, wire::kAnyProcess);

  // Once for the code itself, which is loaded when it first runs.
  const auto small = exporter.share_block(kPage, std::byte{7}, wire::kAnyProcess);
  importer.must("import " + small.key);
  importer.must(fmt::format("close {}", small.share));

  const std::uint64_t before = status_kib(importer.pid(), "VmRSS");
  importer.must("import " + made.key);
  EXPECT_LT(status_kib(importer.pid(), "VmRSS"), before + kMostKib);

  // Reading all of it maps the exporter's pages; none of them becomes the importer's own.
  const std::uint64_t own = status_kib(importer.pid(), "RssAnon");
  importer.must(fmt::format("populate {} 0 {}", made.share, kSize));
  EXPECT_LT(status_kib(importer.pid(), "RssAnon"), own + kMostKib);
  expect_same_memory(::getpid(), reinterpret_cast<std::uintptr_t>(exporter.block(made.block)),
                     importer.pid(), importer.run(fmt::format("where {} 0", made.share)).value(0),
                     kSize);
}

TEST(WirePath, BehindTheRangeIsNothingOfTheExporters) {
  TestBroker broker;
  broker.start();
  WirePeer importer(broker.helper("wire"));
  importer.must("hello");
  WireSession exporter(broker.socket());
  const auto whole = exporter.share_block(4 * kPage, std::byte{0xaa}, wire::kAnyProcess);
  const auto part = exporter.export_range(whole.block, kPage, kPage, wire::kAnyProcess);
  ASSERT_TRUE(part.body);

  const auto share = part.body->share;
  importer.must("import " + std::string(part.body->key.data(), part.body->key.size()));
  EXPECT_EQ(importer.must(fmt::format("peek {} {}", share, kPage - 1)), Words{"170"});
  EXPECT_EQ(importer.must(fmt::format("peek {} {}", share, kPage)), Words{"0"});
  EXPECT_EQ(importer.must(fmt::format("peek {} {}", share, 2 * kPage - 1)), Words{"0"});
  importer.helper.tell(fmt::format("touch {} {}", share, 2 * kPage));
  EXPECT_EQ(importer.helper.wait(), Ending::killed(SIGSEGV));
}

TEST(WirePath, AReadOnlyGrantIsTheKernelsWordNotOurs) {
  TestBroker broker;
  broker.start();
  WirePeer importer(broker.helper("wire"));
  importer.must("hello");
  WireSession exporter(broker.socket());
  const auto made = exporter.share_block(kPage, std::byte{1}, wire::kAnyProcess | wire::kReadOnly);

  const auto refused = importer.run("import " + made.key + " 3");
  EXPECT_EQ(refused.reason, Reason::kReadOnlyExport);
  importer.must("import " + made.key);
  const std::uint64_t at = importer.run(fmt::format("where {} 0", made.share)).value(0);
  EXPECT_EQ(permissions_of(importer.pid(), at), "r--s");
  *exporter.block(made.block) = std::byte{2};  // The exporter's mapping goes on writing.
  EXPECT_EQ(importer.must(fmt::format("peek {} 0", made.share)), Words{"2"});
  importer.helper.tell(fmt::format("scribble {} 0", made.share));
  EXPECT_EQ(importer.helper.wait(), Ending::killed(SIGSEGV));
}

TEST(WirePath, TwoImportersHoldOneBlockUntilTheLastLetsGo) {
  TestBroker broker;
  broker.start();
  WirePeer one(broker.helper("wire"));
  WirePeer two(broker.helper("wire"));
  WirePeer exporter(broker.helper("wire"));
  WireSession observer(broker.socket());
  for (WirePeer* peer : {&one, &two, &exporter})
    peer->must("hello");
  const auto made = exporter.share_block(kPage, 9);
  exporter.must(fmt::format("list {} {} {}", made.key, one.pid(), two.pid()));
  one.must("import " + made.key);
  two.must("import " + made.key);

  // FREE while imported: nobody new, nobody hurt, and the memory stays charged.
  exporter.must(fmt::format("free {}", made.block));
  EXPECT_EQ(observer.stat().used, kPage);
  one.must(fmt::format("close {}", made.share));
  EXPECT_EQ(one.run("import " + made.key).reason, Reason::kExportEnded);
  EXPECT_EQ(two.must(fmt::format("peek {} 0", made.share)), Words{"9"});
  EXPECT_EQ(observer.stat().used, kPage);
  two.must(fmt::format("close {}", made.share));
  EXPECT_EQ(observer.stat().used, 0U);
  EXPECT_EQ(two.run(fmt::format("close {}", made.share)).reason, Reason::kNotImported);
}

}  // namespace
}  // namespace hufu::test
