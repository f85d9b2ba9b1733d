#pragma once

// A session's status memory: one word for each of its imports, written here, read there.
//
// A word says whether its import is good at this moment. Each use of a word has a generation of its
// own, so a value that a client remembers from an earlier use never matches again.

#include <cstdint>
#include <optional>
#include <vector>

#include "base/result.h"
#include "os/published.h"
#include "wire/message.h"

namespace hufu::broker {

class StatusBoard {
 public:
  static Result<StatusBoard> make();

  Result<UniqueFd> reader() const { return memory_.reader(); }

  struct Place {
    std::uint32_t slot = 0;
    std::uint64_t live = 0;  // What the word says from now on, until end() or give_back().
  };
  // Nothing when every word is taken.
  std::optional<Place> take();
  std::uint64_t word(std::uint32_t slot) const;
  void end(std::uint32_t slot);
  void give_back(std::uint32_t slot);

 private:
  explicit StatusBoard(os::PublishedMemory memory) : memory_(std::move(memory)) {}

  os::PublishedMemory memory_;
  std::vector<std::uint32_t> free_;  // Given back, to be used first.
  std::uint32_t unused_ = 1;         // The lowest word never used; 0 stays empty.
  std::uint64_t generation_ = 0;
};

}  // namespace hufu::broker
