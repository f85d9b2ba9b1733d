#include "os/process.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <string_view>

#include "os/file.h"
#include "os/kernel_abi.h"

namespace hufu::os {
namespace {

std::uint64_t number_in(std::string_view text) {
  std::uint64_t value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

// Field 22 of /proc/PID/stat. The name before it may contain anything, even ") ", so the fields are
// counted from the last parenthesis.
std::uint64_t start_time_in(std::string_view stat) {
  const auto name_end = stat.rfind(')');
  if (name_end == std::string_view::npos) return 0;
  std::string_view rest = stat.substr(name_end + 1);
  constexpr int kFieldsBefore = 20;
  for (int i = 0; i < kFieldsBefore; ++i) {
    const auto space = rest.find(' ');
    if (space == std::string_view::npos) return 0;
    rest.remove_prefix(space + 1);
  }
  return number_in(rest);
}

UniqueFd peer_pidfd(int socket, std::int32_t pid) {
  int raw = -1;
  socklen_t size = sizeof(raw);
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERPIDFD, &raw, &size) == 0) return UniqueFd(raw);
  auto opened = open_pidfd(pid);
  return opened ? std::move(*opened) : UniqueFd();
}

std::vector<std::uint32_t> peer_groups(int socket) {
  constexpr std::size_t kFirstTry = 64;
  std::vector<gid_t> groups(kFirstTry);
  auto size = static_cast<socklen_t>(groups.size() * sizeof(gid_t));
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERGROUPS, groups.data(), &size) != 0) {
    if (errno != ERANGE) return {};
    groups.resize(size / sizeof(gid_t));
    if (::getsockopt(socket, SOL_SOCKET, SO_PEERGROUPS, groups.data(), &size) != 0) return {};
  }
  groups.resize(size / sizeof(gid_t));
  return {groups.begin(), groups.end()};
}

std::uint32_t overflow_id(const char* path) {
  constexpr std::uint32_t kUsual = 65534;
  const std::string text = read_small_file(path);
  return text.empty() ? kUsual : static_cast<std::uint32_t>(number_in(text));
}

}  // namespace

Result<UniqueFd> open_pidfd(std::int32_t pid) {
  UniqueFd fd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  if (!fd) return fail_errno(fmt::format("pidfd_open({})", pid), errno);
  return fd;
}

bool has_ended(int pidfd) {
  pollfd poller{.fd = pidfd, .events = POLLIN, .revents = 0};
  return ::poll(&poller, 1, 0) == 1;
}

std::uint64_t pidfs_inode_of(int pidfd) {
  struct statfs filesystem {};
  struct stat status {};
  if (::fstatfs(pidfd, &filesystem) != 0 || filesystem.f_type != PIDFS_MAGIC) return 0;
  return ::fstat(pidfd, &status) == 0 ? status.st_ino : 0;
}

bool has_pidfs() {
  const auto self = open_pidfd(::getpid());
  return self && pidfs_inode_of(self->get()) != 0;
}

std::uint64_t start_time_of(std::int32_t pid) {
  return start_time_in(read_small_file(fmt::format("/proc/{}/stat", pid)));
}

Result<PeerIdentity> identify_peer(int socket) {
  ucred credentials{};
  socklen_t size = sizeof(credentials);
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &credentials, &size) != 0) {
    return fail_errno("SO_PEERCRED", errno);
  }
  PeerIdentity peer;
  peer.connected = {.pid = credentials.pid, .uid = credentials.uid, .gid = credentials.gid};
  peer.pidfd = peer_pidfd(socket, credentials.pid);
  if (!peer.pidfd) return fail_errno(fmt::format("pidfd of peer {}", credentials.pid), errno);
  peer.pidfs_inode = pidfs_inode_of(peer.pidfd.get());
  peer.groups = peer_groups(socket);

  if (credentials.pid > 0) {
    const std::string base = fmt::format("/proc/{}/", credentials.pid);
    peer.start_time = start_time_of(credentials.pid);
    std::string name = read_small_file(base + "comm");
    if (!name.empty() && name.back() == '\n') name.pop_back();
    std::copy_n(name.begin(), std::min(name.size(), peer.name.size() - 1), peer.name.begin());
    struct stat exe {};
    if (::stat((base + "exe").c_str(), &exe) == 0) {
      peer.exe_device = exe.st_dev;
      peer.exe_inode = exe.st_ino;
    }
  }
  return peer;
}

std::uint32_t overflow_uid() {
  static const std::uint32_t id = overflow_id("/proc/sys/kernel/overflowuid");
  return id;
}

std::uint32_t overflow_gid() {
  static const std::uint32_t id = overflow_id("/proc/sys/kernel/overflowgid");
  return id;
}

std::uint64_t raise_descriptor_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return 0;
  limit.rlim_cur = limit.rlim_max;
  (void)::setrlimit(RLIMIT_NOFILE, &limit);
  (void)::getrlimit(RLIMIT_NOFILE, &limit);
  return limit.rlim_cur;
}

}  // namespace hufu::os
