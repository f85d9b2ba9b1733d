#include "os/socket.h"

#include <fcntl.h>
#include <linux/sockios.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>

#include <cerrno>
#include <cstring>

#include "os/kernel_abi.h"

namespace hufu::os {
namespace {

// The kernel's own limit of descriptors in one message.
constexpr std::size_t kMaxDescriptors = 253;

Result<sockaddr_un> address_of(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.empty() || path.size() > kMaxSocketPath) {
    return fail(
        Errc::kInvalidValue, Reason::kSystem,
        "socket path of {} bytes: a Unix socket path has 1 to {}; use a shorter one: {:.80}",
        path.size(), kMaxSocketPath, path);
  }
  std::memcpy(address.sun_path, path.data(), path.size());
  return address;
}

}  // namespace

Result<UniqueFd> listen_at(const std::string& path, int backlog) {
  const auto address = address_of(path);
  if (!address) return address.error();
  UniqueFd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket) return fail_errno("socket", errno);
  const int on = 1;
  const int off = 0;
  if (::setsockopt(socket.get(), SOL_SOCKET, SO_PASSCRED, &on, sizeof(on)) != 0) {
    return fail_errno("SO_PASSCRED", errno);
  }
  // ENOPROTOOPT before Linux 6.16: then descriptors that arrive are closed by receive().
  (void)::setsockopt(socket.get(), SOL_SOCKET, SO_PASSRIGHTS, &off, sizeof(off));
  const auto* name = reinterpret_cast<const sockaddr*>(&*address);
  // The mode is set on the socket's inode before it has a name, so nobody can connect in between.
  (void)::fchmod(socket.get(), S_IRUSR | S_IWUSR);
  if (::bind(socket.get(), name, sizeof(*address)) != 0) {
    return fail_errno(fmt::format("bind {}", path), errno);
  }
  if (::chmod(path.c_str(), S_IRUSR | S_IWUSR) != 0) return fail_errno("chmod(socket)", errno);
  if (::listen(socket.get(), backlog) != 0) return fail_errno("listen", errno);
  return socket;
}

Result<UniqueFd> accept_from(int listener) {
  UniqueFd socket(::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (socket) return socket;
  if (errno == EAGAIN || errno == ECONNABORTED || errno == EINTR) return UniqueFd();
  return fail_errno("accept", errno);
}

void refuse_connections(int listener) { (void)::shutdown(listener, SHUT_RD); }

Result<UniqueFd> connect_to(const std::string& path) {
  const auto address = address_of(path);
  if (!address) return address.error();
  UniqueFd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket) return fail_errno("socket", errno);
  const auto* name = reinterpret_cast<const sockaddr*>(&*address);
  if (::connect(socket.get(), name, sizeof(*address)) != 0) {
    return fail_errno(fmt::format("connect {}", path), errno);
  }
  return socket;
}

Result<void> bound_waits(int socket, int limit_ms) {
  constexpr int kPerSecond = 1000;
  constexpr int kMicrosecondsPerMs = 1000;
  const timeval limit{.tv_sec = limit_ms / kPerSecond,
                      .tv_usec = limit_ms % kPerSecond * kMicrosecondsPerMs};
  if (::setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit)) != 0) {
    return fail_errno("SO_RCVTIMEO", errno);
  }
  const int flags = ::fcntl(socket, F_GETFL);
  if (flags < 0 || ::fcntl(socket, F_SETFL, flags & ~O_NONBLOCK) != 0) {
    return fail_errno("fcntl(F_SETFL)", errno);
  }
  return {};
}

Result<Packet> receive(int socket, std::span<std::byte> buffer, std::vector<UniqueFd>* fds,
                       Wait wait) {
  iovec data{.iov_base = buffer.data(), .iov_len = buffer.size()};
  alignas(cmsghdr)
      std::array<std::byte, CMSG_SPACE(kMaxDescriptors * sizeof(int)) + CMSG_SPACE(sizeof(ucred))>
          control;
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  ssize_t size = 0;
  const int flags = MSG_CMSG_CLOEXEC | (wait == Wait::kNo ? MSG_DONTWAIT : 0);
  do {
    size = ::recvmsg(socket, &message, flags);
  } while (size < 0 && errno == EINTR && wait == Wait::kNo);
  if (size < 0) return fail_errno("recvmsg", errno);

  Packet packet;
  packet.bytes = buffer.first(static_cast<std::size_t>(size));
  packet.truncated = (message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0;
  for (cmsghdr* part = CMSG_FIRSTHDR(&message); part != nullptr;
       part = CMSG_NXTHDR(&message, part)) {
    if (part->cmsg_level != SOL_SOCKET) continue;
    if (part->cmsg_type == SCM_RIGHTS) {
      const std::size_t count = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
      for (std::size_t i = 0; i < count; ++i) {
        int raw = -1;
        std::memcpy(&raw, CMSG_DATA(part) + i * sizeof(int), sizeof(raw));
        UniqueFd fd(raw);
        if (fds != nullptr) {
          fds->push_back(std::move(fd));
        } else {
          packet.unasked_descriptors = true;
        }
      }
    } else if (part->cmsg_type == SCM_CREDENTIALS) {
      ucred credentials{};
      std::memcpy(&credentials, CMSG_DATA(part), sizeof(credentials));
      packet.has_credentials = true;
      packet.sender = {.pid = credentials.pid, .uid = credentials.uid, .gid = credentials.gid};
    }
  }
  // A packet of no bytes and the end look alike. No message of ours is empty, so both are the end.
  packet.end = size == 0;
  return packet;
}

Result<void> send(int socket, std::span<const std::byte> bytes, std::span<const UniqueFd> fds) {
  // const_cast: sendmsg() does not write, its iovec merely has no const form.
  iovec data{.iov_base = const_cast<std::byte*>(bytes.data()), .iov_len = bytes.size()};
  constexpr std::size_t kMostSent = 64;
  alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(kMostSent * sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  if (!fds.empty()) {
    assert(fds.size() <= kMostSent);
    message.msg_control = control.data();
    message.msg_controllen = CMSG_SPACE(fds.size() * sizeof(int));
    cmsghdr* part = CMSG_FIRSTHDR(&message);
    part->cmsg_level = SOL_SOCKET;
    part->cmsg_type = SCM_RIGHTS;
    part->cmsg_len = CMSG_LEN(fds.size() * sizeof(int));
    for (std::size_t i = 0; i < fds.size(); ++i) {
      const int raw = fds[i].get();
      std::memcpy(CMSG_DATA(part) + i * sizeof(int), &raw, sizeof(raw));
    }
  }
  ssize_t sent = 0;
  do {
    sent = ::sendmsg(socket, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
  } while (sent < 0 && errno == EINTR);
  if (sent < 0) return fail_errno("sendmsg", errno);
  return {};
}

Result<std::size_t> unread_by_peer(int socket) {
  int bytes = 0;
  if (::ioctl(socket, SIOCOUTQ, &bytes) != 0) return fail_errno("SIOCOUTQ", errno);
  return static_cast<std::size_t>(bytes);
}

}  // namespace hufu::os
