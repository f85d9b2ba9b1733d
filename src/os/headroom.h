#pragma once

// How much memory this process can still commit.
//
// Committing past a memory cgroup's limit does not fail: it ends in SIGKILL. On a machine without
// limits it ends in swapping, and then in SIGKILL too. So whoever commits asks here first, about
// everything that bounds this process:
//
//   MemAvailable                          what the machine can give
//   /a/b/c  limit - usage + droppable     each memory cgroup that holds this process, and each
//   /a/b    limit - usage + droppable     above it, version 1 or 2, as far as this process's mounts
//   /a      limit - usage + droppable     show them
//
// The answer is a reading, not a reservation: two processes that race for the last bytes can still
// both be told yes. Anonymous memory that could be swapped out counts as used, which errs on the
// side of saying no.

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"

namespace hufu::os {

// One thing that bounds what can be committed.
struct MemoryBound {
  std::string limit_file;   // Of the cgroup; empty for the machine itself.
  std::uint64_t limit = 0;  // 0 for the machine.
  std::uint64_t used = 0;
  std::uint64_t droppable = 0;  // Of what is used, pages of files that are on disk anyway.
  std::uint64_t available = 0;
};

// Where the limits of this process are to be read. Which cgroups hold it is looked up each time (a
// process can be moved), where they are mounted only once.
class MemoryLimits {
 public:
  // All paths are taken below `root`: a test's own tree.
  explicit MemoryLimits(std::string root = {});

  // The machine first, then from the process's own cgroup upwards. `enough`: below so many
  // available bytes droppable pages are looked at too, which is the expensive part.
  Result<std::vector<MemoryBound>> bounds(std::uint64_t enough) const;

  // The smallest of all limits, and of the machine's memory: what "all the memory there is" means
  // to this process. 0 if /proc cannot be read.
  std::uint64_t total() const;

 private:
  struct Hierarchy {
    std::string mount_point;  // Empty: not mounted.
    std::string mount_root;   // The cgroup that mount_point shows.
  };
  struct Group {
    std::string directory;
    bool v2 = false;
  };
  std::vector<Group> groups() const;

  std::string root_;
  Hierarchy v1_;
  Hierarchy v2_;
};

// The process's own. Never destroyed.
const MemoryLimits& memory_limits();

// Fails with the numbers and the remedy unless `bytes` and a reserve (16 MiB or 2 %, whichever is
// more) fit below every bound. Always reads.
Result<void> check_headroom(const MemoryLimits& limits, std::uint64_t bytes);

// The same for this process, cheap for small blocks: a check leaves an allowance, a part of what
// was found to be free, that is good for some milliseconds and needs no reading.
Result<void> require_headroom(std::uint64_t bytes);

}  // namespace hufu::os
