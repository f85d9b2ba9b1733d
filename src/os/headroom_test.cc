// Limits are read from a tree of the test's own; that the real ones keep a process alive is tested
// in tests/ipc/memory_limits_test.cc.

#include "os/headroom.h"

#include <filesystem>
#include <fstream>
#include <string>

#include <gtest/gtest.h>

#include "base/units.h"

#include <stdlib.h>

namespace hufu::os {
namespace {

class Headroom : public testing::Test {
 protected:
  Headroom() {
    std::string pattern = testing::TempDir() + "hufu-headroom-XXXXXX";
    root_ = ::mkdtemp(pattern.data());
    write("/proc/meminfo",
          "MemTotal:       16777216 kB\nMemFree:         1000 kB\nMemAvailable:    8388608 kB\n");
  }
  ~Headroom() override { std::filesystem::remove_all(root_); }

  void write(const std::string& path, const std::string& text) const {
    std::filesystem::create_directories(std::filesystem::path(root_ + path).parent_path());
    std::ofstream(root_ + path) << text;
  }
  void write_v2(const std::string& group, const std::string& limit, std::uint64_t used,
                std::uint64_t inactive = 0) const {
    write("/sys/fs/cgroup" + group + "/memory.max", limit + "\n");
    write("/sys/fs/cgroup" + group + "/memory.current", std::to_string(used) + "\n");
    write("/sys/fs/cgroup" + group + "/memory.stat",
          "anon 1\nworkingset_inactive_file 7\ninactive_file " + std::to_string(inactive) + "\n");
  }
  void write_v1(const std::string& group, std::uint64_t limit, std::uint64_t used,
                std::uint64_t inactive = 0) const {
    const std::string directory = "/sys/fs/cgroup/memory" + group;
    write(directory + "/memory.limit_in_bytes", std::to_string(limit) + "\n");
    write(directory + "/memory.usage_in_bytes", std::to_string(used) + "\n");
    write(directory + "/memory.stat",
          "inactive_file 5\ntotal_inactive_file " + std::to_string(inactive) + "\n");
  }
  void mount(const std::string& lines) const { write("/proc/self/mountinfo", lines); }
  void join(const std::string& lines) const { write("/proc/self/cgroup", lines); }

  Result<void> check(std::uint64_t bytes) const {
    return check_headroom(MemoryLimits(root_), bytes);
  }

