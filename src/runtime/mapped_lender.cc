#include "runtime/mapped_lender.h"

#include <utility>

namespace hufu::runtime {

Result<MappedLender::Found> MappedLender::find(const memory::Region& region, const void* pointer,
                                               std::uint64_t size) const {
  auto physical = reservations_.mapped_at(pointer);
  if (!physical) return physical.error();
  if ((*physical)->is_foreign()) {
    return fail(
        Errc::kRefused, Reason::kImportedMemory,
        "address {} lies in [{:#x}, {:#x}), memory that another process owns; ask its owner "
        "to export it",
        pointer, region.base, region.end());
  }
  const auto range = memory::range_within(region, pointer, size);
  if (!range) return range.error();
  if (range->block != (*physical)->block()) {  // Since the region was looked up.
    return fail(Errc::kInvalidValue, Reason::kNone,
                "address {} is being mapped anew by another thread", pointer);
  }
  return Found{.range = *range, .physical = std::move(*physical)};
}

Result<memory::ExportRange> MappedLender::may_lend(const memory::Region& region,
                                                   const void* pointer, std::uint64_t size) {
  const auto found = find(region, pointer, size);
  if (!found) return found.error();
  return found->range;
}

Result<Loan> MappedLender::lend(const memory::Region& region, const void* pointer,
                                std::uint64_t size, Access /*access*/) {
  auto found = find(region, pointer, size);
  if (!found) return found.error();
  found->physical->mark_exported();
  return Loan{.range = found->range, .hold = std::move(found->physical)};
}

}  // namespace hufu::runtime
