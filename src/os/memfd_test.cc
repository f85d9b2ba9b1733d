#include "os/memfd.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include <gtest/gtest.h>

#include "os/commit.h"
#include "os/huge_pages.h"
#include "os/kernel_abi.h"
#include "os/mapping.h"

namespace hufu::os {
namespace {

TEST(Memfd, IsSealedAgainstShrinkingAndGrowing) {
  const auto fd = make_memfd("test", 8192, Backing::kShmem);
  ASSERT_TRUE(fd) << fd.error().what();
  EXPECT_EQ(::ftruncate(fd->get(), 4096), -1);
  EXPECT_EQ(errno, EPERM);
  EXPECT_EQ(::ftruncate(fd->get(), 16384), -1);
  const auto seals = seals_of(fd->get());
  ASSERT_TRUE(seals);
  EXPECT_EQ(*seals & ~F_SEAL_EXEC, F_SEAL_SHRINK | F_SEAL_GROW);
}

TEST(Memfd, HasTheModeOfAPrivateFileAndNoMemoryYet) {
  const auto fd = make_memfd("test", 8192, Backing::kShmem);
  ASSERT_TRUE(fd);
  struct stat status {};
  ASSERT_EQ(::fstat(fd->get(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777U, 0600U);
  EXPECT_EQ(facts_of(fd->get())->committed, 0U);
  EXPECT_EQ(facts_of(fd->get())->size, 8192U);
}

TEST(Reopen, ReadOnlyCannotBeMappedForWriting) {
  const auto fd = make_memfd("test", 4096, Backing::kShmem);
  ASSERT_TRUE(fd);
  const auto reader = reopen(fd->get(), Access::kReadOnly);
  ASSERT_TRUE(reader) << reader.error().what();
  EXPECT_EQ(::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, reader->get(), 0),
            MAP_FAILED);
  EXPECT_EQ(errno, EACCES);
  EXPECT_EQ(facts_of(reader->get())->inode, facts_of(fd->get())->inode);
}

TEST(Reopen, FutureWriteSealStopsNewWritersOnly) {
  const auto fd = make_memfd("test", 4096, Backing::kShmem);
  ASSERT_TRUE(fd);
  void* live = ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd->get(), 0);
  ASSERT_NE(live, MAP_FAILED);
  ASSERT_TRUE(add_seals(fd->get(), F_SEAL_FUTURE_WRITE | F_SEAL_SEAL));
  const auto writer = reopen(fd->get(), Access::kReadWrite);
  if (writer) {
    EXPECT_EQ(::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, writer->get(), 0),
              MAP_FAILED);
  }
  *static_cast<char*>(live) = 'x';  // The old mapping goes on writing.
  ::munmap(live, 4096);
}

// The holder of the original file maps and writes all the time; the probe speaks of the others.
class Lease : public ::testing::TestWithParam<Access> {};

TEST_P(Lease, SeesReopenedFilesAndTheirMappingsOnly) {
  const auto fd = make_memfd("test", 4096, Backing::kShmem);
  ASSERT_TRUE(fd);
  void* own = ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd->get(), 0);
  ASSERT_NE(own, MAP_FAILED);
  const auto probe = HolderProbe::open(fd->get(), GetParam());
  ASSERT_TRUE(probe);
  const auto before = probe->held();
  if (!before) GTEST_SKIP() << "SKIPPED: this kernel grants no leases: " << before.error().what();
  EXPECT_FALSE(*before);

  auto reader = std::move(*reopen(fd->get(), Access::kReadOnly));
  EXPECT_TRUE(*probe->held());
  void* mapped = ::mmap(nullptr, 4096, PROT_READ, MAP_SHARED, reader.get(), 0);
  reader.reset();
  EXPECT_TRUE(*probe->held()) << "a mapping is a holder after its descriptor closed";
  ::munmap(mapped, 4096);
  EXPECT_FALSE(*probe->held());
  ::munmap(own, 4096);
}

// What the broker probed with, the next importer gets.
TEST_P(Lease, LeavesAFileThatIsNobodys) {
  const auto fd = make_memfd("test", 4096, Backing::kShmem);
  ASSERT_TRUE(fd);
  auto probe = HolderProbe::open(fd->get(), GetParam());
  ASSERT_TRUE(probe);
  if (!probe->held()) GTEST_SKIP() << "SKIPPED: this kernel grants no leases";
  const UniqueFd file = probe->release();
  EXPECT_EQ(::fcntl(file.get(), F_GETLEASE), F_UNLCK);
  EXPECT_EQ(::fcntl(file.get(), F_GETOWN), 0);
  EXPECT_TRUE(*HolderProbe::open(fd->get(), GetParam())->held()) << "now it is a holder's";
}

INSTANTIATE_TEST_SUITE_P(Files, Lease, ::testing::Values(Access::kReadOnly, Access::kReadWrite),
                         [](const auto& of) {
                           return of.param == Access::kReadOnly ? "ReadOnly" : "ReadWrite";
                         });

TEST(BlockFile, IsOfReservedHugePagesOnlyIfWantedAndThere) {
  constexpr std::uint64_t kHuge = 2 * kMiB;
  const auto plain = make_block_file("test", kHuge, PageSize::k2MiB, false);
  ASSERT_TRUE(plain);
  EXPECT_EQ(plain->backing, Backing::kShmem);
  const std::uint64_t too_many = huge_pages(PageSize::k2MiB).available + 1;
  const auto other = make_block_file("test", too_many * kHuge, PageSize::k2MiB, true);
  ASSERT_TRUE(other);
  EXPECT_EQ(other->backing, Backing::kShmem);
}

TEST(BlockFile, OfReservedHugePagesIsSealedLeasedAndEmptiedLikeAnyOther) {
  if (huge_pages(PageSize::k2MiB).available == 0) {
    GTEST_SKIP() << "no reserved huge page is available: sysctl vm.nr_hugepages=64";
  }
  constexpr std::uint64_t kHuge = 2 * kMiB;
  const auto file = make_block_file("test", kHuge, PageSize::k2MiB, true);
  ASSERT_TRUE(file);
  ASSERT_EQ(file->backing, Backing::kHugetlb);
  const int fd = file->fd.get();
  EXPECT_EQ(*seals_of(fd) & ~F_SEAL_EXEC, F_SEAL_SHRINK | F_SEAL_GROW);
  {
    const auto mapping = GuardedMapping::map(fd, {.length = kHuge, .alignment = PageSize::k2MiB});
    ASSERT_TRUE(mapping);
    ASSERT_TRUE(commit_huge_pages(mapping->base(), kHuge));
    EXPECT_EQ(facts_of(fd)->committed, kHuge);
    EXPECT_FALSE(*HolderProbe::open(fd, Access::kReadOnly)->held());
    const auto reader = reopen(fd, Access::kReadOnly);
    ASSERT_TRUE(reader);
    EXPECT_TRUE(*HolderProbe::open(fd, Access::kReadOnly)->held());
  }
  drop_pages(fd);
  EXPECT_EQ(facts_of(fd)->committed, 0U);
}

}  // namespace
}  // namespace hufu::os