  static constexpr const char* kV2Mount =
      "30 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n";
  static constexpr const char* kV1Mount =
      "34 31 0:31 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n"
      "35 31 0:32 / /sys/fs/cgroup/memory rw shared:3 - cgroup cgroup rw,memory\n"
      "36 31 0:33 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";
  std::string root_;
};

TEST_F(Headroom, WithoutCgroupsIsWhatTheMachineHasAvailable) {
  EXPECT_TRUE(check(7 * kGiB));
  const auto refused = check(8 * kGiB);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Errc::kOutOfMemory);
  EXPECT_EQ(refused.error().reason, Reason::kMemory);
  EXPECT_NE(refused.error().what().find("8589934592 bytes available"), std::string_view::npos);
}

TEST_F(Headroom, KeepsAReserveOf16MiBOrTwoPercent) {
  mount(kV2Mount);
  join("0::/a\n");
  write_v2("/a", std::to_string(2 * kGiB), 0);
  EXPECT_TRUE(check(64 * kMiB));
  EXPECT_TRUE(check(2 * kGiB / 51 * 50));
  EXPECT_FALSE(check(2 * kGiB / 51 * 50 + kMiB));
  write_v2("/a", std::to_string(20 * kMiB), 0);
  EXPECT_TRUE(check(4 * kMiB));
  EXPECT_FALSE(check(4 * kMiB + 1));
}

TEST_F(Headroom, OfEveryAncestorBinds) {
  mount(kV2Mount);
  join("0::/a/b/c\n");
  write_v2("/a/b/c", "max", 5);
  write_v2("/a/b", std::to_string(512 * kMiB), 0);
  write_v2("/a", std::to_string(256 * kMiB), 200 * kMiB);
  EXPECT_TRUE(check(40 * kMiB));
  const auto refused = check(41 * kMiB);
  ASSERT_FALSE(refused);
  const std::string text(refused.error().what());
  EXPECT_NE(text.find("limit is 268435456, 209715200 are in use"), std::string::npos) << text;
  EXPECT_NE(text.find("/sys/fs/cgroup/a/memory.max"), std::string::npos) << text;
}

TEST_F(Headroom, CountsPagesOfFilesThatCanBeDropped) {
  mount(kV2Mount);
  join("0::/a\n");
  write_v2("/a", std::to_string(256 * kMiB), 256 * kMiB, 100 * kMiB);
  EXPECT_TRUE(check(84 * kMiB));
  EXPECT_FALSE(check(85 * kMiB));
}

TEST_F(Headroom, OfVersion1CountsTheWholeSubtree) {
  mount(kV1Mount);
  join("9:cpuset:/x\n4:memory:/svc/job\n0::/\n");
  write_v1("/svc/job", 9223372036854771712U, 0);
  write_v1("/svc", 128 * kMiB, 120 * kMiB, 60 * kMiB);
  write_v1("", 9223372036854771712U, 0);
  EXPECT_TRUE(check(52 * kMiB));
  EXPECT_FALSE(check(53 * kMiB));
}

TEST_F(Headroom, SeesAContainersOwnLimitThroughABindMount) {
  // As in a container without a cgroup namespace: the mount shows the container's own group.
  mount("30 23 0:26 /docker/1f /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n");
  join("4:memory:/docker/1f/worker\n");
  write_v1("/worker", 9223372036854771712U, 0);
  write_v1("", 64 * kMiB, 0);
  EXPECT_TRUE(check(48 * kMiB));
  EXPECT_FALSE(check(49 * kMiB));
}

TEST_F(Headroom, OutsideOfWhatIsMountedIsBoundByTheMountsRoot) {
  mount(kV2Mount);
  join("0::/../elsewhere\n");
  write_v2("", std::to_string(64 * kMiB), 0);
  EXPECT_FALSE(check(49 * kMiB));
}

TEST_F(Headroom, ALoweredLimitLeavesNothing) {
  mount(kV2Mount);
  join("0::/a\n");
  write_v2("/a", std::to_string(64 * kMiB), 100 * kMiB, 10 * kMiB);
  EXPECT_FALSE(check(1));
}

TEST_F(Headroom, AMountPointMayHaveSpaces) {
  mount(R"(30 23 0:26 / /sys/fs/my\040cgroup rw - cgroup2 cgroup2 rw)"
        "\n");
  join("0::/a\n");
  write("/sys/fs/my cgroup/a/memory.max", "67108864\n");
  write("/sys/fs/my cgroup/a/memory.current", "0\n");
  EXPECT_FALSE(check(49 * kMiB));
}

TEST_F(Headroom, TotalIsTheSmallestLimit) {
  mount(kV2Mount);
  join("0::/a/b\n");
  EXPECT_EQ(MemoryLimits(root_).total(), 16 * kGiB);
  write_v2("/a", std::to_string(3 * kGiB), 0);
  write_v2("/a/b", "max", 0);
  EXPECT_EQ(MemoryLimits(root_).total(), 3 * kGiB);
}

TEST_F(Headroom, AnUnreadableMachineIsAnErrorAndNotInfinite) {
  std::filesystem::remove_all(root_ + "/proc");
  const auto refused = check(1);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Errc::kSystem);
}

TEST(HeadroomOfThisProcess, RefusesMoreThanThereIs) {
  const auto bounds = memory_limits().bounds(0);
  ASSERT_TRUE(bounds) << bounds.error().what();
  EXPECT_GT(bounds->front().available, 0U);
  EXPECT_TRUE(require_headroom(4096));
  const auto refused = require_headroom(bounds->front().available + kGiB);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Errc::kOutOfMemory);
}

}  // namespace
}  // namespace hufu::os
