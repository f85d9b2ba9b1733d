#include "runtime/copy.h"

#include <array>
#include <cstdlib>
#include <cstring>

#include <gtest/gtest.h>

namespace hufu::runtime {
namespace {

class Copy : public testing::Test {
 protected:
  void SetUp() override {
    // NOLINTBEGIN(concurrency-mt-unsafe): before any thread.
    ::setenv("HUFU_BROKER", "none", 1);
    ::setenv("HUFU_DEVICE_CAPACITY", "67108864", 1);
    // NOLINTEND(concurrency-mt-unsafe)
    const auto runtime = Runtime::get();
    ASSERT_TRUE(runtime) << runtime.error().what();
    runtime_ = *runtime;
    device_ = allocate();
    other_ = allocate();
  }
  void TearDown() override {
    EXPECT_TRUE(runtime_->deallocate(device_));
    EXPECT_TRUE(runtime_->deallocate(other_));
  }

  char* allocate() {
    const auto plan = memory::plan_allocation({.size = 8192, .policy = 2});
    const auto made = runtime_->heap().allocate(0, *plan);
    EXPECT_TRUE(made) << made.error().what();
    return static_cast<char*>(*made);
  }

  Result<void> copy_of(void* to, const void* from, std::uint64_t count, CopyKind kind) {
    return copy(*runtime_, to, count, from, count, kind);
  }

  Runtime* runtime_ = nullptr;
  char* device_ = nullptr;
  char* other_ = nullptr;
  std::array<char, 8192> host_{};
};

TEST_F(Copy, GoesThereAndBack) {
  host_.fill('x');
  ASSERT_TRUE(copy_of(device_, host_.data(), 8192, CopyKind::kHostToDevice));
  ASSERT_TRUE(copy_of(other_, device_, 8192, CopyKind::kDeviceToDevice));
  std::array<char, 8192> back{};
  ASSERT_TRUE(copy_of(back.data(), other_, 8192, CopyKind::kDefault));
  EXPECT_EQ(back, host_);
}

TEST_F(Copy, ADeviceSideMustBeDeviceMemory) {
  std::array<char, 64> other{};
  for (const CopyKind kind :
       {CopyKind::kHostToDevice, CopyKind::kDeviceToDevice, CopyKind::kHostToBufferToDevice}) {
    EXPECT_EQ(copy_of(other.data(), host_.data(), 64, kind).error().code, Errc::kUnregistered);
  }
  EXPECT_EQ(copy_of(other.data(), host_.data(), 64, CopyKind::kDeviceToHost).error().code,
            Errc::kUnregistered);
  EXPECT_TRUE(copy_of(other.data(), host_.data(), 64, CopyKind::kHostToHost));
  EXPECT_TRUE(copy_of(other.data(), host_.data(), 64, CopyKind::kDefault));
}

TEST_F(Copy, StaysInsideTheAllocation) {
  std::array<char, 16384> large{};
  const auto beyond = copy_of(device_ + 4096, large.data(), 4096 + 33, CopyKind::kHostToDevice);
  ASSERT_FALSE(beyond);
  EXPECT_EQ(beyond.error().code, Errc::kInvalidValue);
  EXPECT_NE(beyond.error().what().find("4128"), std::string_view::npos) << beyond.error().what();
  EXPECT_FALSE(copy_of(large.data(), device_, 8192 + 33, CopyKind::kDeviceToHost));
  EXPECT_TRUE(copy_of(device_ + 4096, large.data(), 4096, CopyKind::kHostToDevice));
}

TEST_F(Copy, CountMustFitTheRoomGiven) {
  EXPECT_EQ(copy(*runtime_, device_, 63, host_.data(), 64, CopyKind::kHostToDevice).error().code,
            Errc::kInvalidValue);
  EXPECT_EQ(copy(*runtime_, device_, 0, host_.data(), 1, CopyKind::kHostToDevice).error().code,
            Errc::kInvalidValue);
}

TEST_F(Copy, OverlappingRangesAreCopiedAsIfOneAfterTheOther) {
  std::memcpy(device_, "abcdef", 6);
  ASSERT_TRUE(copy_of(device_ + 2, device_, 4, CopyKind::kDeviceToDevice));
  EXPECT_EQ(std::memcmp(device_, "ababcd", 6), 0);
}

TEST_F(Copy, FillsDeviceAndHostMemory) {
  ASSERT_TRUE(fill(*runtime_, device_, 8192, 7, 8192));
  EXPECT_EQ(device_[8191], 7);
  ASSERT_TRUE(fill(*runtime_, host_.data(), 64, 9, 64));
  EXPECT_EQ(host_[63], 9);
  EXPECT_FALSE(fill(*runtime_, device_, 64, 0, 65));
  EXPECT_FALSE(fill(*runtime_, device_, 9000, 0, 9000));
}

}  // namespace
}  // namespace hufu::runtime
