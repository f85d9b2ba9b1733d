#include "audit/segment_file.h"

#include <fcntl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <ctime>
#include <filesystem>
#include <string_view>
#include <system_error>

#include "base/units.h"
#include "os/file.h"

namespace hufu::audit {
namespace {

constexpr const char* kLockName = "lock";
constexpr const char* kKeyName = "key0";
constexpr const char* kNewKeyName = "key0.new";
constexpr const char* kSpareName = "spare";
constexpr std::string_view kSegmentEnding = ".hfa";
constexpr std::size_t kSegmentDigits = 12;
constexpr std::uint64_t kNanoseconds = 1'000'000'000;

Error audit_errno(const std::string& what, int sys_errno) {
  Error error = fail_errno(what, sys_errno);
  error.reason = Reason::kAuditFailed;
  return error;
}

Result<UniqueFd> open_in(const Directory& directory, const std::string& name, int flags,
                         mode_t mode = 0) {
  UniqueFd fd(::openat(directory.fd.get(), name.c_str(), flags | O_CLOEXEC | O_NOFOLLOW, mode));
  if (!fd) {
    return audit_errno(fmt::format("audit log {}: cannot open {}", directory.path, name), errno);
  }
  return fd;
}

struct flock whole_file(short type) {
  return {.l_type = type, .l_whence = SEEK_SET, .l_start = 0, .l_len = 0, .l_pid = 0};
}

std::optional<std::uint64_t> segment_number(std::string_view name) {
  if (name.size() != kSegmentDigits + kSegmentEnding.size() || !name.ends_with(kSegmentEnding)) {
    return std::nullopt;
  }
  const std::string_view digits = name.substr(0, kSegmentDigits);
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(digits.begin(), digits.end(), number);
  if (error != std::errc{} || end != digits.end()) return std::nullopt;
  return number;
}

std::uint64_t nanoseconds(clockid_t clock) {
  timespec time{};
  ::clock_gettime(clock, &time);
  return static_cast<std::uint64_t>(time.tv_sec) * kNanoseconds +
         static_cast<std::uint64_t>(time.tv_nsec);
}

}  // namespace

Result<Directory> open_directory(const std::string& path) {
  Directory directory{.path = path,
                      .fd = UniqueFd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC))};
  if (!directory.fd) return audit_errno(fmt::format("cannot open audit log {}", path), errno);
  return directory;
}

