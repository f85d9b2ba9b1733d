#pragma once

// StreamOrder: which streams are known to come after what of others.
//
// A stream that waits for an event does nothing of what it is told from then on before the moment
// at which the event was recorded: the work of the recording stream until there, and all that this
// one was known to come after. Nothing of it is ever taken back: tickets only grow, and a stream
// whose place is given to another one has done all its work.
//
// Thread-safe.

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

#include "runtime/stream.h"

namespace hufu::runtime {

// For each stream, by its place, a ticket: all of its work up to there is meant.
using Moment = std::map<std::size_t, std::uint64_t>;

class StreamOrder {
 public:
  // What the stream has been told so far, and what that comes after.
  Moment moment_of(const Stream& stream) const;

  // What the stream is told from now on comes after the moment.
  void follow(const Stream& stream, const Moment& moment);

  // The ticket up to which the work at `other` precedes what is yet to be told to `stream`.
  std::uint64_t precedes(std::size_t other, std::size_t stream) const;
  // All of them.
  Moment before(std::size_t stream) const;

 private:
  mutable std::mutex mutex_;
  std::unordered_map<std::size_t, Moment> before_;  // By place.
};

}  // namespace hufu::runtime
