// What a process keeps ready for itself is there for others when they need it (D11).

#include <chrono>
#include <vector>

#include <gtest/gtest.h>

#include "acl_peer.h"
#include "base/units.h"

namespace hufu::test {
namespace {

constexpr std::uint64_t kCapacity = 64 * kMiB;
constexpr const char* kNearlyAll = "malloc 60817408 2";  // 58 MiB.

class ReserveOfAProcess : public testing::Test {
 protected:
  static std::uint64_t free_for(AclPeer& peer) { return peer.must("meminfo").value(0); }
  static void allocate_and_free(AclPeer& peer, std::uint64_t size, int count) {
    std::vector<std::uint64_t> blocks;
    for (int i = 0; i < count; ++i)
      blocks.push_back(peer.allocate(size, ACL_MEM_MALLOC_NORMAL_ONLY));
    for (const std::uint64_t block : blocks)
      peer.free(block);
  }

  TestBroker broker{{.capacity = "64M"}};
  AclPeer one_ = AclPeer::ready(broker);
  AclPeer other_ = AclPeer::ready(broker);
};

TEST_F(ReserveOfAProcess, IsFreeForItAndInUseForTheOthers) {
  allocate_and_free(one_, 1 * kMiB, 8);
  EXPECT_EQ(free_for(one_), kCapacity);
  EXPECT_LE(free_for(other_), kCapacity - 8 * kMiB) << "nothing was kept, nothing is tested here";
  EXPECT_GE(free_for(other_), kCapacity - 16 * kMiB) << "more spares than are allowed";
}

TEST_F(ReserveOfAProcess, GoesToWhomeverElseNeedsIt) {
  allocate_and_free(one_, 100, 1'000);
  allocate_and_free(one_, 64 * kKiB, 7);
  allocate_and_free(one_, 1 * kMiB, 50);  // And some spares.
  ASSERT_LT(free_for(other_), 13 * kMiB);
  // At once, unless this machine does not let the other process run for 20 ms.
  auto answer = other_.run(kNearlyAll);
  const auto deadline = std::chrono::steady_clock::now() + kDeadline;
  while (!answer.ok() && std::chrono::steady_clock::now() < deadline)
    answer = other_.run(kNearlyAll);
  ASSERT_TRUE(answer.ok()) << answer.text;
  const std::uint64_t block = answer.value();
  other_.fill(block, 58 * kMiB, 1);
  EXPECT_EQ(free_for(one_), 6 * kMiB);
}

TEST_F(ReserveOfAProcess, DoesNotStandInItsOwnWay) {
  allocate_and_free(one_, 1 * kMiB, 58);
  one_.free(one_.allocate(60 * kMiB, ACL_MEM_MALLOC_NORMAL_ONLY));
  EXPECT_EQ(free_for(one_), kCapacity);
}

TEST_F(ReserveOfAProcess, OfAPausedProcessIsWaitedForOnlyAMoment) {
  allocate_and_free(one_, 1 * kMiB, 58);
  one_.helper.stop();
  const auto refused = other_.run(kNearlyAll);
  EXPECT_EQ(refused.code, ACL_ERROR_RT_MEMORY_ALLOCATION) << refused.text;
  one_.helper.go_on();
}

}  // namespace
}  // namespace hufu::test
