// The kind of device that a process asks for, as the process sees it: what HUFU_PROFILE changes,
// and that what HUFU_SIM_CAPS takes away is refused with the code of a device without it while the
// rest works.

#include "base/device_model.h"

#include <string>

#include <gtest/gtest.h>

#include "acl_peer.h"
#include "base/units.h"

namespace hufu::test {
namespace {

constexpr std::uint64_t kAnyProcess = ACL_RT_IPC_MEM_EXPORT_FLAG_DISABLE_PID_VALIDATION;

class DeviceOfAProcess : public testing::Test {
 protected:
  AclPeer with(const std::string& variable, const std::string& value) const {
    Environment environment = broker.environment();
    environment.emplace_back(variable, value);
    return AclPeer(Helper("acl", {.environment = environment}));
  }
  AclPeer ready_with(const std::string& variable, const std::string& value) const {
    AclPeer peer = with(variable, value);
    peer.must("device 0");
    return peer;
  }
  static std::uint64_t page_of_a_mebibyte(AclPeer& peer) {
    const std::uint64_t block = peer.allocate(kMiB, ACL_MEM_MALLOC_HUGE_FIRST);
    return peer.must(fmt::format("attributes {}", block)).value(2);
  }

  TestBroker broker;
};

TEST_F(DeviceOfAProcess, DecidesAboutPaddingAndThePageOfAMebibyte) {
  for (const Profile& profile : profiles()) {
    AclPeer peer = ready_with("HUFU_PROFILE", std::string(profile.name));
    EXPECT_EQ(peer.must("soc-name").words.at(0), profile.soc_name);
    const std::uint64_t block = peer.allocate(8192, ACL_MEM_MALLOC_NORMAL_ONLY);
    EXPECT_EQ(peer.must(fmt::format("range {}", block)).value(1), 8192 + profile.over_read);
    EXPECT_EQ(page_of_a_mebibyte(peer), profile.over_read == 0 ? 4096U : 2 * kMiB) << profile.name;
  }
}

TEST_F(DeviceOfAProcess, WithoutGiantPagesSaysSoAndTakesNothing) {
  AclPeer peer = ready_with("HUFU_PROFILE", "950");
  for (const auto policy : {ACL_MEM_MALLOC_HUGE1G_ONLY, ACL_MEM_MALLOC_HUGE1G_ONLY_P2P}) {
    const auto refused = peer.run(fmt::format("malloc {} {}", kMiB, static_cast<int>(policy)));
    EXPECT_EQ(refused.code, ACL_ERROR_RT_FEATURE_NOT_SUPPORT);
    EXPECT_NE(refused.text.find("1 GiB"), std::string::npos) << refused.text;
  }
  EXPECT_EQ(peer.used(), 0U);
}

TEST_F(DeviceOfAProcess, AnUnknownWishFailsTheFirstCallAndListsTheKnown) {
  for (const char* variable : {"HUFU_PROFILE", "HUFU_SIM_CAPS"}) {
    for (const char* first : {"device 0", "init"}) {
      AclPeer peer = with(variable, "A4");
      const auto answer = peer.run(first);
      EXPECT_EQ(answer.code, ACL_ERROR_RT_PARAM_INVALID);
      const bool profile = std::string(variable) == "HUFU_PROFILE";
      EXPECT_NE(answer.text.find(variable), std::string::npos) << answer.text;
      EXPECT_NE(answer.text.find(profile ? "A2, A3, 950, 310P" : "no_exbus, no_p2p, no_vmm"),
                std::string::npos)
          << answer.text;
    }
  }
}

using P28 = DeviceOfAProcess;
TEST_F(P28, WithoutExbusAKeyOpensNothingAndTheRestWorks) {
  AclPeer exporter = AclPeer::ready(broker);
  AclPeer importer = ready_with("HUFU_SIM_CAPS", "no_exbus");
  const auto made = exporter.share(kMiB, 0x5a, kAnyProcess);
  const auto refused = importer.import(made.key);
  EXPECT_EQ(refused.code, ACL_ERROR_RT_DRV_INTERNAL_ERROR);
  EXPECT_NE(refused.text.find("HUFU_SIM_CAPS=no_exbus"), std::string::npos) << refused.text;
  // The refusal is no offence, and the device is otherwise whole.
  EXPECT_TRUE(importer.run(fmt::format("malloc {} 0", kMiB)).ok());
  AclPeer other = AclPeer::ready(broker);
  EXPECT_TRUE(other.import(made.key).ok());
}

TEST_F(P28, WithoutPeerAccessOnlyImportsThatAskForItFail) {
  AclPeer exporter = AclPeer::ready(broker);
  AclPeer importer = ready_with("HUFU_SIM_CAPS", "no_p2p");
  const auto made = exporter.share(kMiB, 0x5a, kAnyProcess);
  EXPECT_EQ(importer.run("import " + made.key + " 1").code, ACL_ERROR_RT_FEATURE_NOT_SUPPORT);
  EXPECT_TRUE(importer.run("import " + made.key + " 0").ok());
}

using P48 = DeviceOfAProcess;
TEST_F(P48, VisibleDevicesAreNumberedFromZeroAndAreTheOnesThatWereMeant) {
  AclPeer all = AclPeer::ready(broker);
  all.must("device 1");
  AclPeer one = ready_with("ASCEND_RT_VISIBLE_DEVICES", "1");
  EXPECT_EQ(one.must("device-count").value(), 1U);
  EXPECT_EQ(one.must("current-device").value(), 0U);
  const auto refused = one.run("device 1");
  EXPECT_EQ(refused.code, ACL_ERROR_RT_INVALID_DEVICEID);
  EXPECT_NE(refused.text.find("ASCEND_RT_VISIBLE_DEVICES"), std::string::npos) << refused.text;

  // Its memory is the broker's second device's, and called by its own number.
  const auto made = one.share(kMiB, 0x5a, kAnyProcess);
  EXPECT_EQ(one.must(fmt::format("attributes {}", made.address)).value(1), 0U);
  EXPECT_GE(all.used(), 2 * kMiB);
  all.must("device 0");
  EXPECT_EQ(all.used(), 0U);
  const auto imported = all.import(made.key);
  ASSERT_TRUE(imported.ok()) << imported.text;
  EXPECT_EQ(all.must(fmt::format("attributes {}", imported.value())).value(1), 1U);
}

TEST_F(P48, AnEmptyListShowsNoDevice) {
  AclPeer peer = with("ASCEND_RT_VISIBLE_DEVICES", "x");
  EXPECT_EQ(peer.must("device-count").value(), 0U);
  EXPECT_EQ(peer.run("device 0").code, ACL_ERROR_RT_INVALID_DEVICEID);
}

}  // namespace
}  // namespace hufu::test
