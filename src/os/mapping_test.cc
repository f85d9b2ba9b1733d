#include "os/mapping.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <string>
#include <utility>

#include <gtest/gtest.h>

#include "os/commit.h"
#include "os/memfd.h"

namespace hufu::os {
namespace {

constexpr std::uint64_t kPage = 4096;

UniqueFd file_of(std::uint64_t size) {
  auto made = make_memfd("test", size, Backing::kShmem);
  return made ? std::move(*made) : UniqueFd();
}

// Runs `body` in a child, which has none of the parent's mappings, and reports how it ended.
template <class Body>
siginfo_t outcome_of(Body body) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    ::signal(SIGSEGV, SIG_DFL);  // A sanitizer turns it into an exit code otherwise.
    ::_exit(body());
  }
  siginfo_t info{};
  ::waitid(P_PID, static_cast<id_t>(child), &info, WEXITED);
  return info;
}

TEST(GuardedMapping, ShowsTheRangeOfTheFile) {
  const UniqueFd fd = file_of(3 * kPage);
  ASSERT_EQ(::pwrite(fd.get(), "second page", 11, 4096), 11);
  const auto mapping = GuardedMapping::map(fd.get(), {.offset = 4096, .length = 4096});
  ASSERT_TRUE(mapping) << mapping.error().what();
  EXPECT_EQ(std::memcmp(mapping->base(), "second page", 11), 0);
  std::memcpy(mapping->base(), "back again!", 11);
  char seen[11] = {};
  ASSERT_EQ(::pread(fd.get(), seen, sizeof(seen), 4096), 11);
  EXPECT_EQ(std::memcmp(seen, "back again!", 11), 0);
}

TEST(GuardedMapping, StartsAtTheAlignmentAskedFor) {
  const UniqueFd fd = file_of(2 * kMiB);
  for (const PageSize page : {PageSize::k4KiB, PageSize::k2MiB, PageSize::k1GiB}) {
    const auto mapping = GuardedMapping::map(fd.get(), {.length = 2 * kMiB, .alignment = page});
    ASSERT_TRUE(mapping) << mapping.error().what();
    EXPECT_TRUE(is_aligned(reinterpret_cast<std::uintptr_t>(mapping->base()), bytes_of(page)));
  }
}

