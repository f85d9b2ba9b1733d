#include "broker/limits.h"

#include <algorithm>

namespace hufu::broker {
namespace {

constexpr std::uint64_t kOwn = 512;
constexpr std::uint64_t kPerSession = 6;  // Two sockets, two pidfds, status memory, usage page.

}  // namespace

Result<Limits> limits_within(Limits wanted, std::uint64_t descriptors, bool has_pidfs) {
  if (descriptors < 2 * kOwn) {
    return fail(Errc::kOutOfMemory, Reason::kDescriptors,
                "the hard limit of file descriptors is {}; the broker needs at least {}: raise it "
                "with `ulimit -Hn` or LimitNOFILE=",
                descriptors, 2 * kOwn);
  }
  Limits limits = wanted;
  const std::uint64_t half = (descriptors - kOwn) / 2;
  limits.blocks = half;
  limits.blocks_per_uid = std::min(wanted.blocks_per_uid, half);
  // A list entry costs a descriptor only where a pidfd's inode does not identify its process.
  const std::uint64_t for_lists = has_pidfs ? 0 : half / 2;
  if (!has_pidfs) limits.listed_per_uid = std::min(wanted.listed_per_uid, for_lists);
  const std::uint64_t for_sessions = (half - for_lists) / kPerSession;
  limits.sessions_per_uid = std::min(wanted.sessions_per_uid, for_sessions);
  return limits;
}

}  // namespace hufu::broker
