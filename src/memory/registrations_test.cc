#include "memory/registrations.h"

#include <sys/mman.h>

#include <string>

#include <gtest/gtest.h>

#include "base/units.h"
#include "os/file.h"

namespace hufu::memory {
namespace {

constexpr std::uint64_t kPage = 4 * kKiB;

// Memory that the program made.
class Pages {
 public:
  explicit Pages(std::uint64_t count, int prot = PROT_READ | PROT_WRITE)
      : size_(count * kPage),
        base_(::mmap(nullptr, size_, prot, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) {}
  ~Pages() { ::munmap(base_, size_); }
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;

  void* at(std::uint64_t offset = 0) const { return static_cast<std::byte*>(base_) + offset; }
  std::uintptr_t address(std::uint64_t offset = 0) const {
    return reinterpret_cast<std::uintptr_t>(at(offset));
  }

 private:
  std::uint64_t size_;
  void* base_;
};

std::uint64_t locked_kib() {
  const std::string status = os::read_small_file("/proc/self/status");
  return std::stoull(status.substr(status.find("VmLck:") + 6));
}

class RegistrationsTest : public testing::Test {
 protected:
  Result<void> add(void* pointer, std::uint64_t size, bool mapped = true, bool pinned = false) {
    return registrations.add(
        {.pointer = pointer, .size = size, .mapped = mapped, .pinned = pinned});
  }

  AddressRegistry registry;
  Registrations registrations{registry};
};

TEST_F(RegistrationsTest, MakeARangeKnownAndUnknownAgain) {
  const Pages pages(4);
  ASSERT_TRUE(add(pages.at(100), 5000));
  const auto region = registry.find(pages.address(5099));
  ASSERT_TRUE(region);
  EXPECT_EQ(region->kind, RegionKind::kRegistered);
  EXPECT_EQ(region->base, pages.address(100));
  EXPECT_EQ(region->reported, 5000U);
  EXPECT_FALSE(registry.find(pages.address(99)));
  EXPECT_FALSE(registry.find(pages.address(5100)));
  ASSERT_TRUE(registrations.remove(pages.at(100)));
  EXPECT_FALSE(registry.find(pages.address(100)));
  EXPECT_EQ(registrations.remove(pages.at(100)).error().code, Errc::kNotRegistered);
}

TEST_F(RegistrationsTest, DoNotOverlap) {
  const Pages pages(4);
  ASSERT_TRUE(add(pages.at(kPage), kPage));
  const std::uint64_t offsets[][2] = {
      {kPage, kPage},          // The same.
      {kPage + 8, 8},          // Inside.
      {0, kPage + 1},          // Its first byte.
      {2 * kPage - 1, kPage},  // Its last byte.
      {0, 4 * kPage},          // Around it: no end of it lies in the other.
  };
  for (const auto& [offset, size] : offsets) {
    const auto refused = add(pages.at(offset), size);
    ASSERT_FALSE(refused) << offset;
    EXPECT_EQ(refused.error().code, Errc::kRegistered) << refused.error().what();
  }
  EXPECT_TRUE(add(pages.at(0), kPage)) << "they may touch";
  EXPECT_TRUE(add(pages.at(2 * kPage), kPage));
}

TEST_F(RegistrationsTest, AreNotOfMemoryThatIsKnownAlready) {
  const Pages pages(2);
  registry.add(
      {.base = pages.address(), .mapped = kPage, .reported = kPage, .kind = RegionKind::kBlock});
  EXPECT_EQ(add(pages.at(0), 2 * kPage).error().code, Errc::kInvalidValue);
  registry.remove(pages.address());
  registry.add(
      {.base = pages.address(), .mapped = kPage, .reported = kPage, .kind = RegionKind::kHost});
  EXPECT_EQ(add(pages.at(0), 2 * kPage).error().code, Errc::kRegistered);
}

TEST_F(RegistrationsTest, AreOfMemoryThatIsThere) {
  const Pages pages(3);
  ::munmap(pages.at(kPage), kPage);
  for (const std::uint64_t size : {2 * kPage, 3 * kPage, kPage + 1}) {
    const auto refused = add(pages.at(0), size);
    ASSERT_FALSE(refused) << size;
    EXPECT_EQ(refused.error().code, Errc::kInvalidValue);
  }
  EXPECT_TRUE(add(pages.at(0), kPage));
  const Pages closed(1, PROT_NONE);
  EXPECT_FALSE(add(closed.at(), kPage)) << "nobody can read it";
  EXPECT_TRUE(registrations.add({.pointer = closed.at(), .size = kPage, .io_memory = true}));
  EXPECT_FALSE(registrations.add({.pointer = pages.at(0), .size = 3 * kPage, .io_memory = true}));
  for (const std::uintptr_t wild : {std::uintptr_t{1} << 47U, ~std::uintptr_t{0} - kPage}) {
    EXPECT_FALSE(add(reinterpret_cast<void*>(wild), 2 * kPage));
  }
  EXPECT_FALSE(add(closed.at(), ~std::uint64_t{0}));
}

TEST_F(RegistrationsTest, AnAddressInsideOneIsNotItsStart) {
  const Pages pages(1);
  ASSERT_TRUE(add(pages.at(), kPage));
  const auto refused = registrations.remove(pages.at(64));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Errc::kNotRegistered);
  EXPECT_NE(refused.error().what().find("64 bytes into"), std::string_view::npos);
}

TEST_F(RegistrationsTest, TheDeviceHasTheSameAddressesOfWhatIsMapped) {
  const Pages pages(2);
  ASSERT_TRUE(add(pages.at(), kPage));
  ASSERT_TRUE(add(pages.at(kPage), kPage, /*mapped=*/false, /*pinned=*/true));
  EXPECT_EQ(*registrations.device_pointer(pages.at(77)), pages.at(77));
  EXPECT_EQ(registrations.device_pointer(pages.at(kPage)).error().code, Errc::kInvalidValue);
  EXPECT_EQ(registrations.device_pointer(pages.at(2 * kPage)).error().code, Errc::kInvalidValue);
  int local = 0;
  EXPECT_FALSE(registrations.device_pointer(&local));
}

TEST_F(RegistrationsTest, PinnedOnesLockTheirPagesUntilTheLastOneOfAPageEnds) {
  const Pages pages(4);
  const std::uint64_t before = locked_kib();
  ASSERT_TRUE(add(pages.at(0), kPage + 100, true, true));      // Pages 0, 1.
  ASSERT_TRUE(add(pages.at(kPage + 200), kPage, true, true));  // Pages 1, 2.
  EXPECT_EQ(locked_kib(), before + 12);
  ASSERT_TRUE(registrations.remove(pages.at(0)));
  EXPECT_EQ(locked_kib(), before + 8) << "page 1 is the other's, too";
  ASSERT_TRUE(registrations.remove(pages.at(kPage + 200)));
  EXPECT_EQ(locked_kib(), before);
}

}  // namespace
}  // namespace hufu::memory
