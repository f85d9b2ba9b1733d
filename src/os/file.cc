#include "os/file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

namespace hufu::os {

std::string read_small_file(const std::string& path) {
  constexpr std::size_t kMost = 4096;
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd) return {};
  std::string text(kMost, '\0');
  const ssize_t size = ::read(fd.get(), text.data(), text.size());
  text.resize(size > 0 ? static_cast<std::size_t>(size) : 0);
  return text;
}

Result<void> ensure_private_directory(const std::string& path) {
  if (::mkdir(path.c_str(), S_IRWXU) != 0 && errno != EEXIST) {
    return fail_errno(fmt::format("mkdir {}", path), errno);
  }
  struct stat status {};
  if (::lstat(path.c_str(), &status) != 0) return fail_errno(fmt::format("stat {}", path), errno);
  const auto wrong = [&](const char* what) {
    return fail(Errc::kUnavailable, Reason::kBrokerUntrusted,
                "{} {} (owner uid {}, mode {:o}); it must be a directory of uid {} with mode 700: "
                "remove or rename it, or point HUFU_BROKER somewhere else",
                path, what, status.st_uid, status.st_mode & 07777U, ::geteuid());
  };
  if (!S_ISDIR(status.st_mode)) return wrong("is not a directory");
  if (status.st_uid != ::geteuid() && status.st_uid != 0) return wrong("belongs to another user");
  if ((status.st_mode & (S_IWGRP | S_IWOTH)) != 0) return wrong("can be written by others");
  return {};
}

Result<UniqueFd> lock_file(const std::string& path, bool wait) {
  UniqueFd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, S_IRUSR | S_IWUSR));
  if (!fd) return fail_errno(fmt::format("open {}", path), errno);
  int locked = 0;
  do {
    locked = ::flock(fd.get(), wait ? LOCK_EX : LOCK_EX | LOCK_NB);
  } while (locked != 0 && errno == EINTR);
  if (locked != 0) return fail_errno(fmt::format("lock {}", path), errno);
  return fd;
}

void remove_socket(const std::string& path) {
  struct stat status {};
  if (::lstat(path.c_str(), &status) == 0 && S_ISSOCK(status.st_mode)) ::unlink(path.c_str());
}

std::uint64_t inode_of(const std::string& path) {
  struct stat status {};
  return ::lstat(path.c_str(), &status) == 0 ? status.st_ino : 0;
}

std::string env(const char* name) {
  const char* value = ::secure_getenv(name);
  return value == nullptr ? std::string() : std::string(value);
}

}  // namespace hufu::os
