#pragma once

// MemoryCgroup: a memory cgroup of a test's own, with a limit that the kernel means. Version 1 or
// 2, below whatever group the test itself is in; gone with the object, once its processes have
// ended.

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>

namespace hufu::test {

class MemoryCgroup {
 public:
  // Nothing where none can be made (not root, or no such controller): why_not() says it.
  static std::optional<MemoryCgroup> make(std::uint64_t limit);
  static std::string why_not();

  ~MemoryCgroup();
  MemoryCgroup(MemoryCgroup&& other) noexcept;
  MemoryCgroup& operator=(MemoryCgroup&&) = delete;
  MemoryCgroup(const MemoryCgroup&) = delete;
  MemoryCgroup& operator=(const MemoryCgroup&) = delete;

  // What it has already stays charged where it was; what it commits from now on counts here.
  void take(pid_t pid) const;

  const std::string& directory() const { return directory_; }

 private:
  explicit MemoryCgroup(std::string directory) : directory_(std::move(directory)) {}

  std::string directory_;
};

}  // namespace hufu::test
