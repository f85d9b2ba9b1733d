// Every limit that a machine can put in the way of an allocation is met here by a real process: it
// gets an error that names the limit, and lives on.

#include <gtest/gtest.h>

#include "acl_peer.h"
#include "base/units.h"
#include "support/memory_cgroup.h"

namespace hufu::test {
namespace {

constexpr aclError kNoMemory = ACL_ERROR_RT_MEMORY_ALLOCATION;  // 207001

testing::AssertionResult mentions(const std::string& text, const std::vector<std::string>& parts) {
  for (const std::string& part : parts) {
    if (text.find(part) == std::string::npos) {
      return testing::AssertionFailure() << "'" << part << "' is not in: " << text;
    }
  }
  return testing::AssertionSuccess();
}

class P33 : public testing::Test {
 protected:
  static constexpr std::uint64_t kLimit = 64 * kMiB;

  // A client under the limit; the broker, which another one started, is not.
  P33() : starter_(AclPeer::ready(broker)), group_(MemoryCgroup::make(kLimit)) {}

  AclPeer limited() {
    AclPeer peer = AclPeer::ready(broker);
    group_->take(peer.pid());
    return peer;
  }
  static AclPeer::Answer allocate(AclPeer& peer, std::uint64_t size) {
    return peer.run(fmt::format("malloc {} {}", size, int{ACL_MEM_MALLOC_NORMAL_ONLY}));
  }

  TestBroker broker;
  AclPeer starter_;
  std::optional<MemoryCgroup> group_;
};

TEST_F(P33, ACgroupsLimitIsAnErrorAndNotAKill) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "SKIPPED: the sanitizer's own memory, four times what is written, is charged too";
#endif
  if (!group_) GTEST_SKIP() << MemoryCgroup::why_not();
  AclPeer peer = limited();
  constexpr std::uint64_t kBlock = 4 * kMiB;
  std::vector<std::uint64_t> blocks;
  AclPeer::Answer answer = allocate(peer, kBlock);
  for (; answer.ok() && blocks.size() < 64; answer = allocate(peer, kBlock))
    blocks.push_back(answer.value());
  EXPECT_EQ(answer.code, kNoMemory) << answer.text;
  EXPECT_TRUE(mentions(answer.text, {"memory cgroup's limit is 67108864", group_->directory()}));
  EXPECT_GE(blocks.size(), 8U);
  EXPECT_LE(blocks.size(), 12U);  // 16 MiB stay in reserve.

