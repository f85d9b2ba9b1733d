#pragma once

// The log's directory and files: every system call that src/audit makes, but for the mapping that
// records are stored through (os/mapped_file.h).
//
//   DIR/                      0700, owned by the writer
//     lock                    held (open file description lock) by the one process that writes
//     key0                    0600, 32 bytes: K_0, made once and renamed into place
//     000000000001.hfa ...    0640, segments in order, each of full size from the start
//     spare                   a segment to be: zeros, renamed when it gets its header
//
// Segments are written with zeros when they are made, so that a record never needs a block from the
// file system: a full disk refuses the next segment, never half a record. All errors carry
// Reason::kAuditFailed.

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "audit/chain.h"
#include "base/result.h"
#include "base/unique_fd.h"

namespace hufu::audit {

struct Directory {
  std::string path;
  UniqueFd fd;
};

// Makes it, and what is missing above it, with mode 0700. Refuses one that another user owns or
// may write to: whoever can, can re-seal the log.
Result<Directory> open_or_make_directory(const std::string& path);
// For reading; changes nothing. sys_errno tells a missing directory from a forbidden one.
Result<Directory> open_directory(const std::string& path);

// The lock is dropped when the descriptor is closed, at the latest when the process ends. If
// another process holds it, the error names that process.
Result<UniqueFd> lock_for_writing(const Directory& directory);
// Is some process writing this log?
bool is_being_written(const Directory& directory);

// The numbers of the segments there are, in order.
Result<std::vector<std::uint64_t>> list_segments(const Directory& directory);
std::string segment_name(std::uint64_t number);  // "000000000001.hfa"

Result<ChainKey> read_key(const Directory& directory);
Result<ChainKey> make_key(const Directory& directory);

// Makes `spare`, all zeros, or replaces one that was left behind. A failure leaves nothing behind.
Result<UniqueFd> make_spare(const Directory& directory, std::uint32_t bytes);
Result<void> rename_spare(const Directory& directory, std::uint64_t number);
Result<void> delete_segment(const Directory& directory, std::uint64_t number);

Result<UniqueFd> open_segment(const Directory& directory, std::uint64_t number, bool writable);
// The bytes from `offset` on, as many as there are, at most buffer.size(); returns how many.
Result<std::size_t> read_at(int fd, std::uint64_t offset, std::span<std::byte> buffer);
Result<std::vector<std::byte>> read_segment(const Directory& directory, std::uint64_t number);
Result<void> write_at(int fd, std::uint64_t offset, std::span<const std::byte> bytes);
// The error of a store into a mapped segment that the kernel could not carry out.
Error failed_store(const Directory& directory, std::uint64_t number, int sys_errno);
Result<void> flush(int fd);  // fdatasync; for a directory, what was made and renamed in it.

struct Times {
  std::uint64_t realtime_ns = 0;
  std::uint64_t boottime_ns = 0;
};
Times now();
Id128 boot_id();  // Zeros where the kernel does not say.

}  // namespace hufu::audit
