#pragma once

// SOCK_SEQPACKET over Unix sockets: packets keep their borders, descriptors and the sender's
// credentials travel beside them.
//
// Receiving is where a hostile peer acts, so it has one form only: at most one packet, no
// descriptor accepted unless asked for, everything truncated is a fault, and whatever came
// unasked is closed.

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"

namespace hufu::os {

inline constexpr std::size_t kMaxSocketPath = 107;  // sun_path without its NUL.

// Binds and listens; the file is 0600 and must not exist. SO_PASSCRED is on, SO_PASSRIGHTS off
// where the kernel can (then no peer can send a descriptor at all); both are inherited by accept().
Result<UniqueFd> listen_at(const std::string& path, int backlog);

// Non-blocking accept: an invalid fd means nobody is waiting.
Result<UniqueFd> accept_from(int listener);

// From now on connect() fails as if nobody listened; who connected before can still be accepted.
void refuse_connections(int listener);

// Result<> fails with sys_errno ENOENT or ECONNREFUSED when nobody listens.
Result<UniqueFd> connect_to(const std::string& path);

struct Credentials {
  std::int32_t pid = 0;  // 0: outside our pid namespace.
  std::uint32_t uid = 0;
  std::uint32_t gid = 0;
};

struct Packet {
  std::span<std::byte> bytes;    // Inside the buffer given to receive().
  bool has_credentials = false;  // Only on sockets with SO_PASSCRED.
  Credentials sender;
  bool truncated = false;  // Data or control data did not fit: hang up.
  bool unasked_descriptors = false;
  bool end = false;  // The peer has hung up.
};

enum class Wait : bool { kNo, kBounded };

// How long receive() with Wait::kBounded may take, in milliseconds; 0: for ever.
Result<void> bound_waits(int socket, int limit_ms);

// One packet. Fails with sys_errno EAGAIN when there is none, or none came in time; a bounded wait
// also with EINTR. It is the socket itself that is waited on, whatever becomes of its number
// meanwhile. Descriptors are appended to *fds, which may be null: then any that arrive are closed
// and reported.
Result<Packet> receive(int socket, std::span<std::byte> buffer, std::vector<UniqueFd>* fds,
                       Wait wait = Wait::kNo);

// Sends one packet whole, without blocking and without SIGPIPE. EAGAIN and friends in sys_errno.
Result<void> send(int socket, std::span<const std::byte> bytes, std::span<const UniqueFd> fds);

// Bytes sent that the peer has not received yet.
Result<std::size_t> unread_by_peer(int socket);

}  // namespace hufu::os
