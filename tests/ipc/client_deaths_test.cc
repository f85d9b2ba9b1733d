// SIGKILL under the C API: the exporter, the importer or the broker dies at each step, or in the
// middle of a call. Nobody else crashes or hangs, nothing leaks, and what cannot go on says why.

#include <array>

#include <gtest/gtest.h>

#include "acl_peer.h"
#include "base/units.h"
#include "support/audit_reader.h"
#include "support/probe.h"

namespace hufu::test {
namespace {

using audit::Type;

constexpr std::uint64_t kPage = 4 * kKiB;
constexpr std::uint64_t kSize = 16 * kPage;
constexpr std::uint64_t kAnyProcess = ACL_RT_IPC_MEM_EXPORT_FLAG_DISABLE_PID_VALIDATION;
constexpr aclError kDriver = ACL_ERROR_RT_DRV_INTERNAL_ERROR;

enum class Step { kDevice, kAllocated, kExported, kListed, kImported, kClosed, kWithdrawn };
constexpr std::array kSteps = {Step::kDevice,   Step::kAllocated, Step::kExported, Step::kListed,
                               Step::kImported, Step::kClosed,    Step::kWithdrawn};

std::string to_string(Step step) {
  switch (step) {
    case Step::kDevice:
      return "Device";
    case Step::kAllocated:
      return "Allocated";
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

class ClientDeath : public ::testing::TestWithParam<Step> {
 protected:
  bool reached(Step step) const { return GetParam() >= step; }

  void SetUp() override {
    if (!reached(Step::kAllocated)) return;
    address = exporter.allocate(kSize);
    exporter.fill(address, kSize, 42);
    if (!reached(Step::kExported)) return;
    key = exporter.export_key(address, kSize).words.at(0);
    if (!reached(Step::kListed)) return;
    ASSERT_TRUE(exporter.list(key, importer.pid()).ok());
    if (!reached(Step::kImported)) return;
    imported = importer.must("import " + key).value();
    held = true;
    if (!reached(Step::kClosed)) return;
    importer.must("close " + key);
    held = false;
    if (!reached(Step::kWithdrawn)) return;
    exporter.must("close " + key);
  }

  TestBroker broker;
  AclPeer exporter = AclPeer::ready(broker);
  AclPeer importer = AclPeer::ready(broker);
  std::uint64_t address = 0;
  std::uint64_t imported = 0;
  std::string key;
  bool held = false;
};

TEST_P(ClientDeath, OfTheExporterLeavesTheImporterWhole) {
  exporter.kill();
  EXPECT_EQ(importer.used(), held ? kSize : 0);
  if (!key.empty()) {
    const auto refused = importer.import(key);
    EXPECT_EQ(refused.code, kDriver);
    EXPECT_NE(refused.text.find("export has ended"), std::string::npos) << refused.text;
  }
  if (held) {
    EXPECT_EQ(importer.peek(imported + kSize - 1), 42);
    importer.must("close " + key);
    EXPECT_EQ(importer.used(), 0U);
  }
  // A new one takes all of it.
  AclPeer next = AclPeer::ready(broker);
  EXPECT_EQ(next.used(), 0U);
}

TEST_P(ClientDeath, OfTheImporterIsNoBusinessOfTheExporters) {
  importer.kill();
  if (address != 0) {
    EXPECT_EQ(exporter.peek(address), 42);
    exporter.free(address);
  }
  EXPECT_EQ(exporter.used(), 0U);
  if (held)
    expect_one(broker.records(), {.type = Type::kProcessExit, .pid = importer.pid(), .aux = 1});
}

TEST_P(ClientDeath, OfTheBrokerEndsKeysAndNothingElse) {
  const pid_t old = broker.pid();
  broker.kill();
  if (address != 0) {
    EXPECT_EQ(exporter.peek(address + kSize - 1), 42);
  }
  if (held) {
    EXPECT_EQ(importer.peek(imported + kSize - 1), 42);
  }
  if (!key.empty()) {
    // The next call starts a new broker, which does not know the key.
    const auto refused = importer.import(key);
    EXPECT_EQ(refused.code, kDriver);
    EXPECT_FALSE(refused.text.empty());
    EXPECT_NE(broker.pid(), old);
  }
  // Both go on with the new one.
  if (held) {
    EXPECT_TRUE(importer.close(key).ok());
  }
  if (address != 0) exporter.free(address);
  const auto made = exporter.share(kPage, 1, kAnyProcess);
  const auto again = importer.import(made.key);
  ASSERT_TRUE(again.ok()) << again.text;
  EXPECT_EQ(importer.peek(again.value()), 1);
}

INSTANTIATE_TEST_SUITE_P(AtEveryStep, ClientDeath, ::testing::ValuesIn(kSteps),
                         [](const auto& parameter) { return to_string(parameter.param); });

TEST(BrokerDeath, InTheMiddleOfACallIsAnAnswerNotAHang) {
  TestBroker broker;
  AclPeer exporter = AclPeer::ready(broker);
  AclPeer importer = AclPeer::ready(broker);
  const auto made = exporter.share(kPage, 1, kAnyProcess);
  broker.pause();
  importer.helper.tell("import " + made.key);
  wait_in_receive(importer.pid());
  broker.kill();
  const auto refused = AclPeer::parse(importer.helper.hear());
  EXPECT_EQ(refused.code, kDriver);
  EXPECT_FALSE(refused.text.empty());
  EXPECT_TRUE(exporter.run("malloc 4096 0").ok());
}

TEST(BrokerDeath, OldKeysAreRefusedWithTheReason) {
  TestBroker broker;
  AclPeer exporter = AclPeer::ready(broker);
  AclPeer importer = AclPeer::ready(broker);
  const auto made = exporter.share(kPage, 1, kAnyProcess);
  broker.kill();
  const auto refused = importer.import(made.key);
  EXPECT_EQ(refused.code, kDriver);
  EXPECT_NE(refused.text.find("not issued by the broker at " + broker.socket()), std::string::npos)
      << refused.text;
  EXPECT_NE(refused.text.find("has ended, and its keys with it"), std::string::npos)
      << refused.text;
  expect_one(broker.records(),
             {.asked = Type::kImport, .reason = Reason::kKeyUnknown, .pid = importer.pid()});
}

TEST(ImporterDeath, InTheMiddleOfACallLeavesNoCount) {
  TestBroker broker;
  AclPeer exporter = AclPeer::ready(broker);
  AclPeer importer = AclPeer::ready(broker);
  const auto made = exporter.share(kPage, 1, kAnyProcess);
  broker.pause();
  importer.helper.tell("import " + made.key);
  wait_in_receive(importer.pid());
  const pid_t pid = importer.pid();
  importer.kill();
  broker.resume();
  exporter.free(made.address);
  EXPECT_EQ(exporter.used(), 0U);
  const auto log = broker.records();
  EXPECT_EQ(count(log, {.type = Type::kImport, .pid = pid}),
            count(log, {.type = Type::kGrantUndelivered, .pid = pid}));
}

// D20
TEST(BrokerStopped, IsReportedWithinTheTimeout) {
  TestBroker broker;
  Environment environment = broker.environment();
  environment.emplace_back("HUFU_TIMEOUT_MS", "100");
  AclPeer exporter = AclPeer::ready(broker);
  AclPeer importer(Helper("acl", {.environment = environment, .uid = {}}));
  importer.must("device 0");
  const auto made = exporter.share(kPage, 1, kAnyProcess);
  broker.pause();
  const auto refused = importer.import(made.key);
  broker.resume();
  EXPECT_EQ(refused.code, kDriver);
  EXPECT_NE(refused.text.find("100 ms"), std::string::npos) << refused.text;
  // What was asked then does not become the answer to what is asked now.
  const auto imported = importer.import(made.key);
  ASSERT_TRUE(imported.ok()) << imported.text;
  EXPECT_EQ(importer.peek(imported.value()), 1);
}

}  // namespace
}  // namespace hufu::test
