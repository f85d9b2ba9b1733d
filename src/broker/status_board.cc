#include "broker/status_board.h"

namespace hufu::broker {

Result<StatusBoard> StatusBoard::make() {
  auto memory = os::PublishedMemory::make("hufu-status", wire::kStatusBytes);
  if (!memory) return memory.error();
  return StatusBoard(std::move(*memory));
}

std::optional<StatusBoard::Place> StatusBoard::take() {
  std::uint32_t slot = 0;
  if (!free_.empty()) {
    slot = free_.back();
    free_.pop_back();
  } else if (unused_ < wire::kStatusWords) {
    slot = unused_++;
  } else {
    return std::nullopt;
  }
  const std::uint64_t live = wire::status_word(++generation_, wire::StatusState::kLive);
  memory_.word(slot).store(live, std::memory_order_release);
  return Place{.slot = slot, .live = live};
}

std::uint64_t StatusBoard::word(std::uint32_t slot) const {
  return memory_.word(slot).load(std::memory_order_acquire);
}

void StatusBoard::end(std::uint32_t slot) {
  constexpr std::uint64_t kStateMask = 0xffff;
  auto& word = memory_.word(slot);
  const std::uint64_t generation = word.load(std::memory_order_relaxed) & ~kStateMask;
  word.store(generation | static_cast<std::uint16_t>(wire::StatusState::kEnded),
             std::memory_order_release);
}

void StatusBoard::give_back(std::uint32_t slot) {
  memory_.word(slot).store(0, std::memory_order_release);
  free_.push_back(slot);
}

}  // namespace hufu::broker
