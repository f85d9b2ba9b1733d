#include "memory/pool_space.h"

#include <algorithm>
#include <bit>
#include <cassert>

namespace hufu::memory {

Result<PoolSpace> PoolSpace::make(std::uint64_t granules) {
  auto table = os::LazyTable::make(granules * sizeof(Record));
  if (!table) return table.error();
  PoolSpace space(granules, std::move(*table));
  space.insert({.start = 0, .count = granules}, kAnybody, 0);
  return space;
}

PoolSpace::Bins& PoolSpace::bins_of(Line line) {
  if (line >= bins_.size()) bins_.resize(std::size_t{line} + 1);
  auto& bins = bins_[line];
  if (!bins) bins = std::make_unique<Bins>();
  return *bins;
}

void PoolSpace::insert(const Span& span, Line line, std::uint64_t stamp) {
  const auto start = static_cast<std::uint32_t>(span.start);
  const auto count = static_cast<std::uint32_t>(span.count);
  Bins& bins = bins_of(line);
  ++bins.spans;
  Record& first = records()[start];
  first = {.count = count, .line = line, .mark = Mark::kStart, .stamp = stamp};
  if (count > 1) {
    Record& last = records()[start + count - 1];
    last.count = count;
    last.mark = Mark::kEnd;
  }
  if (count >= kExact) {
    if (bins.spare.empty()) {
      bins.large.emplace(count, start);
    } else {
      bins.spare.value() = {count, start};
      bins.large.insert(std::move(bins.spare));
    }
    return;
  }
  std::uint32_t& head = bins.first[count];
  first.behind = head;
  if (head != 0) records()[head - 1].before = start + 1;
  head = start + 1;
  bins.filled[count / 64] |= std::uint64_t{1} << count % 64;
}

void PoolSpace::remove(const Span& span) {
  const auto start = static_cast<std::uint32_t>(span.start);
  const auto count = static_cast<std::uint32_t>(span.count);
  Record& first = records()[start];
  Bins& bins = *bins_[first.line];
  --bins.spans;
  first.mark = Mark::kNone;
  records()[start + count - 1].mark = Mark::kNone;
  if (count >= kExact) {
    bins.spare = bins.large.extract({count, start});
    return;
  }
  if (first.behind != 0) records()[first.behind - 1].before = first.before;
  if (first.before != 0) {
    records()[first.before - 1].behind = first.behind;
    return;
  }
  bins.first[count] = first.behind;
  if (first.behind == 0) bins.filled[count / 64] &= ~(std::uint64_t{1} << count % 64);
}

std::uint32_t PoolSpace::next_size(const Bins& bins, std::uint64_t count) {
  if (count >= kExact) return kExact;
  std::uint64_t word = count / 64;
  std::uint64_t filled = bins.filled[word] & (~std::uint64_t{0} << count % 64);
  while (filled == 0) {
    if (++word == bins.filled.size()) return kExact;
    filled = bins.filled[word];
  }
  return static_cast<std::uint32_t>(word * 64) + static_cast<unsigned>(std::countr_zero(filled));
}

// Shows the spans of at least `count`, smallest first, until `look` is satisfied.
template <class Look>
void PoolSpace::look_at(const Bins& bins, std::uint64_t count, const Look& look) const {
  for (std::uint32_t size = next_size(bins, count); size < kExact;
       size = next_size(bins, size + 1)) {
    for (std::uint32_t at = bins.first[size]; at != 0; at = records()[at - 1].behind) {
      if (look(Span{.start = at - 1, .count = size})) return;
    }
  }
  const std::pair<std::uint32_t, std::uint32_t> least{static_cast<std::uint32_t>(count), 0};
  for (auto at = bins.large.lower_bound(least); at != bins.large.end(); ++at) {
    if (look(Span{.start = at->second, .count = at->first})) return;
  }
}

std::optional<PoolSpace::Span> PoolSpace::closest(Line line, std::uint64_t count) const {
  return closest_up_to(line, count, ~std::uint64_t{0});
}

std::optional<PoolSpace::Span> PoolSpace::closest_up_to(Line line, std::uint64_t count,
                                                        std::uint64_t stamp) const {
  std::optional<Span> found;
  if (!has(line)) return found;
  look_at(*bins_[line], count, [&](const Span& span) {
    if (stamp_of(span.start) > stamp) return false;
    found = span;
    return true;
  });
  return found;
}

std::optional<PoolSpace::Span> PoolSpace::earliest(Line line, std::uint64_t count) const {
  std::optional<Span> found;
  if (!has(line)) return found;
  look_at(*bins_[line], count, [&](const Span& span) {
    if (!found || stamp_of(span.start) < stamp_of(found->start)) found = span;
    return false;
  });
  return found;
}

void PoolSpace::take(const Span& span, std::uint64_t count) {
  assert(count != 0 && count <= span.count);
  const Line line = line_of(span.start);
  const std::uint64_t stamp = stamp_of(span.start);
  remove(span);
  if (count < span.count) {
    insert({.start = span.start + count, .count = span.count - count}, line, stamp);
  }
}

void PoolSpace::give(const Span& span, Line line, std::uint64_t stamp) {
  Span whole = span;
  if (span.start != 0) {
    const Record& left = records()[span.start - 1];
    const bool single = left.mark == Mark::kStart && left.count == 1;
    if (left.mark == Mark::kEnd || single) {
      const std::uint64_t start = span.start - left.count;
      if (line_of(start) == line) {
        stamp = std::max(stamp, stamp_of(start));
        const std::uint64_t count = left.count;
        remove({.start = start, .count = count});
        whole = {.start = start, .count = whole.count + count};
      }
    }
  }
  const std::uint64_t next = span.start + span.count;
  if (next < granules_) {
    const Record right = records()[next];
    if (right.mark == Mark::kStart && right.line == line) {
      stamp = std::max(stamp, right.stamp);
      remove({.start = next, .count = right.count});
      whole.count += right.count;
    }
  }
  insert(whole, line, stamp);
}

std::vector<PoolSpace::Span> PoolSpace::spans_up_to(Line line, std::uint64_t stamp) const {
  std::vector<Span> all;
  if (!has(line)) return all;
  look_at(*bins_[line], 1, [&](const Span& span) {
    if (stamp_of(span.start) <= stamp) all.push_back(span);
    return false;
  });
  return all;
}

std::vector<Line> PoolSpace::lines() const {
  std::vector<Line> all;
  for (std::size_t line = 1; line < bins_.size(); ++line) {
    if (has(static_cast<Line>(line))) all.push_back(static_cast<Line>(line));
  }
  return all;
}

}  // namespace hufu::memory
