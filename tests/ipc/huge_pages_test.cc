// Huge pages between two processes, as the kernel tells it: reserved ones where there are some,
// else transparent ones, at aligned addresses on both sides; and what becomes of the wish where
// there are none. The tests of reserved pages need some (sysctl vm.nr_hugepages=64) and say so.

#include "os/huge_pages.h"

#include <unistd.h>

#include <chrono>

#include <gtest/gtest.h>

#include "acl_peer.h"
#include "base/units.h"
#include "support/probe.h"

namespace hufu::test {
namespace {

constexpr std::uint64_t kHuge = 2 * kMiB;
constexpr std::uint64_t kAnyProcess = ACL_RT_IPC_MEM_EXPORT_FLAG_DISABLE_PID_VALIDATION;
constexpr aclError kNoMemory = ACL_ERROR_RT_MEMORY_ALLOCATION;

std::uint64_t available() { return os::huge_pages(PageSize::k2MiB).available; }

// The pages that are available once the broker's reaper has closed what was freed: the kernel has
// no event for that, so it is looked for.
std::uint64_t settled(std::uint64_t expected) {
  const auto deadline = std::chrono::steady_clock::now() + kDeadline;
  while (available() != expected && std::chrono::steady_clock::now() < deadline)
    ::usleep(1000);
  return available();
}

class HugePages : public testing::Test {
 protected:
  AclPeer peer(const std::string& mode = "auto") {
    Environment environment = broker.environment();
    environment.emplace_back("HUFU_HUGEPAGES", mode);
    AclPeer made(Helper("acl", {.environment = environment}));
    made.must("device 0");
    return made;
  }
  static AclPeer::Answer allocate(AclPeer& peer, std::uint64_t size, aclrtMemMallocPolicy policy) {
    return peer.run(fmt::format("malloc {} {}", size, static_cast<int>(policy)));
  }
  static std::uint64_t page_of(AclPeer& peer, std::uint64_t address) {
    return peer.must(fmt::format("attributes {}", address)).value(2);
  }

