#include "support/memory_cgroup.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <utility>

#include "support/child.h"

namespace hufu::test {
namespace {

bool write_to(const std::string& path, const std::string& text) {
  std::ofstream file(path);
  file << text << std::flush;
  return file.good();
}

struct Parent {
  std::string directory;
  const char* limit_file;
};

// Where a group can be made: the test's own group (version 1), or the root (version 2, where a
// group with processes can have no children with limits).
std::optional<Parent> parent() {
  if (::access("/sys/fs/cgroup/cgroup.controllers", F_OK) == 0) {
    write_to("/sys/fs/cgroup/cgroup.subtree_control", "+memory");
    return Parent{"/sys/fs/cgroup", "memory.max"};
  }
  std::ifstream groups("/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    const auto at = line.find(":memory:");
    if (at == std::string::npos) continue;
    for (std::string group = line.substr(at + 8);; group = group.substr(0, group.rfind('/'))) {
      const std::string directory = "/sys/fs/cgroup/memory" + group;
      if (::access(directory.c_str(), W_OK) == 0) return Parent{directory, "memory.limit_in_bytes"};
      if (group.empty()) break;
    }
  }
  return std::nullopt;
}

}  // namespace

std::optional<MemoryCgroup> MemoryCgroup::make(std::uint64_t limit) {
  const auto where = parent();
  if (!where) return std::nullopt;
  static int made = 0;
  std::string directory =
      where->directory + "/hufu-test-" + std::to_string(::getpid()) + "-" + std::to_string(++made);
  std::error_code failed;
  if (!std::filesystem::create_directory(directory, failed)) return std::nullopt;
  MemoryCgroup group(directory);
  if (!write_to(directory + "/" + where->limit_file, std::to_string(limit))) return std::nullopt;
  return group;
}

std::string MemoryCgroup::why_not() {
  return "no memory cgroup can be made here: it takes root and a mounted memory controller";
}

MemoryCgroup::MemoryCgroup(MemoryCgroup&& other) noexcept
    : directory_(std::exchange(other.directory_, {})) {}

MemoryCgroup::~MemoryCgroup() {
  if (directory_.empty()) return;
  // A process of the group that has just been reaped may still be leaving it.
  for (int i = 0; i < 1000 && ::rmdir(directory_.c_str()) != 0; ++i)
    ::usleep(1000);
}

void MemoryCgroup::take(pid_t pid) const {
  if (!write_to(directory_ + "/cgroup.procs", std::to_string(pid))) {
    throw Stuck("a process cannot be moved to " + directory_);
  }
}

}  // namespace hufu::test