Result<Directory> open_or_make_directory(const std::string& path) {
  for (std::size_t slash = path.find('/', 1);; slash = path.find('/', slash + 1)) {
    const std::string above = path.substr(0, slash);
    if (::mkdir(above.c_str(), 0700) != 0 && errno != EEXIST) {
      // A read-only or foreign directory above is fine if what lies below it exists.
      const int sys_errno = errno;
      if (::access(above.c_str(), F_OK) != 0) {
        return audit_errno(fmt::format("cannot make audit log directory {}", above), sys_errno);
      }
    }
    if (slash == std::string::npos) break;
  }
  auto directory = open_directory(path);
  if (!directory) return directory.error();
  struct stat status {};
  if (::fstat(directory->fd.get(), &status) != 0) {
    return audit_errno(fmt::format("cannot stat audit log {}", path), errno);
  }
  if (status.st_uid != ::geteuid() || (status.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
    return fail(Errc::kUnavailable, Reason::kAuditFailed,
                "audit log directory {} belongs to uid {} with mode {:04o}; it must belong to uid "
                "{} and be writable by nobody else: chmod 0700, or choose another directory",
                path, status.st_uid, status.st_mode & 07777U, ::geteuid());
  }
  return directory;
}

Result<UniqueFd> lock_for_writing(const Directory& directory) {
  auto fd = open_in(directory, kLockName, O_RDWR | O_CREAT, 0600);
  if (!fd) return fd.error();
  struct flock lock = whole_file(F_WRLCK);
  // An open file description lock, not a process lock: a process lock is lost when any descriptor
  // of the file is closed, such as a reader's in the same process; and unlike flock() it can be
  // asked about without being taken (is_being_written).
  if (::fcntl(fd->get(), F_OFD_SETLK, &lock) != 0) {
    if (errno != EAGAIN && errno != EACCES) {
      return audit_errno(fmt::format("audit log {}: cannot lock it", directory.path), errno);
    }
    std::array<char, 24> holder{};
    const ssize_t got = ::pread(fd->get(), holder.data(), holder.size() - 1, 0);
    return fail(Errc::kUnavailable, Reason::kAuditFailed,
                "audit log {} is being written by process {}; only one process may write it: stop "
                "that one, or set HUFU_AUDIT_DIR to another directory",
                directory.path, got > 0 ? holder.data() : "(unknown)");
  }
  const std::string pid = std::to_string(::getpid());
  if (::ftruncate(fd->get(), 0) != 0) {
    return audit_errno(fmt::format("audit log {}: cannot write the lock file", directory.path),
                       errno);
  }
  auto written = write_at(fd->get(), 0, std::as_bytes(std::span(pid)));
  if (!written) return written.error();
  return fd;
}

bool is_being_written(const Directory& directory) {
  const auto fd = open_in(directory, kLockName, O_RDONLY);
  if (!fd) return false;
  struct flock lock = whole_file(F_RDLCK);
  return ::fcntl(fd->get(), F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

Result<std::vector<std::uint64_t>> list_segments(const Directory& directory) {
  std::vector<std::uint64_t> numbers;
  std::error_code error;
  for (std::filesystem::directory_iterator entry(directory.path, error), end;
       !error && entry != end; entry.increment(error)) {
    if (const auto number = segment_number(entry->path().filename().native())) {
      numbers.push_back(*number);
    }
  }
  if (error) {
    return audit_errno(fmt::format("audit log {}: cannot list it", directory.path), error.value());
  }
  std::ranges::sort(numbers);
  return numbers;
}

std::string segment_name(std::uint64_t number) {
  return fmt::format("{:0{}}{}", number, kSegmentDigits, kSegmentEnding);
}

Result<ChainKey> read_key(const Directory& directory) {
  auto fd = open_in(directory, kKeyName, O_RDONLY);
  if (!fd) return fd.error();
  std::array<std::byte, sizeof(ChainKey) + 1> bytes{};
  const auto got = read_at(fd->get(), 0, bytes);
  if (!got) return got.error();
  if (*got != sizeof(ChainKey)) {
    return fail(
        Errc::kUnavailable, Reason::kAuditFailed,
        "audit log {}: key0 has {} bytes or more, not {}; restore it, or move the directory "
        "away and a new log begins",
        directory.path, *got, sizeof(ChainKey));
  }
  ChainKey key{};
  std::copy_n(bytes.begin(), key.size(), key.begin());
  return key;
}

Result<ChainKey> make_key(const Directory& directory) {
  ChainKey key{};
  if (::getrandom(key.data(), key.size(), 0) != static_cast<ssize_t>(key.size())) {
    return audit_errno("cannot make an audit key", errno);
  }
  auto fd = open_in(directory, kNewKeyName, O_WRONLY | O_CREAT | O_TRUNC, 0600);
  if (!fd) return fd.error();
  if (auto done = write_at(fd->get(), 0, key); !done) return done.error();
  if (auto done = flush(fd->get()); !done) return done.error();
  if (::renameat(directory.fd.get(), kNewKeyName, directory.fd.get(), kKeyName) != 0) {
    return audit_errno(fmt::format("audit log {}: cannot name key0", directory.path), errno);
  }
  if (auto done = flush(directory.fd.get()); !done) return done.error();
  return key;
}

Result<UniqueFd> make_spare(const Directory& directory, std::uint32_t bytes) {
  auto fd = open_in(directory, kSpareName, O_RDWR | O_CREAT | O_TRUNC, 0640);
  if (!fd) return fd.error();
  const auto give_up = [&](int sys_errno) -> Result<UniqueFd> {
    ::unlinkat(directory.fd.get(), kSpareName, 0);
    return audit_errno(fmt::format("audit log {}: cannot make the next segment of {} bytes; what "
                                   "cannot be recorded is not granted: free some space there",
                                   directory.path, bytes),
                       sys_errno);
  };
  // Mode 0640 whatever the umask: a group of auditors may read it, nobody else.
  if (::fchmod(fd->get(), 0640) != 0) return give_up(errno);
  // Asking for the blocks first makes a full disk an answer at once, not after most of the zeros.
  // File systems without fallocate get the zeros alone.
  if (::fallocate(fd->get(), 0, 0, bytes) != 0 && errno != EOPNOTSUPP && errno != ENOSYS) {
    return give_up(errno);
  }
  static constexpr std::array<std::byte, 64 * kKiB> kZeros{};
  for (std::uint32_t done = 0; done < bytes;) {
    const auto part = std::span(kZeros).first(std::min<std::size_t>(kZeros.size(), bytes - done));
    if (const auto written = write_at(fd->get(), done, part); !written) {
      return give_up(written.error().sys_errno);
    }
    done += static_cast<std::uint32_t>(part.size());
  }
  return fd;
}

Result<void> rename_spare(const Directory& directory, std::uint64_t number) {
  // Never over a segment that exists: a log only ever grows at its end.
  const std::string name = segment_name(number);
  const int at = directory.fd.get();
  int done = ::renameat2(at, kSpareName, at, name.c_str(), RENAME_NOREPLACE);
  // Some network file systems know no flags; there the lock alone keeps the name free.
  if (done != 0 && errno == EINVAL) done = ::renameat(at, kSpareName, at, name.c_str());
  if (done != 0) {
    return audit_errno(fmt::format("audit log {}: cannot name segment {}", directory.path, number),
                       errno);
  }
  return {};
}

Result<void> delete_segment(const Directory& directory, std::uint64_t number) {
  if (::unlinkat(directory.fd.get(), segment_name(number).c_str(), 0) != 0 && errno != ENOENT) {
    return audit_errno(
        fmt::format("audit log {}: cannot delete old segment {}", directory.path, number), errno);
  }
  return {};
}

Result<UniqueFd> open_segment(const Directory& directory, std::uint64_t number, bool writable) {
  return open_in(directory, segment_name(number), writable ? O_RDWR : O_RDONLY);
}

Result<std::size_t> read_at(int fd, std::uint64_t offset, std::span<std::byte> buffer) {
  std::size_t done = 0;
  while (done < buffer.size()) {
    const ssize_t got =
        ::pread(fd, buffer.data() + done, buffer.size() - done, static_cast<off_t>(offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return audit_errno("cannot read the audit log", errno);
    if (got == 0) break;
    done += static_cast<std::size_t>(got);
  }
  return done;
}

Result<std::vector<std::byte>> read_segment(const Directory& directory, std::uint64_t number) {
  auto fd = open_segment(directory, number, false);
  if (!fd) return fd.error();
  struct stat status {};
  if (::fstat(fd->get(), &status) != 0) {
    return audit_errno(fmt::format("audit log {}: cannot stat segment {}", directory.path, number),
                       errno);
  }
  std::vector<std::byte> bytes(static_cast<std::size_t>(status.st_size));
  const auto got = read_at(fd->get(), 0, bytes);
  if (!got) return got.error();
  bytes.resize(*got);
  return bytes;
}

Result<void> write_at(int fd, std::uint64_t offset, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t wrote = ::pwrite(fd, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0) return audit_errno("cannot write the audit log", errno);
    offset += static_cast<std::uint64_t>(wrote);
    bytes = bytes.subspan(static_cast<std::size_t>(wrote));
  }
  return {};
}

Error failed_store(const Directory& directory, std::uint64_t number, int sys_errno) {
  return audit_errno(
      fmt::format("audit log {}: cannot write to segment {}: it was cut short, or its disk failed",
                  directory.path, number),
      sys_errno);
}

Result<void> flush(int fd) {
  // Not retried, also not on EINTR: after a failed flush the kernel may have dropped what it could
  // not write, and a second call would report a success that never was.
  if (::fdatasync(fd) != 0) return audit_errno("cannot flush the audit log to its disk", errno);
  return {};
}

Times now() {
  return {.realtime_ns = nanoseconds(CLOCK_REALTIME), .boottime_ns = nanoseconds(CLOCK_BOOTTIME)};
}

Id128 boot_id() {
  Id128 id{};
  // Five groups of hexadecimal digits with dashes between them.
  std::string digits = os::read_small_file("/proc/sys/kernel/random/boot_id");
  std::erase(digits, '-');
  if (digits.size() < 2 * id.size()) return id;
  const char* digit = digits.data();
  for (auto& byte : id) {
    std::uint8_t value = 0;
    std::from_chars(digit, digit + 2, value, 16);
    byte = static_cast<std::byte>(value);
    digit += 2;
  }
  return id;
}

}  // namespace hufu::audit