TEST(GuardedMapping, TheGuardIsPrivateZerosAndTheNextPageFaults) {
  const UniqueFd fd = file_of(2 * kPage);
  ASSERT_EQ(::pwrite(fd.get(), "neighbour", 9, 4096), 9);
  auto* survived = static_cast<int*>(
      ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  ASSERT_NE(survived, MAP_FAILED);
  const siginfo_t info = outcome_of([&] {
    const auto mapping = GuardedMapping::map(fd.get(), {.length = 4096});
    if (!mapping) return 10;
    volatile std::byte* guard = mapping->base() + 4096;
    for (int i = 0; i < 4096; ++i) {
      if (guard[i] != std::byte{0}) return 11;
      guard[i] = std::byte{0xff};
    }
    *survived = 1;
    return std::to_integer<int>(guard[4096]);  // Must not return.
  });
  EXPECT_EQ(*survived, 1) << "exit code " << info.si_status;
  EXPECT_EQ(info.si_code, CLD_KILLED);
  EXPECT_EQ(info.si_status, SIGSEGV);
  char seen[9] = {};
  ASSERT_EQ(::pread(fd.get(), seen, sizeof(seen), 4096), 9);
  EXPECT_EQ(std::memcmp(seen, "neighbour", 9), 0) << "the guard page reached the file";
  ::munmap(survived, 4096);
}

TEST(GuardedMapping, AReadOnlyMappingFaultsOnWrite) {
  const UniqueFd fd = file_of(4096);
  const siginfo_t info = outcome_of([&] {
    const auto mapping =
        GuardedMapping::map(fd.get(), {.length = 4096, .access = Access::kReadOnly});
    if (!mapping || *mapping->base() != std::byte{0}) return 10;
    *static_cast<volatile std::byte*>(mapping->base()) = std::byte{1};
    return 0;
  });
  EXPECT_EQ(info.si_code, CLD_KILLED);
  EXPECT_EQ(info.si_status, SIGSEGV);
}

TEST(GuardedMapping, IsNotInheritedByFork) {
  const UniqueFd fd = file_of(4096);
  const auto mapping = GuardedMapping::map(fd.get(), {.length = 4096});
  ASSERT_TRUE(mapping);
  const siginfo_t info = outcome_of(
      [&] { return std::to_integer<int>(*static_cast<volatile std::byte*>(mapping->base())); });
  EXPECT_EQ(info.si_code, CLD_KILLED);
  EXPECT_EQ(info.si_status, SIGSEGV);
}

TEST(GuardedMapping, CommitBacksEveryPage) {
  const UniqueFd fd = file_of(3 * kPage);
  auto mapping = GuardedMapping::map(fd.get(), {.length = 3 * kPage});
  ASSERT_TRUE(mapping);
  EXPECT_EQ(facts_of(fd.get())->committed, 0U);
  ASSERT_TRUE(commit_pages(mapping->base(), mapping->length(), PageSize::k4KiB));
  EXPECT_EQ(facts_of(fd.get())->committed, 3 * kPage);
}

// Of the mapping at `base`, as /proc/self/smaps tells; 0 when it does not.
std::uint64_t huge_kib_at(const std::byte* base) {
  std::ifstream smaps("/proc/self/smaps");
  const std::string start = fmt::format("{:x}-", reinterpret_cast<std::uintptr_t>(base));
  bool here = false;
  for (std::string line; std::getline(smaps, line);) {
    if (line.starts_with(start)) here = true;
    if (here && line.starts_with("ShmemPmdMapped:")) return std::stoull(line.substr(15));
  }
  return 0;
}

TEST(GuardedMapping, HugeCommitsGiveHugePagesWhateverTheSettingForShmem) {
  if (::access("/sys/kernel/mm/transparent_hugepage", F_OK) != 0) GTEST_SKIP() << "no huge pages";
  const UniqueFd fd = file_of(4 * kMiB);
  auto mapping = GuardedMapping::map(fd.get(), {.length = 4 * kMiB, .alignment = PageSize::k2MiB});
  ASSERT_TRUE(mapping);
  ASSERT_TRUE(commit_pages(mapping->base(), mapping->length(), PageSize::k2MiB));
  EXPECT_EQ(huge_kib_at(mapping->base()), 4096U);

  // An importer's mapping of the same file has them too, if it is aligned alike.
  auto import = GuardedMapping::map(fd.get(), {.length = 4 * kMiB, .alignment = PageSize::k2MiB});
  ASSERT_TRUE(import);
  static_cast<void>(*static_cast<volatile std::byte*>(import->base()));
  EXPECT_GE(huge_kib_at(import->base()), 2048U);
}

TEST(GuardedMapping, MovingItLeavesOneOwner) {
  const UniqueFd fd = file_of(4096);
  auto first = GuardedMapping::map(fd.get(), {.length = 4096});
  ASSERT_TRUE(first);
  std::byte* base = first->base();
  GuardedMapping second = std::move(*first);
  EXPECT_EQ(second.base(), base);
  EXPECT_EQ(first->base(), nullptr);
  second.unmap();
  unsigned char residency = 0;
  EXPECT_EQ(::mincore(base, 4096, &residency), -1) << "the address is still mapped";
}

TEST(Reservation, ServesOneMappingAfterAnother) {
  const UniqueFd first_file = file_of(2 * kPage);
  const UniqueFd second_file = file_of(2 * kPage);
  ASSERT_EQ(::pwrite(second_file.get(), "second", 6, 0), 6);
  auto first = GuardedMapping::map(first_file.get(), {.length = 2 * kPage});
  ASSERT_TRUE(first);
  std::byte* base = first->base();
  Reservation place = first->vacate();
  EXPECT_EQ(first->base(), nullptr);
  EXPECT_EQ(place.base(), base);

  const siginfo_t empty = outcome_of(
      [&] { return std::to_integer<int>(*static_cast<volatile std::byte*>(place.base())); });
  EXPECT_EQ(empty.si_status, SIGSEGV) << "the first file can still be seen";

  const auto second =
      GuardedMapping::map(second_file.get(), {.length = 2 * kPage}, std::move(place));
  ASSERT_TRUE(second);
  EXPECT_EQ(second->base(), base);
  EXPECT_EQ(std::memcmp(base, "second", 6), 0);
  base[2 * kPage] = std::byte{1};  // The guard page.
  const siginfo_t behind =
      outcome_of([&] { return std::to_integer<int>(*static_cast<volatile std::byte*>(base)); });
  EXPECT_EQ(behind.si_status, SIGSEGV) << "a child inherits the second mapping";
}

}  // namespace
}  // namespace hufu::os
