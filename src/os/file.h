#pragma once

// Small things with files and directories that must not surprise anybody.

#include <cstdint>
#include <string>

#include "base/result.h"
#include "base/unique_fd.h"

namespace hufu::os {

// The first 4 KiB of a file such as those in /proc; empty when it cannot be read.
std::string read_small_file(const std::string& path);

// Makes sure that `path` is a directory (no symlink) that belongs to this user or root and that
// nobody else may write; makes it (0700) when it is missing. The error says what is wrong with it.
Result<void> ensure_private_directory(const std::string& path);

// Takes an exclusive lock on a file, which is made (0600) when missing; waits when `wait`, else
// fails with sys_errno EWOULDBLOCK. The lock lives as long as the descriptor.
Result<UniqueFd> lock_file(const std::string& path, bool wait);

// Removes a socket file, and only that: anything else at `path` stays.
void remove_socket(const std::string& path);

// 0 when there is nothing at `path`. A symlink is not followed.
std::uint64_t inode_of(const std::string& path);

// Variables that steer security are not taken from a caller with fewer rights (AT_SECURE).
std::string env(const char* name);

}  // namespace hufu::os
