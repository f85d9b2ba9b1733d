#pragma once

// What the kernel says about a process and its memory, from outside: the judge that neither the
// broker nor the library can talk to.

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace hufu::test {

// The number of the page frame behind an address; nothing when the page is not present or the
// kernel does not say (it tells root only).
std::optional<std::uint64_t> frame_of(pid_t pid, std::uint64_t address);

// Which file, and where in it, an address shows, from /proc/PID/maps. Nothing where no file is
// mapped: address space that is only reserved is nobody's memory.
struct FilePlace {
  std::string device;
  std::uint64_t inode = 0;
  std::uint64_t offset = 0;
  friend bool operator==(const FilePlace&, const FilePlace&) = default;
};
std::optional<FilePlace> place_of(pid_t pid, std::uint64_t address);
// The permissions column there: "rw-s".
std::string permissions_of(pid_t pid, std::uint64_t address);

// A line of the mapping that contains the address, of /proc/PID/smaps, in KiB: "KernelPageSize",
// "ShmemPmdMapped". 0 when there is none.
std::uint64_t smaps_kib(pid_t pid, std::uint64_t address, const std::string& name);

// Fails the test unless every page of the two ranges is one and the same memory: by page frame for
// root, else by file and offset. Both ranges must have been touched.
void expect_same_memory(pid_t one, std::uint64_t at_one, pid_t other, std::uint64_t at_other,
                        std::uint64_t bytes);

// What a sanitizer may touch of its own while a program runs: less than what a copy would.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr std::uint64_t kSanitizerKib = 16 * 1024;
#else
inline constexpr std::uint64_t kSanitizerKib = 0;
#endif

// A line of /proc/PID/status in KiB: "VmRSS", "RssAnon".
std::uint64_t status_kib(pid_t pid, const std::string& name);

// Processor time used so far, of all threads.
std::chrono::nanoseconds cpu_time_of(pid_t pid);

// Waits until a process sleeps in recvmsg(), which is where libhufu waits for the broker's answer.
void wait_in_receive(pid_t pid);
// Waits until all of it is stopped.
void wait_stopped(pid_t pid);

// What each open descriptor leads to: "socket:[123]", "/memfd:hufu (deleted)".
std::vector<std::string> descriptors_of(pid_t pid);

// What is in a directory, as far as it could be read: entries of /proc come and go.
std::vector<std::filesystem::path> entries_of(const std::string& directory);

// Its arguments, joined by spaces; empty for a zombie.
std::string command_line_of(pid_t pid);
std::vector<pid_t> all_processes();

// Is `text` in any process's command line or in this file?
bool in_any_command_line(const std::string& text);
bool in_file(const std::string& path, const std::string& text);

}  // namespace hufu::test
