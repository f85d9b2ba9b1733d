#pragma once

// Who a process is, as the kernel says.
//
// A pid is a number that is given to somebody else later. A pidfd is the process. Its inode on
// pidfs (Linux 6.9) never repeats within a boot; before that all pidfds share one inode, and
// comparing them would make everybody equal, so `pidfs_inode` is 0 there and means "unknown".

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"
#include "os/socket.h"

namespace hufu::os {

// Signalled (readable) when the process ends. Fails with sys_errno ESRCH when there is none.
Result<UniqueFd> open_pidfd(std::int32_t pid);
bool has_ended(int pidfd);
// 0 where the kernel has no pidfs.
std::uint64_t pidfs_inode_of(int pidfd);
bool has_pidfs();

// Clock ticks from boot to the start of the process; 0 when /proc hides it. With the pid it names a
// process for as long as the machine runs.
std::uint64_t start_time_of(std::int32_t pid);

struct PeerIdentity {
  Credentials connected;              // At connect(), from SO_PEERCRED.
  std::vector<std::uint32_t> groups;  // At connect(), from SO_PEERGROUPS.
  UniqueFd pidfd;
  std::uint64_t pidfs_inode = 0;
  std::uint64_t start_time = 0;  // Clock ticks since boot; 0 when /proc hides it.
  std::uint64_t cgroup_id = 0;   // 0 when unknown.
  std::uint64_t exe_device = 0;
  std::uint64_t exe_inode = 0;
  std::array<char, 16> name{};  // comm, for people only.
};

// The process at the other end of a connected socket. Whatever only decorates a record is left at
// zero when the kernel does not tell; a missing identity is an error.
Result<PeerIdentity> identify_peer(int socket);

// The uid and gid that stand for "somebody your user namespace cannot name".
std::uint32_t overflow_uid();
std::uint32_t overflow_gid();

// Raises the soft limit of descriptors to the hard one and returns it.
std::uint64_t raise_descriptor_limit();

}  // namespace hufu::os
