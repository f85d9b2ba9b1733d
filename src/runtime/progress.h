#pragma once

// Progress: a line of work, as those see it who wait for it.
//
// Work takes a ticket when it is issued, and is over in the order of the tickets. So one number
// says what was issued so far (`issued`, the tail), one says how far it has got (`done`), and
// whoever remembers the tail knows when everything that he could have meant is over. A ticket is
// taken BEFORE the addresses of the work are looked up: then whoever takes an address out of the
// registry and looks at the tail afterwards either sees the ticket, or the work does not see the
// address.
//
// A Progress is never freed while the process lives, only given to another line of work, and its
// numbers only grow: a stamp stays meaningful for ever.

#include <atomic>
#include <cstdint>

namespace hufu::runtime {

struct Progress {
  static constexpr std::uint64_t kNobody = ~std::uint64_t{0};

  std::atomic<std::uint64_t> issued{0};
  std::atomic<std::uint64_t> done{0};
  // The least `done` that somebody waits for: see Deferred.
  std::atomic<std::uint64_t> awaited{kNobody};

  bool idle() const { return done.load() == issued.load(); }
};

// All that a line of work had been told to do when somebody looked.
struct Stamp {
  Progress* line;
  std::uint64_t ticket;  // It is over when `done` has reached this.
};

}  // namespace hufu::runtime
