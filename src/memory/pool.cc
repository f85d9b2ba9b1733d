#include "memory/pool.h"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cassert>
#include <cerrno>

#include "os/commit.h"

namespace hufu::memory {
namespace {

// The least power of two that is at least `cut` and cuts the pool into no more than the books hold.
unsigned shift_of(const PoolSpec& spec) {
  auto shift = static_cast<unsigned>(std::countr_zero(spec.cut));
  while (spec.size >> shift > SpanBooks::kMostGranules)
    ++shift;
  return shift;
}

}  // namespace

RetiredPool::~RetiredPool() {
  // First the source, so that no key of it can be imported any more; then the mapping.
  if (source_ != nullptr) source_->give_back(block_, lent_);
}

Result<std::unique_ptr<Pool>> Pool::make(const Surroundings& around, const PoolSpec& spec) {
  assert(spec.size != 0 && is_aligned(spec.size, kPoolUnit));
  const std::uint64_t cuts = spec.size >> shift_of(spec);
  auto space = PoolSpace::make(cuts);
  if (!space) return space.error();
  auto minted = around.source.mint({.device = spec.device,
                                    .size = spec.size,
                                    .page = PageSize::k4KiB,  // Of what has a key of its own.
                                    .charging = Charging::kByUse});
  if (!minted) return minted.error();
  const auto give_back = [&] { around.source.give_back(minted->id, Lent::kNever); };
  auto mapping = os::GuardedMapping::map(minted->fd.get(),
                                         {.length = spec.size, .alignment = PageSize::k2MiB});
  if (!mapping) {
    give_back();
    return mapping.error();
  }
  auto books = around.shelf.take(cuts);
  if (!books) {
    give_back();
    return books.error();
  }
  return std::unique_ptr<Pool>(
      new Pool(around, spec, std::move(*space), *books, minted->id, std::move(*mapping)));
}

Pool::Pool(const Surroundings& around, const PoolSpec& spec, PoolSpace space, SpanBooks* books,
           std::uint64_t block, os::GuardedMapping mapping)
    : around_(around),
      spec_(spec),
      shift_(shift_of(spec)),
      space_(std::move(space)),
      books_(books),
      block_(block),
      mapping_(std::move(mapping)),
      units_(spec.size / kPoolUnit) {
  books_->begin(spec_.id, shift_);
  around_.usage.change(spec_.device, {{Usage::kBlocks, 1}});
  around_.registry.add({.base = base(),
                        .mapped = spec_.size,
                        .reported = spec_.size,
                        .id = spec_.id,
                        .page = PageSize::k2MiB,
                        .device = spec_.device,
                        .kind = RegionKind::kPool,
                        .books = books_});
}

Pool::~Pool() {
  if (books_ != nullptr) retire_all();
}

RetiredPool Pool::retire_all() {
  around_.registry.remove(base());
  around_.shelf.put_back(std::exchange(books_, nullptr));
  around_.usage.change(spec_.device, {{Usage::kBlocks, -1}});
  recount(0);
  return RetiredPool(&around_.source, block_, lent_, std::move(mapping_));
}

// --- Allocating ----------------------------------------------------------------------------------

Result<Pool::Grant> Pool::allocate(std::uint64_t size, Line line, const LineOrder& order) {
  if (size > spec_.size) return fail_full(size);
  const std::uint64_t count = (size + bytes_of_cuts(1) - 1) >> shift_;

  auto found = space_.closest(line, count);
  const bool own = found.has_value();
  if (const auto other = space_.closest(kAnybody, count)) {
    if (!own || other->count < found->count) found = other;
  }
  if (found && committed({.start = found->start, .count = count})) {
    return hand_out(*found, count, space_.line_of(found->start) != kAnybody);
  }
  if (const auto others = of_other_lines(count, line, order)) {
    return hand_out(*others, count, space_.line_of(others->start) != kAnybody);
  }
  // The search above may have given something to anybody.
  if (found = space_.closest(kAnybody, count); found) {
    auto grown = commit({.start = found->start, .count = count});
    if (grown) return hand_out(*found, count, false);
    if (!rules.internal_dependencies) return grown.error();
  }
  if (rules.internal_dependencies) {
    std::optional<Span> first;
    for (const Line other : space_.lines()) {
      const auto candidate = space_.earliest(other, count);
      if (candidate &&
          (!first || space_.stamp_of(candidate->start) < space_.stamp_of(first->start))) {
        first = candidate;
      }
    }
    if (first) {
      const Line other = space_.line_of(first->start);
      const std::uint64_t ticket = space_.stamp_of(first->start);
      Grant grant = hand_out(*first, count, true);
      grant.wait_for = other == line ? kAnybody : other;
      grant.ticket = ticket;
      return grant;
    }
  }
  return fail_full(size);
}

std::optional<Pool::Span> Pool::of_other_lines(std::uint64_t count, Line line,
                                               const LineOrder& order) {
  if (!rules.follow_events && !rules.opportunistic) return std::nullopt;
  std::optional<Span> best;
  for (const Line other : space_.lines()) {
    if (other == line) continue;
    if (rules.opportunistic) {
      synchronized(other, order.passed(other));
      if (!space_.has(other)) continue;
    }
    if (!rules.follow_events) continue;
    const auto candidate = space_.closest_up_to(other, count, order.precedes(other));
    if (candidate && (!best || candidate->count < best->count)) best = candidate;
  }
  if (!rules.opportunistic) return best;
  const auto anybodys = space_.closest(kAnybody, count);
  if (anybodys && committed({.start = anybodys->start, .count = count}) &&
      (!best || anybodys->count < best->count)) {
    best = anybodys;
  }
  return best;
}

Pool::Grant Pool::hand_out(const Span& from, std::uint64_t count, bool busy_before) {
  const Span taken{.start = from.start, .count = count};
  space_.take(from, count);
  if (!busy_before) count_busy(taken, true);
  statistics_.used += bytes_of_cuts(count);
  statistics_.used_high = std::max(statistics_.used_high, statistics_.used);
  // What was committed when the mark was forgotten counts again.
  statistics_.reserved_high = std::max(statistics_.reserved_high, statistics_.reserved);
  books_->mark(taken.start, count);
  return {.pointer = mapping_.base() + bytes_of_cuts(taken.start)};
}

Error Pool::fail_full(std::uint64_t size) const {
  std::uint64_t largest = 0;
  std::uint64_t waiting = 0;
  for (const Span& span : space_.spans(kAnybody))
    largest = std::max(largest, span.count);
  for (const Line line : space_.lines()) {
    for (const Span& span : space_.spans(line))
      waiting += span.count;
  }
  return fail(Errc::kPool, Reason::kCapacity,
              "{} bytes do not fit into the pool of {}: {} are in use, the largest free range has "
              "{}, and {} were freed on streams that were not synchronised since; free or "
              "synchronise some, or make the pool larger",
              size, spec_.size, statistics_.used, bytes_of_cuts(largest), bytes_of_cuts(waiting));
}

// --- Freeing -------------------------------------------------------------------------------------

Result<Pool::Span> Pool::retire(std::uintptr_t address) {
  const std::uint64_t offset = address - base();
  const std::uint64_t start = offset >> shift_;
  const bool inside = offset < spec_.size;
  const std::uint64_t count = inside ? books_->count_at(start) : 0;
  if (count == 0 || bytes_of_cuts(start) != offset) {
    const auto holder = inside ? books_->start_of(start) : std::nullopt;
    if (!holder) {
      return fail(Errc::kInvalidValue, Reason::kNone,
                  "address {:#x} lies {} bytes into the pool [{:#x}, {:#x}) where nothing is in "
                  "use: it was freed before, or never allocated",
                  address, offset, base(), base() + spec_.size);
    }
    const std::uintptr_t first = base() + bytes_of_cuts(*holder);
    return fail(Errc::kInvalidValue, Reason::kNone,
                "address {:#x} does not start an allocation; it lies {} bytes into the {}-byte "
                "allocation [{:#x}, {:#x}) of a pool; pass the base address",
                address, address - first, bytes_of_cuts(books_->count_at(*holder)), first,
                first + bytes_of_cuts(books_->count_at(*holder)));
  }
  books_->unmark(start);
  statistics_.used -= bytes_of_cuts(count);
  if (lent_places_.contains(start)) {
    around_.source.end_keys(block_, bytes_of_cuts(start), bytes_of_cuts(count));
  }
  return Span{.start = start, .count = count};
}

Result<ExportRange> Pool::part(std::uintptr_t address, std::uint64_t size) const {
  constexpr std::uint64_t kPage = bytes_of(PageSize::k4KiB);
  const std::uint64_t offset = address - base();
  const auto start = books_->start_of(offset >> shift_);
  if (!start) {
    return fail(Errc::kUnregistered, Reason::kUnregistered,
                "address {:#x} lies in a pool where nothing is in use", address);
  }
  if (size == 0) {
    return fail(Errc::kInvalidValue, Reason::kEmptyRange, "size is 0; export at least one byte");
  }
  const std::uint64_t end = bytes_of_cuts(*start) + bytes_of_cuts(books_->count_at(*start));
  if (size > end - offset) {
    return fail(
        Errc::kRefused, Reason::kOutOfRange,
        "size {} from address {:#x} reaches {} bytes past the allocation [{:#x}, {:#x}) of a "
        "pool; export at most {} bytes from there",
        size, address, size - (end - offset), base() + bytes_of_cuts(*start), base() + end,
        end - offset);
  }
  const std::uint64_t last_page_ends = (offset + size + kPage - 1) & ~(kPage - 1);
  if (offset % kPage != 0 || last_page_ends > end) {
    return fail(Errc::kRefused, Reason::kNotAligned,
                "{} bytes from address {:#x} share a 4 KiB page with other allocations of their "
                "pool; take only multiples of 4096 bytes from a pool whose allocations get keys, "
                "or share the pool with aclrtMemPoolExportToShareableHandle",
                size, address);
  }
  return ExportRange{.block = block_, .offset = offset, .size = size, .reported_size = spec_.size};
}

void Pool::lend_part(const ExportRange& part, Access access) {
  if (lent_ == Lent::kNever) lend(access);  // The first one decides, for good.
  lent_places_.insert(*books_->start_of(part.offset >> shift_));
}

void Pool::give(const Span& span, Line line, std::uint64_t ticket) {
  if (lent_places_.contains(span.start)) return;
  if (line == kAnybody) count_busy(span, false);
  space_.give(span, line, ticket);
}

void Pool::synchronized(Line line, std::uint64_t ticket) {
  if (!space_.has(line)) return;
  space_.release(line, ticket, [&](const Span& span) { count_busy(span, false); });
}

// --- Units ---------------------------------------------------------------------------------------

bool Pool::committed(const Span& span) const {
  const std::size_t last = unit_of(span.start + span.count - 1);
  for (std::size_t unit = unit_of(span.start); unit <= last; ++unit) {
    if (!units_[unit].committed) return false;
  }
  return true;
}

void Pool::count_busy(const Span& span, bool busy) {
  const std::uint64_t per_unit = std::uint64_t{1} << (kUnitShift - shift_);
  const std::uint64_t end = span.start + span.count;
  for (std::uint64_t at = span.start; at < end;) {
    const std::uint64_t until = std::min(end, (at / per_unit + 1) * per_unit);
    Unit& unit = units_[at / per_unit];
    const auto cuts = static_cast<std::uint32_t>(until - at);
    if (busy) {
      if (unit.committed && unit.busy == 0) --idle_units_;
      unit.busy += cuts;
    } else {
      unit.busy -= cuts;
      if (unit.committed && unit.busy == 0) ++idle_units_;
    }
    at = until;
  }
}

Result<void> Pool::commit(const Span& span) {
  const std::size_t end = unit_of(span.start + span.count - 1) + 1;
  for (std::size_t unit = unit_of(span.start); unit < end;) {
    std::size_t behind = unit;
    while (behind < end && !units_[behind].committed)
      ++behind;
    if (behind != unit) {
      if (auto done = commit_run(unit, behind); !done) return done;
    }
    unit = behind + 1;
  }
  return {};
}

// Whoever counted the pool may be gone, and its memory counts nowhere then, as a block's.
Result<void> Pool::charge(std::uint64_t bytes) {
  auto charged = around_.source.charge(block_, bytes);
  if (!charged && charged.error().reason == Reason::kUnknownBlock) return {};
  return charged;
}

// All of the run or nothing of it. Charged before it is used, so that the device's capacity holds.
Result<void> Pool::commit_run(std::size_t first, std::size_t end) {
  const std::uint64_t bytes = (end - first) * kPoolUnit;
  auto charged = charge(statistics_.reserved + bytes);
  if (!charged) return charged.error();
  std::byte* const start = mapping_.base() + first * kPoolUnit;
  const auto pages = os::commit_pages(start, bytes, PageSize::k2MiB);
  if (!pages) {
    ::madvise(start, bytes, MADV_REMOVE);
    // Less is never refused.
    static_cast<void>(charge(statistics_.reserved).has_value());
    return pages.error();
  }
  for (std::size_t unit = first; unit < end; ++unit) {
    units_[unit].committed = true;
    if (units_[unit].busy == 0) ++idle_units_;
  }
  recount(statistics_.reserved + bytes);
  return {};
}

Result<void> Pool::trim(std::uint64_t keep) {
  if (keeps_memory_) {
    return fail(Errc::kPool, Reason::kReadOnlyExport,
                "the pool is shared read-only, and the kernel then lets nobody take memory out of "
                "it; its {} bytes go when it is destroyed and nobody has it imported",
                statistics_.reserved);
  }
  const std::uint64_t before = statistics_.reserved;
  std::uint64_t reserved = before;
  int sys_errno = 0;
  // From the end, so that what stays lies together.
  for (std::size_t end = units_.size(); end != 0 && reserved > keep && idle_units_ != 0;) {
    std::size_t first = end;
    while (first != 0 && units_[first - 1].committed && units_[first - 1].busy == 0 &&
           reserved > keep) {
      --first;
      reserved -= kPoolUnit;
    }
    const std::size_t count = end - first;
    if (count != 0 &&
        ::madvise(mapping_.base() + first * kPoolUnit, count * kPoolUnit, MADV_REMOVE) != 0) {
      sys_errno = errno;
      reserved += count * kPoolUnit;
      break;
    }
    for (std::size_t unit = first; unit < end; ++unit)
      units_[unit].committed = false;
    idle_units_ -= count;
    end = count != 0 ? first : end - 1;
  }
  if (reserved != before) {
    static_cast<void>(charge(reserved).has_value());
    recount(reserved);
  }
  if (sys_errno != 0) return fail_errno("madvise(REMOVE)", sys_errno);
  return {};
}

void Pool::recount(std::uint64_t reserved) {
  const auto more = static_cast<std::int64_t>(reserved - statistics_.reserved);
  around_.usage.change(spec_.device, {{Usage::kRequested, more}, {Usage::kReserved, more}});
  statistics_.reserved = reserved;
  statistics_.reserved_high = std::max(statistics_.reserved_high, reserved);
}

}  // namespace hufu::memory
