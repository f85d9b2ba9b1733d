#include "memory/managed_hints.h"

#include <algorithm>
#include <cassert>
#include <iterator>

#include "base/units.h"

namespace hufu::memory {
namespace {

constexpr std::uint64_t kPage = 4 * kKiB;

template <class Value>
void keep_common(std::optional<Value>& common, const std::optional<Value>& other) {
  if (common != other) common.reset();
}

}  // namespace

void ManagedHints::change(Part part, const std::function<void(ManagedHint&)>& how) {
  assert(part.size != 0 && part.offset + part.size <= size_);
  const std::uint64_t first = part.offset / kPage * kPage;
  const std::uint64_t end = *round_up(part.offset + part.size, kPage);
  cut(first);
  if (end < size_) cut(end);
  const auto begin = pieces_.find(first);
  const auto stop = pieces_.lower_bound(end);
  for (auto piece = begin; piece != stop; ++piece)
    how(piece->second);
  // Pieces that have become equal are one again, so that advice back and forth does not add up.
  for (auto piece = begin == pieces_.begin() ? std::next(begin) : begin; piece != pieces_.end();) {
    const bool last = piece->first >= end;
    piece = piece->second == std::prev(piece)->second ? pieces_.erase(piece) : std::next(piece);
    if (last) break;
  }
}

ManagedHint ManagedHints::of(Part part) const {
  assert(part.size != 0 && part.offset + part.size <= size_);
  auto piece = std::prev(pieces_.upper_bound(part.offset));
  ManagedHint common = piece->second;
  for (++piece; piece != pieces_.end() && piece->first < part.offset + part.size; ++piece) {
    const ManagedHint& hint = piece->second;
    common.read_mostly = common.read_mostly && hint.read_mostly;
    keep_common(common.preferred, hint.preferred);
    keep_common(common.last_prefetch, hint.last_prefetch);
    std::erase_if(common.accessed_by,
                  [&](std::int32_t id) { return !hint.accessed_by.contains(id); });
  }
  return common;
}

void ManagedHints::cut(std::uint64_t offset) {
  const auto piece = std::prev(pieces_.upper_bound(offset));
  if (piece->first != offset) pieces_.emplace(offset, piece->second);
}

}  // namespace hufu::memory