  TestBroker broker;
};

TEST_F(HugePages, ReservedOnesAreUsedOnBothSides) {
  if (available() < 4)
    GTEST_SKIP() << "fewer than 4 reserved huge pages: sysctl vm.nr_hugepages=64";
  AclPeer exporter = peer();
  AclPeer importer = peer();
  const std::uint64_t before = available();
  const std::uint64_t block = exporter.allocate(3 * kHuge, ACL_MEM_MALLOC_HUGE_ONLY);
  EXPECT_EQ(available(), before - 3);
  exporter.fill(block, 3 * kHuge, 0x5a);
  const auto made = exporter.export_key(block, 3 * kHuge, kAnyProcess);
  ASSERT_TRUE(made.ok()) << made.text;
  const auto imported = importer.import(made.words.at(0));
  ASSERT_TRUE(imported.ok()) << imported.text;
  const std::uint64_t base = imported.value();
  EXPECT_EQ(importer.must(fmt::format("all-equal {} {} 90", base, 3 * kHuge)).words, Words{"yes"});

  EXPECT_TRUE(is_aligned(block, kHuge));
  EXPECT_TRUE(is_aligned(base, kHuge));
  EXPECT_EQ(smaps_kib(exporter.pid(), block, "KernelPageSize"), 2048U);
  EXPECT_EQ(smaps_kib(importer.pid(), base, "KernelPageSize"), 2048U);
  expect_same_memory(exporter.pid(), block, importer.pid(), base, 3 * kHuge);
  EXPECT_EQ(page_of(exporter, block), kHuge);
  EXPECT_EQ(page_of(importer, base), kHuge);

  // The over-read page behind both ends is there, and after it nothing.
  EXPECT_EQ(importer.peek(base + 3 * kHuge), 0);
  importer.must("close " + made.words.at(0));
  exporter.free(block);
  exporter.used();
  EXPECT_EQ(settled(before), before) << "the pages are back";
}

TEST_F(HugePages, APartOfAReservedBlockIsSharedByPages) {
  if (available() < 4)
    GTEST_SKIP() << "fewer than 4 reserved huge pages: sysctl vm.nr_hugepages=64";
  AclPeer exporter = peer();
  AclPeer importer = peer();
  const std::uint64_t block = exporter.allocate(3 * kHuge, ACL_MEM_MALLOC_HUGE_ONLY);
  exporter.fill(block, kHuge, 0x11);
  exporter.fill(block + kHuge, 2 * kHuge, 0x22);
  EXPECT_FALSE(exporter.export_key(block + 4096, kHuge, kAnyProcess).ok());
  const auto made = exporter.export_key(block + kHuge, kHuge, kAnyProcess);
  ASSERT_TRUE(made.ok()) << made.text;
  const auto imported = importer.import(made.words.at(0));
  ASSERT_TRUE(imported.ok()) << imported.text;
  EXPECT_EQ(importer.peek(imported.value()), 0x22);
  expect_same_memory(exporter.pid(), block + kHuge, importer.pid(), imported.value(), kHuge);
}

TEST_F(HugePages, AReadOnlyExportOfReservedOnesIsReadOnly) {
  if (available() < 2)
    GTEST_SKIP() << "fewer than 2 reserved huge pages: sysctl vm.nr_hugepages=64";
  AclPeer exporter = peer();
  AclPeer importer = peer();
  const std::uint64_t block = exporter.allocate(kHuge, ACL_MEM_MALLOC_HUGE_ONLY);
  const auto made = exporter.export_key(block, kHuge, kAnyProcess | 0x100U);
  ASSERT_TRUE(made.ok()) << made.text;
  const auto imported = importer.import(made.words.at(0));
  ASSERT_TRUE(imported.ok()) << imported.text;
  EXPECT_EQ(permissions_of(importer.pid(), imported.value()).substr(0, 2), "r-");
  exporter.fill(block, 1, 7);  // The exporter's own mapping goes on writing.
  EXPECT_EQ(importer.peek(imported.value()), 7);
}

TEST_F(HugePages, WithoutReservedOnesTheKernelMakesThemOnBothSides) {
  // More than is reserved, so that the wish goes on to transparent ones.
  const std::uint64_t pages = available() + 4;
  if (pages * kHuge > 200 * kMiB) GTEST_SKIP() << "too many reserved huge pages to ask for more";
  if (::access("/sys/kernel/mm/transparent_hugepage", F_OK) != 0) GTEST_SKIP() << "no THP";
  AclPeer exporter = peer();
  AclPeer importer = peer();
  const auto made = exporter.share(pages * kHuge, 0x5a, kAnyProcess);
  const auto imported = importer.import(made.key);
  ASSERT_TRUE(imported.ok()) << imported.text;
  const std::uint64_t base = imported.value();
  importer.must(fmt::format("populate {} {}", base, pages * kHuge));
  EXPECT_TRUE(is_aligned(made.address, kHuge));
  EXPECT_TRUE(is_aligned(base, kHuge));
  const std::uint64_t huge = smaps_kib(exporter.pid(), made.address, "ShmemPmdMapped");
  EXPECT_EQ(smaps_kib(importer.pid(), base, "ShmemPmdMapped"), huge) << "they are the same pages";
  // The kernel may have no 2 MiB in one piece left. Then it is counted, and the memory works.
  const bool all = huge == pages * kHuge / kKiB;
  EXPECT_EQ(importer.usage_of(exporter).fallbacks, all ? 0U : 1U);
  if (!all) GTEST_SKIP() << "the kernel made " << huge << " KiB huge, and ran out of free ranges";
}

using P52 = HugePages;
TEST_F(P52, RequiredPagesThatAreNotThereFailWhenAllocatedAndAWishTakesSmallOnes) {
  const std::uint64_t too_many = (available() + 1) * kHuge;
  if (too_many > 200 * kMiB) GTEST_SKIP() << "too many reserved huge pages to ask for more";
  AclPeer strict = peer("require");
  const auto refused = allocate(strict, too_many, ACL_MEM_MALLOC_HUGE_ONLY);
  EXPECT_EQ(refused.code, kNoMemory);
  EXPECT_NE(refused.text.find("sysctl vm.nr_hugepages="), std::string::npos) << refused.text;
  EXPECT_NE(refused.text.find("HUFU_HUGEPAGES"), std::string::npos) << refused.text;
  EXPECT_EQ(strict.used(), 0U);

  const auto small = allocate(strict, too_many, ACL_MEM_MALLOC_HUGE_FIRST);
  ASSERT_TRUE(small.ok()) << small.text;
  EXPECT_EQ(page_of(strict, small.value()), 4096U);
  strict.fill(small.value(), too_many, 1);  // All of it is there: no signal later.
  EXPECT_EQ(strict.usage_of(strict).fallbacks, 1U);
}

TEST_F(P52, RequiredPagesThatAreThereAreTaken) {
  if (available() < 2)
    GTEST_SKIP() << "fewer than 2 reserved huge pages: sysctl vm.nr_hugepages=64";
  AclPeer strict = peer("require");
  const std::uint64_t block = strict.allocate(kHuge, ACL_MEM_MALLOC_HUGE_ONLY);
  EXPECT_EQ(smaps_kib(strict.pid(), block, "KernelPageSize"), 2048U);
  const std::uint64_t wished = strict.allocate(kHuge, ACL_MEM_MALLOC_HUGE_FIRST);
  EXPECT_EQ(page_of(strict, wished), kHuge);
  EXPECT_EQ(strict.usage_of(strict).fallbacks, 0U);
}

TEST_F(P52, AllThatIsReservedCanBeHadAndNoMore) {
  const std::uint64_t all = available();
  if (all < 2) GTEST_SKIP() << "fewer than 2 reserved huge pages: sysctl vm.nr_hugepages=64";
  if (all > 100) GTEST_SKIP() << "too many reserved huge pages to take them all";
  AclPeer strict = peer("require");
  std::uint64_t taken = 0;
  AclPeer::Answer answer = allocate(strict, kHuge, ACL_MEM_MALLOC_HUGE_ONLY);
  for (; answer.ok() && taken <= all; answer = allocate(strict, kHuge, ACL_MEM_MALLOC_HUGE_ONLY)) {
    strict.fill(answer.value(), kHuge, 1);
    ++taken;
  }
  EXPECT_EQ(answer.code, kNoMemory) << answer.text;
  EXPECT_EQ(taken, all);
}

TEST_F(P52, AWrongModeIsNamed) {
  Environment environment = broker.environment();
  environment.emplace_back("HUFU_HUGEPAGES", "always");
  AclPeer wrong(Helper("acl", {.environment = environment}));
  const auto answer = wrong.run("device 0");
  EXPECT_EQ(answer.code, ACL_ERROR_RT_PARAM_INVALID);
  EXPECT_NE(answer.text.find("HUFU_HUGEPAGES=always"), std::string::npos) << answer.text;
}

}  // namespace
}  // namespace hufu::test
