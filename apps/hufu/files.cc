#include "hufu/files.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>

#include "hufu/output.h"

namespace hufu::cli {
namespace {

void write_all(int fd, const std::string& path, std::span<const std::byte> bytes) {
  const std::size_t size = bytes.size();
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) {
      fail_system(fmt::format("writing {} (after {} of {} bytes)", path, size - bytes.size(), size),
                  errno);
    }
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
}

// Removes a file on the way out, unless it became what it was made for.
class Temporary {
 public:
  explicit Temporary(std::string path) : path_(std::move(path)) {
    fd_.reset(::mkostemp(path_.data(), O_CLOEXEC));  // Mode 0600.
    if (!fd_) fail_system(fmt::format("making {}", path_), errno);
  }
  ~Temporary() {
    if (!path_.empty()) ::unlink(path_.c_str());
  }
  Temporary(const Temporary&) = delete;
  Temporary& operator=(const Temporary&) = delete;

  int fd() const { return fd_.get(); }
  void become(const std::string& path) {
    if (::rename(path_.c_str(), path.c_str()) != 0) {
      fail_system(fmt::format("renaming {} to {}", path_, path), errno);
    }
    path_.clear();
  }

 private:
  std::string path_;
  UniqueFd fd_;
};

}  // namespace

Source Source::open(const std::string& path) {
  Source source;
  source.name_ = path == "-" ? "stdin" : path;
  source.fd_ = STDIN_FILENO;
  if (path != "-") {
    source.owned_.reset(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY));
    if (!source.owned_) fail_system(path, errno);
    source.fd_ = source.owned_.get();
  }
  struct stat status {};
  if (::fstat(source.fd_, &status) != 0) fail_system(source.name_, errno);
  if (S_ISDIR(status.st_mode)) {
    throw Failure{EISDIR, source.name_ + " is a directory, not a file"};
  }
  if (S_ISREG(status.st_mode)) {
    const off_t at = ::lseek(source.fd_, 0, SEEK_CUR);
    if (at < 0) fail_system(source.name_, errno);
    source.size_ = static_cast<std::uint64_t>(std::max<off_t>(status.st_size - at, 0));
  } else if (!S_ISFIFO(status.st_mode) && !S_ISSOCK(status.st_mode)) {
    throw Failure{EINVAL, source.name_ + " is neither a file nor a pipe"};
  }
  return source;
}

std::size_t Source::read(std::span<std::byte> buffer, int stop) const {
  for (;;) {
    std::array<pollfd, 2> waited = {pollfd{.fd = stop, .events = POLLIN},
                                    pollfd{.fd = fd_, .events = POLLIN}};
    if (::poll(waited.data(), waited.size(), -1) < 0) {
      if (errno == EINTR) continue;
      fail_system("poll", errno);
    }
    if (waited[0].revents != 0) {
      throw Failure{EINTR, "interrupted while reading " + name_ + "; nothing was shared"};
    }
    const ssize_t size = ::read(fd_, buffer.data(), buffer.size());
    if (size >= 0) return static_cast<std::size_t>(size);
    if (errno != EINTR && errno != EAGAIN) fail_system("reading " + name_, errno);
  }
}

void write_secret(const std::string& path, std::string_view text) {
  struct stat status {};
  if (::lstat(path.c_str(), &status) == 0) {
    if (!S_ISREG(status.st_mode) || status.st_uid != ::geteuid()) {
      throw Failure{EEXIST, fmt::format("{} is there and is not a file of yours (mode {:o}, owner "
                                        "uid {}); a key is not written to it",
                                        path, status.st_mode, status.st_uid)};
    }
  } else if (errno != ENOENT) {
    fail_system(path, errno);
  }
  // A new inode: whoever has the old file open does not get to see the new key.
  Temporary file(path + ".XXXXXX");
  write_all(file.fd(), path, std::as_bytes(std::span(text)));
  file.become(path);
}

void write_bytes(const std::string& path, std::span<const std::byte> bytes) {
  if (path == "-") {
    write_all(STDOUT_FILENO, "stdout", bytes);
    return;
  }
  UniqueFd file(
      ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOCTTY, S_IRUSR | S_IWUSR));
  if (!file) fail_system(path, errno);
  write_all(file.get(), path, bytes);
  // Some file systems say only here that the disk was full.
  if (::close(file.release()) != 0) fail_system("writing " + path, errno);
}

std::string read_key_file(const std::string& path) {
  constexpr std::size_t kMost = 4096;
  const Source source = Source::open(path);
  std::string text(kMost + 1, '\0');
  std::size_t used = 0;
  while (used < text.size()) {
    // Nothing is held yet, so an interrupt may simply end us: there is no descriptor to wait for.
    const std::size_t size = source.read(std::as_writable_bytes(std::span(text)).subspan(used), -1);
    if (size == 0) break;
    used += size;
  }
  if (used > kMost) {
    throw Failure{
        EFBIG, fmt::format("{} is no key file: it is larger than {} bytes", source.name(), kMost)};
  }
  text.resize(used);
  return text;
}

}  // namespace hufu::cli
