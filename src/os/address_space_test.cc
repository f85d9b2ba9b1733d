#include "os/address_space.h"

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <sstream>
#include <string>

#include <gtest/gtest.h>

#include "os/huge_pages.h"

namespace hufu::os {
namespace {

constexpr std::uint64_t kUnit = 2 * kMiB;

// The kernel's own word for what is mapped at `at`: "rw-s", or "" for nothing.
std::string permissions_at(const std::byte* at) {
  const auto address = reinterpret_cast<std::uintptr_t>(at);
  std::ifstream maps("/proc/self/maps");
  std::string line;
  while (std::getline(maps, line)) {
    std::istringstream words(line);
    std::uintptr_t first = 0;
    std::uintptr_t end = 0;
    char dash = 0;
    std::string permissions;
    words >> std::hex >> first >> dash >> end >> permissions;
    if (first <= address && address < end) return permissions;
  }
  return "";
}

ParkedPages parked(Backing backing = Backing::kShmem, std::uint64_t length = kUnit) {
  auto file = make_memfd("test", length, backing);
  EXPECT_TRUE(file);
  auto pages = ParkedPages::make(std::move(*file), backing, length, PageSize::k2MiB);
  EXPECT_TRUE(pages) << pages.error().what();
  return std::move(*pages);
}

TEST(ReservedSpace, IsAlignedAndCannotBeTouched) {
  for (const PageSize page : {PageSize::k2MiB, PageSize::k1GiB}) {
    const auto space = ReservedSpace::make(kUnit, page);
    ASSERT_TRUE(space);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(space->base()) % bytes_of(page), 0U);
    EXPECT_EQ(permissions_at(space->base()), "---p");
    EXPECT_EQ(permissions_at(space->base() + kUnit - 1), "---p");
  }
}

TEST(ReservedSpace, IsGivenBackAndOnlyOnce) {
  auto space = ReservedSpace::make(kUnit, PageSize::k2MiB);
  std::byte* base = space->base();
  {
    const ReservedSpace moved = std::move(*space);
    EXPECT_EQ(moved.base(), base);
  }
  EXPECT_EQ(permissions_at(base), "");
}

TEST(ReservedSpace, AtAGivenAddressIsExactlyThereOrRefused) {
  auto found = ReservedSpace::make(2 * kUnit, PageSize::k2MiB);
  std::byte* where = found->base();
  const auto occupied = ReservedSpace::make(kUnit, PageSize::k2MiB, where + kUnit);
  ASSERT_FALSE(occupied);
  EXPECT_EQ(occupied.error().code, Errc::kRefused);
  found = ReservedSpace();  // Nobody else maps anything here.
  const auto there = ReservedSpace::make(kUnit, PageSize::k2MiB, where);
  ASSERT_TRUE(there) << there.error().what();
  EXPECT_EQ(there->base(), where);
}

TEST(ReservedSpace, BeyondTheLastAddressIsRefused) {
  const std::uintptr_t beyond = (std::uintptr_t{1} << 47U) - kUnit;
  for (const std::uintptr_t at : {beyond, ~std::uintptr_t{0} - (kUnit - 1)}) {
    const auto space =
        ReservedSpace::make(2 * kUnit, PageSize::k2MiB, reinterpret_cast<std::byte*>(at));
    ASSERT_FALSE(space);
    EXPECT_EQ(space.error().code, Errc::kRefused);
  }
  const auto too_much = ReservedSpace::make(std::uint64_t{1} << 50U, PageSize::k2MiB);
  ASSERT_FALSE(too_much);
  EXPECT_EQ(too_much.error().code, Errc::kOutOfMemory);
}

TEST(ParkedPages, AreTheSameWhereverTheyAreShown) {
  auto pages = parked();
  std::memset(pages.base(), 7, kUnit);
  ASSERT_TRUE(pages.hide());
  EXPECT_EQ(permissions_at(pages.base()), "---s");
  const auto space = ReservedSpace::make(2 * kUnit, PageSize::k2MiB);
  std::byte* one = space->base();
  std::byte* other = one + kUnit;
  ASSERT_TRUE(pages.show(one, Touch::kReadWrite));
  ASSERT_TRUE(pages.show(other, Touch::kReadWrite));
  EXPECT_EQ(one[kUnit - 1], std::byte{7});
  one[5] = std::byte{9};
  EXPECT_EQ(other[5], std::byte{9});
  ReservedSpace::vacate(one, kUnit);
  EXPECT_EQ(permissions_at(one), "---p");
  EXPECT_EQ(other[5], std::byte{9});
  ReservedSpace::vacate(other, kUnit);
  ASSERT_TRUE(pages.show(one, Touch::kReadWrite));
  EXPECT_EQ(one[5], std::byte{9});
}

TEST(ParkedPages, ThatMayNotBeTouchedMayBeLater) {
  auto pages = parked();
  ASSERT_TRUE(pages.hide());
  const auto space = ReservedSpace::make(kUnit, PageSize::k2MiB);
  ASSERT_TRUE(pages.show(space->base(), Touch::kNothing));
  EXPECT_EQ(permissions_at(space->base()), "---s");
  ASSERT_TRUE(pages.allow(space->base()));
  EXPECT_EQ(permissions_at(space->base()), "rw-s");
}

TEST(ParkedPages, AreNotInheritedByFork) {
  auto pages = parked();
  ASSERT_TRUE(pages.hide());
  const auto space = ReservedSpace::make(2 * kUnit, PageSize::k2MiB);
  ASSERT_TRUE(pages.show(space->base(), Touch::kReadWrite));
  ReservedSpace::vacate(space->base() + kUnit, kUnit);
  const pid_t child = ::fork();
  if (child == 0) {
    // What is free may be taken again, by a sanitizer for one: but not for these.
    const bool nothing = !permissions_at(space->base()).ends_with('s') &&
                         permissions_at(space->base() + kUnit) != "---p" &&
                         !permissions_at(pages.base()).ends_with('s');
    ::_exit(nothing ? 0 : 1);
  }
  int status = 1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST(ParkedPages, OfReservedHugePagesAreShownTwiceToo) {
  const auto none_left = [] { return huge_pages(PageSize::k2MiB).available == 0; };
  if (none_left()) GTEST_SKIP() << "no reserved huge page: sysctl vm.nr_hugepages=64";
  auto file = make_memfd("test", kUnit, Backing::kHugetlb);
  ASSERT_TRUE(file) << file.error().what();
  auto pages = ParkedPages::make(std::move(*file), Backing::kHugetlb, kUnit, PageSize::k2MiB);
  if (!pages && none_left()) GTEST_SKIP() << "somebody else took the reserved huge pages meanwhile";
  ASSERT_TRUE(pages) << pages.error().what();
  std::memset(pages->base(), 7, kUnit);
  ASSERT_TRUE(pages->hide());
  const auto space = ReservedSpace::make(2 * kUnit, PageSize::k2MiB);
  ASSERT_TRUE(pages->show(space->base(), Touch::kReadWrite));
  ASSERT_TRUE(pages->show(space->base() + kUnit, Touch::kNothing));
  ASSERT_TRUE(pages->allow(space->base() + kUnit));
  space->base()[3] = std::byte{9};
  EXPECT_EQ(space->base()[kUnit + 3], std::byte{9});
  EXPECT_EQ(space->base()[kUnit + 4], std::byte{7});
  ReservedSpace::vacate(space->base(), kUnit);
  EXPECT_EQ(permissions_at(space->base()), "---p");
}

}  // namespace
}  // namespace hufu::os
