#include "runtime/stream_order.h"

#include <algorithm>

namespace hufu::runtime {

Moment StreamOrder::moment_of(const Stream& stream) const {
  Moment moment = before(stream.index);
  moment[stream.index] = stream.issued.load();
  return moment;
}

void StreamOrder::follow(const Stream& stream, const Moment& moment) {
  const std::lock_guard lock(mutex_);
  Moment& before = before_[stream.index];
  for (const auto& [other, ticket] : moment) {
    if (other == stream.index) continue;
    std::uint64_t& known = before[other];
    known = std::max(known, ticket);
  }
}

// NOLINTNEXTLINE(bugprone-easily-swappable-parameters): as it reads, other precedes stream.
std::uint64_t StreamOrder::precedes(std::size_t other, std::size_t stream) const {
  const std::lock_guard lock(mutex_);
  const auto of_stream = before_.find(stream);
  if (of_stream == before_.end()) return 0;
  const auto of_other = of_stream->second.find(other);
  return of_other == of_stream->second.end() ? 0 : of_other->second;
}

Moment StreamOrder::before(std::size_t stream) const {
  const std::lock_guard lock(mutex_);
  const auto found = before_.find(stream);
  return found == before_.end() ? Moment() : found->second;
}

}  // namespace hufu::runtime
