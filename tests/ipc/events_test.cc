// What a process hears of its exports and imports without asking: S9, S10 and D26.

#include <gtest/gtest.h>

#include "acl_peer.h"
#include "base/units.h"
#include "hufu/hufu.h"
#include "support/probe.h"

namespace hufu::test {
namespace {

constexpr std::uint64_t kSize = 64 * kKiB;
constexpr std::uint64_t kAnyProcess = ACL_RT_IPC_MEM_EXPORT_FLAG_DISABLE_PID_VALIDATION;
constexpr aclError kDriver = ACL_ERROR_RT_DRV_INTERNAL_ERROR;

class Events : public ::testing::Test {
 protected:
  void SetUp() override {
    auto made = exporter.share(kSize, 42, kAnyProcess);
    key = made.key;
    block = made.address;
  }
  // The next event that `peer`'s callback brings.
  static hufuIpcMemEvent event(AclPeer& peer) {
    return static_cast<hufuIpcMemEvent>(peer.must("event").value());
  }
  std::string public_id() { return exporter.must("public-id " + key).words.at(0); }

  TestBroker broker;
  AclPeer exporter = AclPeer::ready(broker);
  AclPeer importer = AclPeer::ready(broker);
  std::string key;
  std::uint64_t block = 0;
};

// S9
TEST_F(Events, TellAnImporterThatItsExporterWasKilled) {
  const std::uint64_t address = importer.must("import " + key).value();
  importer.must("callback " + key);
  exporter.kill();
  const auto told = importer.must("event");
  EXPECT_EQ(told.value(), HUFU_IPC_MEM_EXPORTER_GONE);
  EXPECT_EQ(told.words.at(1), importer.must("public-id " + key).words.at(0));
  EXPECT_EQ(importer.must(fmt::format("all-equal {} {} 42", address, kSize)).words.at(0), "yes");
  AclPeer late = AclPeer::ready(broker);
  EXPECT_EQ(late.import(key).code, kDriver);
  const auto now = importer.must("query " + key);
  EXPECT_EQ(now.value(0), 0U) << "live";
  EXPECT_EQ(now.value(1), 1U) << "importers";
  importer.must("close " + key);
  EXPECT_EQ(importer.used(), 0U);
}

TEST_F(Events, TellAnExporterOfItsImporters) {
  exporter.must("callback " + key);
  importer.must("import " + key);
  EXPECT_EQ(event(exporter), HUFU_IPC_MEM_IMPORTED);
  AclPeer second = AclPeer::ready(broker);
  second.must("import " + key);
  EXPECT_EQ(event(exporter), HUFU_IPC_MEM_IMPORTED);
  importer.must("close " + key);
  second.kill();
  EXPECT_EQ(event(exporter), HUFU_IPC_MEM_LAST_IMPORTER_LEFT);
  EXPECT_EQ(exporter.must("events").value(), 0U);
}

TEST_F(Events, TellAnImporterThatTheExportWasClosedOrFreed) {
  const auto freed = exporter.share(kSize, 1, kAnyProcess);
  importer.must("import " + key);
  importer.must("import " + freed.key);
  importer.must("callback " + key);
  importer.must("callback " + freed.key);
  exporter.must("close " + key);
  EXPECT_EQ(event(importer), HUFU_IPC_MEM_EXPORT_ENDED);
  exporter.free(freed.address);
  EXPECT_EQ(event(importer), HUFU_IPC_MEM_EXPORT_ENDED);
}

// S10
TEST_F(Events, WaitingEndsWhenTheLastImporterLeaves) {
  EXPECT_TRUE(exporter.run("wait-released " + key + " -1").ok()) << "nobody has it";
  importer.must("import " + key);
  const auto early = exporter.run("wait-released " + key + " 1");
  EXPECT_EQ(early.code, ACL_ERROR_RT_REPORT_TIMEOUT);
  EXPECT_NE(early.text.find("still imported after 1 ms"), std::string::npos) << early.text;
  EXPECT_EQ(exporter.run("wait-released " + key + " 0").code, ACL_ERROR_RT_REPORT_TIMEOUT);

  exporter.helper.tell("wait-released " + key + " -1");
  importer.must("close " + key);
  EXPECT_TRUE(AclPeer::parse(exporter.helper.hear()).ok());
}

TEST_F(Events, WaitingEndsWhenTheLastImporterIsKilled) {
  AclPeer second = AclPeer::ready(broker);
  importer.must("import " + key);
  second.must("import " + key);
  // The orderly end: no new imports, then wait for those there are.
  exporter.must("close " + key);
  exporter.helper.tell("wait-released " + key + " -1");
  importer.kill();
  second.kill();
  EXPECT_TRUE(AclPeer::parse(exporter.helper.hear()).ok());
  // It is over in every respect now.
  EXPECT_TRUE(exporter.run("wait-released " + key + " -1").ok());
  EXPECT_EQ(exporter.run("query " + key).code, kDriver);
  exporter.free(block);
  EXPECT_EQ(exporter.used(), 0U);
}

TEST_F(Events, WaitingEndsWhenTheBrokerDoes) {
  importer.must("import " + key);
  exporter.helper.tell("wait-released " + key + " -1");
  broker.kill();
  const auto answer = AclPeer::parse(exporter.helper.hear());
  EXPECT_EQ(answer.code, kDriver);
  EXPECT_NE(answer.text.find("not issued by the broker"), std::string::npos) << answer.text;
}

TEST_F(Events, ACallbackHearsOfTheBrokersEnd) {
  importer.must("import " + key);
  importer.must("callback " + key);
  broker.kill();
  EXPECT_EQ(event(importer), HUFU_IPC_MEM_EXPORT_ENDED);
  EXPECT_EQ(importer.must("events").value(), 0U);
}

TEST_F(Events, AreForTheExporterAndItsImportersOnly) {
  for (const char* call : {"query ", "callback "}) {
    const auto answer = importer.run(call + key);
    EXPECT_EQ(answer.code, kDriver) << call;
    EXPECT_EQ(answer.text.find(key), std::string::npos) << "the key is in a text";
  }
  EXPECT_EQ(importer.run("wait-released " + key + " 0").code, kDriver);
  importer.must("import " + key);
  for (const char* call : {"query ", "callback "})
    EXPECT_TRUE(importer.run(call + key).ok()) << call;
  importer.must("close " + key);
  EXPECT_EQ(importer.run("query " + key).code, kDriver);
}

TEST_F(Events, EndWithTheImportersClose) {
  importer.must("import " + key);
  importer.must("callback " + key);
  importer.must("close " + key);
  // Imported again, nobody asked to be told.
  importer.must("import " + key);
  exporter.kill();
  importer.used();  // Then its death has been heard of.
  AclPeer witness = AclPeer::ready(broker);
  EXPECT_FALSE(witness.import(key).ok());
  EXPECT_EQ(importer.must("query " + key).value(0), 0U);
  EXPECT_EQ(importer.must("events").value(), 0U);
}

TEST_F(Events, ACallbackIsNotRunningWhenItWasCleared) {
  const auto answer = exporter.must("callback-cleared-while-it-runs " + key);
  EXPECT_EQ(answer.words.at(0), "left");
  // And it stays quiet.
  exporter.must("callback " + key);
  exporter.must("callback-off " + key);
  exporter.must("callback-off " + key);
  importer.must("import " + key);
  exporter.must("query " + key);
  EXPECT_EQ(exporter.must("events").value(), 0U);
}

TEST_F(Events, ACallbackMayCallTheLibrary) {
  exporter.must("callback-from-inside " + key);
  importer.must("import " + key);
  const auto told = exporter.must("event");
  EXPECT_EQ(told.words, (Words{"4", "0", "100000", "0"}));
  // It ended itself.
  importer.must("close " + key);
  exporter.must("query " + key);
  EXPECT_EQ(exporter.must("events").value(), 0U);
}

TEST_F(Events, ArgumentsAreChecked) {
  EXPECT_EQ(exporter.run("wait-released " + key + " -2").code, ACL_ERROR_INVALID_PARAM);
  EXPECT_EQ(exporter.run("wait-released short 0").code, ACL_ERROR_RT_PARAM_INVALID);
  EXPECT_EQ(exporter.run("callback short").code, ACL_ERROR_RT_PARAM_INVALID);
  EXPECT_EQ(exporter.run("query short").code, ACL_ERROR_RT_PARAM_INVALID);
}

}  // namespace
}  // namespace hufu::test
