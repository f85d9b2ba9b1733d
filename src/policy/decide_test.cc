#include "policy/decide.h"

#include <random>
#include <vector>

#include <gtest/gtest.h>

namespace hufu::policy {
namespace {

constexpr OverflowIds kOverflow;
constexpr auto kAsked = 0U;
constexpr auto kReadOnlyAsked = static_cast<std::uint32_t>(Access::kReadOnly);
constexpr auto kReadWriteAsked = static_cast<std::uint32_t>(Access::kReadWrite);

BlockFacts block_of(std::uint64_t size, PageSize page = PageSize::k4KiB) {
  return {.size = size, .committed = size, .page = page};
}

wire::Export asking(std::uint64_t offset, std::uint64_t size, std::uint64_t reported = 0) {
  return {.block = 1,
          .offset = offset,
          .size = size,
          .reported_size = reported,
          .flags = 0,
          .reserved = 0};
}

Reason export_reason(const wire::Export& request, const BlockFacts& block) {
  return decide_export(request, block).verdict.reason;
}

TEST(ExportRequest, AWholeBlockIsAllowed) {
  const auto answer = decide_export(asking(0, 4096, 4128), block_of(4096));
  ASSERT_TRUE(answer.verdict.allowed());
  EXPECT_EQ(answer.range, (Range{.offset = 0, .size = 4096}));
}

TEST(ExportRequest, AnOffsetInsideAPageIsRefusedWithItsNumbers) {
  const auto answer = decide_export(asking(64, 64), block_of(8192));
  EXPECT_EQ(answer.verdict.reason, Reason::kNotAligned);
  EXPECT_EQ(answer.verdict.number, (std::array<std::uint64_t, 4>{64, 4096, 8192, 0}));
}

TEST(ExportRequest, AlignmentIsJudgedByTheBlocksOwnPage) {
  const BlockFacts huge = block_of(4 * kMiB, PageSize::k2MiB);
  EXPECT_EQ(export_reason(asking(4096, 4096), huge), Reason::kNotAligned);
  EXPECT_EQ(export_reason(asking(2 * kMiB, 4096), huge), Reason::kNone);
}

TEST(ExportRequest, UpToTheReportedSizeMeansTheWholeBlock) {
  const auto answer = decide_export(asking(0, 4128, 4128), block_of(4096));
  ASSERT_TRUE(answer.verdict.allowed());
  EXPECT_EQ(answer.range.size, 4096U);
}

TEST(ExportRequest, AClaimedReportedSizeNeverWidensTheRange) {
  EXPECT_EQ(export_reason(asking(0, 8192, 1 * kGiB), block_of(4096)), Reason::kOutOfRange);
}

TEST(ExportRequest, NothingWraps) {
  constexpr std::uint64_t kMax = ~std::uint64_t{0};
  EXPECT_EQ(export_reason(asking(4096, kMax), block_of(8192)), Reason::kOutOfRange);
  EXPECT_EQ(export_reason(asking(kMax & ~std::uint64_t{4095}, 4096), block_of(8192)),
            Reason::kOutOfRange);
  EXPECT_EQ(export_reason(asking(8192, 4096), block_of(8192)), Reason::kOutOfRange);
  EXPECT_EQ(export_reason(asking(0, 0), block_of(8192)), Reason::kEmptyRange);
}

TEST(ExportRequest, MemoryThatIsNotThereIsNotExported) {
  BlockFacts sparse = block_of(8192);
  sparse.committed = 4096;
  EXPECT_EQ(export_reason(asking(0, 4096), sparse), Reason::kNotCommitted);
}

TEST(ExportRequest, TheFirstExportDecidesTheKind) {
  BlockFacts sealed = block_of(4096);
  sealed.sealed = true;
  sealed.sealed_for = Access::kReadOnly;
  EXPECT_EQ(export_reason(asking(0, 4096), sealed), Reason::kSealKind);
}

// Whatever is asked: an allowed range is whole pages inside the block and covers what was asked
// for, up to the block's end.
TEST(ExportRequest, AnAllowedRangeIsAlwaysInsideTheBlock) {
  std::mt19937_64 random(20261130);  // Fixed: a failure can be repeated.
  int allowed = 0;
  for (int i = 0; i < 200'000; ++i) {
    const PageSize page = random() % 4 == 0 ? PageSize::k2MiB : PageSize::k4KiB;
    const BlockFacts block = block_of((1 + random() % 16) * bytes_of(page), page);
    wire::Export request = asking(random() % (2 * block.size), random() % (2 * block.size),
                                  random() % (2 * block.size));
    if (random() % 2 == 0) request.offset &= ~(bytes_of(page) - 1);
    if (random() % 16 == 0) request.size = ~random() % 8192;
    const auto answer = decide_export(request, block);
    if (!answer.verdict.allowed()) continue;
    ++allowed;
    ASSERT_TRUE(is_aligned(answer.range.offset, bytes_of(page)));
    ASSERT_TRUE(is_aligned(answer.range.size, bytes_of(page)));
    ASSERT_GT(answer.range.size, 0U);
    ASSERT_LE(answer.range.offset + answer.range.size, block.size);
    ASSERT_EQ(answer.range.offset, request.offset);
    ASSERT_GE(answer.range.offset + answer.range.size,
              std::min(request.offset + request.size, block.size));
  }
  EXPECT_GT(allowed, 10'000) << "the property was hardly tested";
}

constexpr Process kExporter{
    .pid = 100, .pidfs_inode = 1100, .uid = 1000, .gid = 1000, .groups = {}};
constexpr Process kImporter{
    .pid = 200, .pidfs_inode = 1200, .uid = 1000, .gid = 1000, .groups = {}};

class ImportOf : public ::testing::Test {
 protected:
  ShareFacts share() const {
    return {.live = true,
            .exporter = kExporter,
            .any_process = any_process,
            .listed = listed,
            .access = Access::kReadWrite,
            .whole_block = true,
            .size = 4096,
            .block_size = 4096};
  }
  ImportVerdict decide(const Process& importer, const ShareFacts& facts,
                       std::uint32_t wanted = kAsked,
                       BrokerMode mode = BrokerMode::kPersonal) const {
    return decide_import(importer, facts, {.access = wanted, .as_anybody = as_anybody}, mode,
                         kOverflow);
  }
  Reason reason(const Process& importer, BrokerMode mode = BrokerMode::kPersonal) const {
    return decide(importer, share(), kAsked, mode).verdict.reason;
  }

  bool any_process = false;
  bool as_anybody = false;
  std::vector<Listed> listed;
};

TEST_F(ImportOf, AnUnlistedProcessIsRefusedWithBothPids) {
  const auto answer = decide(kImporter, share());
  EXPECT_EQ(answer.verdict.reason, Reason::kNotListed);
  EXPECT_EQ(answer.verdict.number, (std::array<std::uint64_t, 4>{200, 100, 0, 0}));
}

TEST_F(ImportOf, TheExporterMayUnlessItAsksToBeJudgedLikeAnybody) {
  EXPECT_EQ(reason(kExporter), Reason::kNone);
  as_anybody = true;
  EXPECT_EQ(reason(kExporter), Reason::kNotListed);
  listed = {{.pid = 100, .pidfs_inode = 1100, .alive = true}};
  EXPECT_EQ(reason(kExporter), Reason::kNone);
  listed.clear();
  any_process = true;
  EXPECT_EQ(reason(kExporter), Reason::kNone);
}

TEST_F(ImportOf, AListedProcessIsAllowed) {
  listed = {{.pid = 200, .pidfs_inode = 1200, .alive = true}};
  EXPECT_EQ(reason(kImporter), Reason::kNone);
}

TEST_F(ImportOf, AReusedPidIsAnotherProcess) {
  listed = {{.pid = 200, .pidfs_inode = 999, .alive = true}};
  EXPECT_EQ(reason(kImporter), Reason::kNotListed);
}

TEST_F(ImportOf, WithoutPidfsADeadEntryMatchesNobody) {
  Process importer = kImporter;
  importer.pidfs_inode = 0;
  listed = {{.pid = 200, .pidfs_inode = 0, .alive = false}};
  EXPECT_EQ(reason(importer), Reason::kNotListed);
  listed[0].alive = true;
  EXPECT_EQ(reason(importer), Reason::kNone);
}

TEST_F(ImportOf, TheExporterItselfNeedsNoListing) { EXPECT_EQ(reason(kExporter), Reason::kNone); }

TEST_F(ImportOf, NoWhitelistMeansAnyProcessOfThatUser) {
  any_process = true;
  EXPECT_EQ(reason(kImporter), Reason::kNone);
  Process other = kImporter;
  other.uid = 1001;
  EXPECT_EQ(reason(other), Reason::kOtherUser);
}

TEST_F(ImportOf, RootIsNoException) {
  any_process = true;
  Process root = kImporter;
  root.uid = 0;
  EXPECT_EQ(reason(root), Reason::kOtherUser);
}

TEST_F(ImportOf, ANobodyIsEqualToNobody) {
  any_process = true;
  Process nobody = kImporter;
  nobody.uid = kOverflow.uid;
  ShareFacts facts = share();
  facts.exporter.uid = kOverflow.uid;
  EXPECT_EQ(decide(nobody, facts).verdict.reason, Reason::kUnmappedUser);
}

TEST_F(ImportOf, AGroupMemberMayReadInSystemMode) {
  any_process = true;
  const std::vector<std::uint32_t> groups = {5, 1000};
  Process member = kImporter;
  member.uid = 1001;
  member.gid = 1001;
  member.groups = groups;
  EXPECT_EQ(reason(member, BrokerMode::kPersonal), Reason::kOtherUser);
  const auto answer = decide(member, share(), kAsked, BrokerMode::kSystem);
  ASSERT_TRUE(answer.verdict.allowed());
  EXPECT_EQ(answer.access, Access::kReadOnly);
  EXPECT_EQ(decide(member, share(), kReadWriteAsked, BrokerMode::kSystem).verdict.reason,
            Reason::kReadOnlyExport);
}

TEST_F(ImportOf, GroupZeroAndTheGroupOfNobodyOpenNothing) {
  any_process = true;
  for (const std::uint32_t gid : {0U, kOverflow.gid}) {
    ShareFacts facts = share();
    facts.exporter.gid = gid;
    Process member = kImporter;
    member.uid = 1001;
    member.gid = gid;
    EXPECT_EQ(decide(member, facts, kAsked, BrokerMode::kSystem).verdict.reason,
              Reason::kOtherUser);
  }
}

TEST_F(ImportOf, PartOfABlockStaysWithinOneUser) {
  any_process = true;
  ShareFacts facts = share();
  facts.whole_block = false;
  EXPECT_TRUE(decide(kImporter, facts).verdict.allowed());
  Process member = kImporter;
  member.uid = 1001;
  member.gid = 1000;
  EXPECT_EQ(decide(member, facts, kAsked, BrokerMode::kSystem).verdict.reason,
            Reason::kPartOfBlock);
}

TEST_F(ImportOf, AccessIsNeverWidened) {
  any_process = true;
  ShareFacts facts = share();
  facts.access = Access::kReadOnly;
  EXPECT_EQ(decide(kImporter, facts, kReadWriteAsked).verdict.reason, Reason::kReadOnlyExport);
  EXPECT_EQ(decide(kImporter, facts, kAsked).access, Access::kReadOnly);
  facts.access = Access::kReadWrite;
  EXPECT_EQ(decide(kImporter, facts, kReadOnlyAsked).access, Access::kReadOnly);
  EXPECT_EQ(decide(kImporter, facts, kAsked).access, Access::kReadWrite);
}

TEST_F(ImportOf, AnEndedExportIsRefusedBeforeAnythingElse) {
  ShareFacts facts = share();
  facts.live = false;
  EXPECT_EQ(decide(kExporter, facts).verdict.reason, Reason::kExportEnded);
}

TEST_F(ImportOf, OnlyTheExporterEditsTheList) {
  EXPECT_EQ(decide_list(kImporter, share(), 1).reason, Reason::kNotExporter);
  EXPECT_EQ(decide_list(kExporter, share(), 1).reason, Reason::kNone);
  any_process = true;
  EXPECT_EQ(decide_list(kExporter, share(), 1).reason, Reason::kListDisabled);
  EXPECT_EQ(decide_withdraw(kImporter, share()).reason, Reason::kNotExporter);
}

TEST_F(ImportOf, TheListHasALimit) {
  listed.resize(kMaxListed);
  EXPECT_EQ(decide_list(kExporter, share(), 0).reason, Reason::kNone);
  EXPECT_EQ(decide_list(kExporter, share(), 1).reason, Reason::kListFull);
}

}  // namespace
}  // namespace hufu::policy
