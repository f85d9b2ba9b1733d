#pragma once

// What one peer can make the broker keep: each quota, and how they share the one thing of which the
// broker has a fixed number, file descriptors.
//
//   hard limit of descriptors
//   |  the broker's own  |  one per block          |  sessions: socket, pidfd, status memory, and |
//   |  512               |  half of the rest       |  usage page, the agent's socket and pidfd;  |
//   |                    |  (D4)                   |  list entries too without pidfs             |
//
// Every quota has a Reason of its own (base/reason.h), so that the refusal names the limit.

#include <cstdint>

#include "base/result.h"

namespace hufu::broker {

struct Limits {
  std::uint64_t sessions_per_uid = 512;
  std::uint64_t blocks_per_uid = 32'768;
  std::uint64_t shares_per_uid = 65'536;  // Live, or ended and held: the latter hold the block too.
  std::uint64_t holds_per_uid = 262'144;
  std::uint64_t listed_per_uid = 65'536;
  std::uint64_t exports_per_session = 8'192;
  std::uint64_t silent_per_uid = 64;  // Connections that have not said who they are for.
  std::uint64_t blocks = 32'768;      // Of all users.

  // Each session may have a second connection, for events, and some must be able to knock: who has
  // all the sessions is told so in answer to HELLO, with the request's number.
  std::uint64_t connections_per_uid() const { return 2 * sessions_per_uid + kKnocking; }
  static constexpr std::uint64_t kKnocking = 16;
};

// `wanted` as far as `descriptors`, the hard limit, allow. Fails when they allow nothing useful.
Result<Limits> limits_within(Limits wanted, std::uint64_t descriptors, bool has_pidfs);

}  // namespace hufu::broker
