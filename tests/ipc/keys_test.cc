// Keys as bearer tokens go: what is no key, whose key it is not, and when it was one.

#include <algorithm>
#include <string_view>

#include <gtest/gtest.h>

#include "base/units.h"
#include "support/audit_reader.h"
#include "support/test_broker.h"
#include "support/wire_session.h"

namespace hufu::test {
namespace {

using audit::Type;

constexpr std::uint64_t kPage = 4 * kKiB;
constexpr std::string_view kAlphabet =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

TEST(Key, EveryBitOfItMattersAndEveryTryIsRecorded) {
  TestBroker broker;
  broker.start();
  WireSession exporter(broker.socket());
  const auto made = exporter.share_block(kPage, std::byte{1}, wire::kAnyProcess);
  constexpr int kBitsOfACharacter = 6;
  for (std::size_t i = 0; i < made.key.size(); ++i) {
    const std::size_t value = kAlphabet.find(made.key[i]);
    ASSERT_NE(value, std::string_view::npos);
    for (int bit = 0; bit < kBitsOfACharacter; ++bit) {
      std::string altered = made.key;
      altered[i] = kAlphabet[value ^ (std::size_t{1} << bit)];
      const auto reply = exporter.import(altered);
      ASSERT_EQ(reply.reason(), Reason::kKeyUnknown) << "character " << i << ", bit " << bit;
      ASSERT_TRUE(reply.fds.empty());
    }
  }
  EXPECT_EQ(count(broker.records(), {.asked = Type::kImport, .reason = Reason::kKeyUnknown}),
            made.key.size() * kBitsOfACharacter);
  EXPECT_TRUE(exporter.import(made.key).body) << "the key itself must have stayed good";
}

TEST(Key, HasOneTextFormOnly) {
  TestBroker broker;
  broker.start();
  WireSession exporter(broker.socket());
  const auto made = exporter.share_block(kPage, std::byte{1}, wire::kAnyProcess);
  std::string nul_early = made.key;
  nul_early[31] = '\0';
  std::string plus = made.key;
  plus[0] = '+';
  std::string padded = made.key;
  padded.back() = '=';
  const std::vector<std::string> wrong = {"",
                                          made.key.substr(0, 1),
                                          made.key.substr(0, 63),
                                          made.key + "A",
                                          made.key + "=",
                                          made.key + made.key,
                                          " " + made.key.substr(1),
                                          nul_early,
                                          plus,
                                          padded,
                                          std::string(64, '\x80'),
                                          std::string(64, '/')};
  for (const std::string& text : wrong) {
    EXPECT_EQ(exporter.import(text).reason(), Reason::kKeyMalformed) << "'" << text << "'";
  }
  EXPECT_EQ(count(broker.records(), {.asked = Type::kImport, .reason = Reason::kKeyMalformed}),
            wrong.size());
}

TEST(Key, AFloodOfRefusalsIsCountedNotWrittenOut) {
  TestBroker broker;
  broker.start();
  constexpr std::size_t kTries = 3000;
  {
    WireSession guesser(broker.socket());
    for (std::size_t i = 0; i < kTries; ++i)
      ASSERT_EQ(guesser.import(std::string(64, 'A')).reason(), Reason::kKeyUnknown);
    guesser.client.ask(wire::Bye{});
  }
  broker.stop();
  std::size_t written = 0;
  std::size_t suppressed = 0;
  for (const auto& record : broker.records()) {
    if (record.type == Type::kDeny) ++written;
    if (record.type == Type::kSuppressed) suppressed += record.aux;
  }
  EXPECT_EQ(written + suppressed, kTries) << "a refusal was neither written nor counted";
  EXPECT_GT(suppressed, kTries / 2);
}

TEST(Key, OpensNothingForAProcessThatIsNotListed) {
  TestBroker broker;
  broker.start();
  WirePeer importer(broker.helper("wire"));
  WirePeer bystander(broker.helper("wire"));
  importer.must("hello");
  bystander.must("hello");
  WireSession exporter(broker.socket());
  const auto made = exporter.share_block(kPage, std::byte{1});

  const auto refused = importer.run("import " + made.key);
  EXPECT_EQ(refused.reason, Reason::kNotListed);
  EXPECT_EQ(refused.number[0], static_cast<std::uint64_t>(importer.pid()));
  EXPECT_EQ(refused.number[1], static_cast<std::uint64_t>(::getpid()));
  expect_one(broker.records(), {.asked = Type::kImport,
                                .reason = Reason::kNotListed,
                                .pid = importer.pid(),
                                .owner_pid = ::getpid(),
                                .share = made.share});

  ASSERT_TRUE(exporter.list(made.key, {importer.pid()}).body);
  EXPECT_TRUE(importer.run("import " + made.key).ok());
  EXPECT_EQ(bystander.run("import " + made.key).reason, Reason::kNotListed);
  // Only the exporter edits the list, and only processes that exist go on it.
  EXPECT_EQ(bystander.run(fmt::format("list {} {}", made.key, bystander.pid())).reason,
            Reason::kNotExporter);
  const pid_t dead = bystander.pid();
  bystander.kill();
  EXPECT_EQ(exporter.list(made.key, {dead}).reason(), Reason::kNoSuchProcess);
}

TEST(Key, OfABrokerThatIsGoneOpensNothing) {
  TestBroker broker;
  broker.start();
  std::string key;
  {
    WireSession exporter(broker.socket());
    key = exporter.share_block(kPage, std::byte{1}, wire::kAnyProcess).key;
  }
  broker.kill();
  broker.start();
  WireSession session(broker.socket());
  EXPECT_EQ(session.import(key).reason(), Reason::kKeyUnknown);
  EXPECT_EQ(session.stat().used, 0U);
  expect_one(broker.records(), {.asked = Type::kImport, .reason = Reason::kKeyUnknown});
}

TEST(Key, OfAnotherBrokerOpensNothing) {
  TestBroker here;
  TestBroker there;
  here.start();
  there.start();
  WireSession exporter(here.socket());
  WirePeer importer(there.helper("wire"));
  importer.must("hello");
  const auto made = exporter.share_block(kPage, std::byte{1}, wire::kAnyProcess);
  EXPECT_EQ(importer.run("import " + made.key).reason, Reason::kKeyUnknown);
}

TEST(Key, IsDeadOnceWithdrawnAndTheNextOneDiffers) {
  TestBroker broker;
  broker.start();
  WireSession exporter(broker.socket());
  const auto made = exporter.share_block(kPage, std::byte{1}, wire::kAnyProcess);
  ASSERT_TRUE(exporter.withdraw(made.key).body);
  EXPECT_EQ(exporter.import(made.key).reason(), Reason::kExportEnded);
  EXPECT_EQ(exporter.withdraw(made.key).reason(), Reason::kExportEnded);
  const auto again = exporter.export_range(made.block, 0, kPage, wire::kAnyProcess);
  ASSERT_TRUE(again.body);
  EXPECT_NE(std::string(again.body->key.data(), again.body->key.size()), made.key);
  EXPECT_EQ(exporter.import(made.key).reason(), Reason::kExportEnded);
}

}  // namespace
}  // namespace hufu::test