  // What was given can be used, what was freed is there again, what was refused costs nothing.
  for (const std::uint64_t block : blocks)
    peer.fill(block, kBlock, 1);
  EXPECT_EQ(peer.used(), blocks.size() * kBlock);
  peer.free(blocks.back());
  blocks.pop_back();
  answer = allocate(peer, kBlock);
  EXPECT_TRUE(answer.ok()) << answer.text;
}

TEST_F(P33, ABlockOfMoreThanTheLimitIsRefusedBeforeItIsBegun) {
  if (!group_) GTEST_SKIP() << MemoryCgroup::why_not();
  AclPeer peer = limited();
  const AclPeer::Answer answer = allocate(peer, 200 * kMiB);
  EXPECT_EQ(answer.code, kNoMemory);
  EXPECT_TRUE(mentions(answer.text, {"209715200 bytes do not fit"}));
  EXPECT_EQ(peer.used(), 0U);
}

TEST_F(P33, ManySmallBlocksStopInTimeToo) {
  if (!group_) GTEST_SKIP() << MemoryCgroup::why_not();
  AclPeer peer = limited();
  const AclPeer::Answer answer =
      peer.run(fmt::format("malloc-until-refused {} {}", 16 * kKiB, 2 * kLimit / (16 * kKiB)));
  EXPECT_EQ(answer.code, kNoMemory) << answer.text;
  EXPECT_TRUE(mentions(answer.text, {"memory cgroup"}));
}

TEST_F(P33, HostMemoryKeepsToTheLimitAsWell) {
  if (!group_) GTEST_SKIP() << MemoryCgroup::why_not();
  AclPeer peer = limited();
  const AclPeer::Answer answer = peer.run(fmt::format("malloc-host {}", 60 * kMiB));
  EXPECT_EQ(answer.code, kNoMemory);
  EXPECT_TRUE(mentions(answer.text, {"memory cgroup"}));
  EXPECT_TRUE(peer.run(fmt::format("malloc-host {}", 16 * kMiB)).ok());
}

TEST(P34, ASmallLimitOfLockedMemoryIsNamedWithTheNeedAndTheCommand) {
  if (kSanitized) GTEST_SKIP() << "a sanitizer maps for itself, and cannot when it may not";
  TestBroker broker;
  AclPeer peer = AclPeer::ready(broker);
  peer.must(fmt::format("lock-all {}", 8 * kMiB));
  const AclPeer::Answer refused = peer.run(fmt::format("malloc {} {}", 16 * kMiB, 2));
  EXPECT_EQ(refused.code, kNoMemory);
  EXPECT_TRUE(mentions(refused.text, {"RLIMIT_MEMLOCK is 8388608", "ulimit -l", "16777216"}));
  EXPECT_EQ(peer.used(), 0U);
}

TEST(P34, PinningKeepsToTheLimitAndNamesIt) {
  TestBroker broker;
  AclPeer peer = AclPeer::ready(broker);
  peer.must(fmt::format("lock-at-most {}", kMiB));
  const AclPeer::Answer refused = peer.run(fmt::format("register-pinned {}", 2 * kMiB));
  EXPECT_EQ(refused.code, kNoMemory);
  EXPECT_TRUE(mentions(refused.text, {"RLIMIT_MEMLOCK is 1048576", "ulimit -l", "2097152"}));
  EXPECT_TRUE(peer.run(fmt::format("register-pinned {}", 64 * kKiB)).ok());
}

// The other limits that an allocation meets in its process. Capacity:
// Alone.MemInfoFollowsAllocations; reserved huge pages: P52; the broker's descriptors: core_test;
// another's reserve: reserve_test.
TEST(ALimitOfAProcess, OfItsAddressSpaceIsNamed) {
  if (kSanitized) GTEST_SKIP() << "a sanitizer's own address space is beyond any limit";
  TestBroker broker;
  AclPeer peer = AclPeer::ready(broker);
  peer.must(fmt::format("address-space-at-most {}", 64 * kMiB));
  const AclPeer::Answer refused =
      peer.run(fmt::format("malloc {} {}", 128 * kMiB, int{ACL_MEM_MALLOC_NORMAL_ONLY}));
  EXPECT_EQ(refused.code, kNoMemory);
  EXPECT_TRUE(mentions(refused.text, {"134217728", "ulimit -v", "vm.max_map_count"}));
  EXPECT_EQ(peer.used(), 0U) << "what could not be mapped is given back";
  EXPECT_TRUE(peer.run(fmt::format("malloc {} {}", kMiB, int{ACL_MEM_MALLOC_NORMAL_ONLY})).ok());
}

TEST(ALimitOfAProcess, OfItsMapEntriesIsNamed) {
  if (kSanitized) GTEST_SKIP() << "a sanitizer needs entries itself";
  TestBroker broker;
  AclPeer peer = AclPeer::ready(broker);
  const AclPeer::Answer left = peer.must("use-map-entries");
  ASSERT_GT(left.value(), 1000U) << "the limit was not met";
  const AclPeer::Answer refused =
      peer.run(fmt::format("malloc {} {}", kMiB, int{ACL_MEM_MALLOC_NORMAL_ONLY}));
  EXPECT_EQ(refused.code, kNoMemory) << refused.text;
  EXPECT_TRUE(mentions(refused.text, {"vm.max_map_count"}));
  peer.must("release-map-entries");
  EXPECT_EQ(peer.used(), 0U);
  EXPECT_TRUE(peer.run(fmt::format("malloc {} {}", kMiB, int{ACL_MEM_MALLOC_NORMAL_ONLY})).ok());
}

}  // namespace
}  // namespace hufu::test
