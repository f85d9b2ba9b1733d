// What `hufu stat` shows: each process's word for what it uses, and the broker's own count beside
// it.

#include <random>

#include <gtest/gtest.h>

#include "acl_peer.h"
#include "base/units.h"

namespace hufu::test {
namespace {

constexpr std::uint64_t kPage = 4 * kKiB;
constexpr std::uint64_t kAnyProcess = ACL_RT_IPC_MEM_EXPORT_FLAG_DISABLE_PID_VALIDATION;

class UsageOf : public testing::Test {
 protected:
  UsageOf() : peer(AclPeer::ready(broker)), observer(AclPeer::ready(broker)) {}
  AclPeer::Usage usage() { return observer.usage_of(peer); }

  TestBroker broker;
  AclPeer peer;
  AclPeer observer;
};

using P4 = UsageOf;
TEST_F(P4, ExportsOfArbitrarySizesWasteLessThanAPageEach) {
  constexpr std::uint64_t kExports = 122;
  std::mt19937_64 random(4);
  std::uniform_int_distribution<std::uint64_t> sizes(kPage, 1 * kMiB - 64);
  std::uint64_t asked = 0;
  for (std::uint64_t i = 1; i <= kExports; ++i) {
    const std::uint64_t size = sizes(random);
    const std::uint64_t block = peer.allocate(size);
    ASSERT_TRUE(peer.export_key(block, size, kAnyProcess).ok());
    asked += size;
    if (i % 40 != 0 && i != kExports) continue;
    const AclPeer::Usage now = usage();
    EXPECT_EQ(now.requested, asked);
    EXPECT_EQ(now.blocks, i);
    EXPECT_GT(now.reserved, now.requested);
    EXPECT_LE(now.reserved - now.requested, i * (kPage - 1));
    EXPECT_EQ(now.charged, now.reserved + now.spare) << "both count the same memory";
  }
}

TEST_F(UsageOf, AFreedBlockIsWarmAndAPieceIsAPartOfAChunk) {
  EXPECT_EQ(usage().charged, 0U);
  const std::uint64_t block = peer.allocate(3 * kPage - 1);
  EXPECT_EQ(usage().requested, 3 * kPage - 1);
  EXPECT_EQ(usage().reserved, 3 * kPage);
  peer.free(block);
  EXPECT_EQ(usage().requested, 0U);
  EXPECT_EQ(usage().reserved, 0U);
  EXPECT_EQ(usage().warm, 3 * kPage);
  const std::uint64_t again = peer.allocate(3 * kPage - 1);
  EXPECT_EQ(usage().warm, 0U);
  peer.free(again);

  const std::uint64_t piece = peer.allocate(100);
  EXPECT_GE(usage().pieces, 128U);
  EXPECT_LE(usage().pieces, usage().chunks);
  EXPECT_EQ(usage().chunks, 256 * kKiB);
  peer.free(piece);
}

TEST_F(UsageOf, EndsWithTheProcess) {
  peer.allocate(kPage);
  EXPECT_EQ(usage().blocks, 1U);
  peer.kill();
  observer.used();  // The broker has heard of the end before it answers this.
  EXPECT_EQ(usage().blocks, 0U);
}

TEST_F(UsageOf, IsToldToTheNextBrokerToo) {
  peer.allocate(kPage);
  broker.kill();
  const std::uint64_t block = peer.allocate(5 * kPage);
  EXPECT_EQ(usage().requested, 6 * kPage) << "the old block is still the process's";
  EXPECT_GE(usage().charged, 5 * kPage);
  EXPECT_LT(usage().charged, 6 * kPage + usage().spare)
      << "the new broker never made the old block";
  peer.free(block);
  EXPECT_EQ(usage().requested, kPage);
}

TEST_F(UsageOf, WarmBlocksOfABrokerThatIsGoneEndWithTheNextOneKept) {
  peer.free(peer.allocate(3 * kPage));
  EXPECT_EQ(usage().warm, 3 * kPage);
  broker.kill();
  peer.free(peer.allocate(5 * kPage));
  EXPECT_EQ(usage().warm, 5 * kPage);
}

TEST_F(UsageOf, AForkedChildDoesNotWriteItsParents) {
  peer.allocate(kPage);
  EXPECT_EQ(peer.must("fork-and-allocate 65536").words, Words{"done"});
  EXPECT_EQ(usage().requested, kPage);
}

}  // namespace
}  // namespace hufu::test
