#pragma once

// PoolSpace: which ranges of a pool are free, and for whom.
//
// A range that was freed in the order of a line of work (a stream) belongs to that line until it is
// known that the work is over: the line itself may have it again at once, others may not. So a free
// span has a line and a stamp, the ticket up to which the line may still use the bytes; anybody's
// has line 0. Neighbours of one line are one span, with the later stamp.
//
//   | in use | free, line 3, up to 17 | in use | in use | free, anybody's ...        |
//
// Taking is best fit: the smallest span that is large enough, its first part. Spans of less than
// kExact granules lie in one list for each size, and a bit per list leads to the next size that
// there is; larger ones lie in a tree. Merging looks at the granules on either side: a free span
// says at its first and its last granule what it is. The books lie beside the memory, never in it.
//
// Counted in granules. What is in use is not known here: see memory/span_books.h. For one at a
// time.

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "base/result.h"
#include "os/lazy_table.h"

namespace hufu::memory {

// A line of work, by number; 0 is nobody's.
using Line = std::uint16_t;
inline constexpr Line kAnybody = 0;

class PoolSpace {
 public:
  // All free, for anybody.
  static Result<PoolSpace> make(std::uint64_t granules);

  struct Span {
    std::uint64_t start = 0;
    std::uint64_t count = 0;
    bool operator==(const Span&) const = default;
  };

  // The smallest free span of this line with at least `count` granules.
  std::optional<Span> closest(Line line, std::uint64_t count) const;
  // The same among those whose stamp is at most `stamp`.
  std::optional<Span> closest_up_to(Line line, std::uint64_t count, std::uint64_t stamp) const;
  // One that has the least stamp instead.
  std::optional<Span> earliest(Line line, std::uint64_t count) const;

  // Of the free span that starts there.
  Line line_of(std::uint64_t start) const { return records()[start].line; }
  std::uint64_t stamp_of(std::uint64_t start) const { return records()[start].stamp; }

  // Takes the first `count` granules of a free span.
  void take(const Span& span, std::uint64_t count);

  // Frees what was taken, of which nothing is free.
  void give(const Span& span, Line line, std::uint64_t stamp);

  // Spans of the line with a stamp up to this one become anybody's; told of each before it merges.
  template <class Told>
  void release(Line line, std::uint64_t stamp, const Told& told) {
    for (const Span& span : spans_up_to(line, stamp)) {
      told(span);
      remove(span);
      give(span, kAnybody, 0);
    }
  }

  // The lines that have free spans, anybody's left out.
  std::vector<Line> lines() const;
  bool has(Line line) const {
    return line < bins_.size() && bins_[line] && bins_[line]->spans != 0;
  }

  // All free spans of a line, in no order.
  std::vector<Span> spans(Line line) const { return spans_up_to(line, ~std::uint64_t{0}); }

 private:
  static constexpr std::uint32_t kExact = 1024;

  enum class Mark : std::uint8_t { kNone, kStart, kEnd };  // A span of one has a start only.
  // At the first granule of a free span; of the last, `count` and `mark`.
  struct Record {
    std::uint32_t count;
    Line line;
    Mark mark;
    std::uint32_t before;  // In the list of its size: the start + 1, 0 for none.
    std::uint32_t behind;
    std::uint64_t stamp;
  };
  using Large = std::set<std::pair<std::uint32_t, std::uint32_t>>;  // Count, start.
  struct Bins {
    std::array<std::uint32_t, kExact> first{};  // As Record::behind.
    std::array<std::uint64_t, kExact / 64> filled{};
    Large large;
    Large::node_type spare;  // Of a tree node that was taken out: to be put in again.
    std::uint64_t spans = 0;
  };

  PoolSpace(std::uint64_t granules, os::LazyTable table)
      : granules_(granules), table_(std::move(table)) {}

  Record* records() const { return reinterpret_cast<Record*>(table_.data()); }
  Bins& bins_of(Line line);
  void insert(const Span& span, Line line, std::uint64_t stamp);
  void remove(const Span& span);
  // The next size of less than kExact, from this one on, that the line has; kExact for none.
  static std::uint32_t next_size(const Bins& bins, std::uint64_t count);
  template <class Look>
  void look_at(const Bins& bins, std::uint64_t count, const Look& look) const;
  std::vector<Span> spans_up_to(Line line, std::uint64_t stamp) const;

  std::uint64_t granules_;
  os::LazyTable table_;
  std::vector<std::unique_ptr<Bins>> bins_;  // By line.
};

}  // namespace hufu::memory
