#pragma once

// Committing: memory behind every page of a range, now, so that running out is an error here and
// not a signal later.
//
// The kernel's own way to say "no more" is to kill, so each step asks os/headroom.h first. Reserved
// huge pages count in none of those limits; their own shortage is an error by itself.

#include <cstddef>
#include <cstdint>

#include "base/result.h"
#include "base/units.h"

namespace hufu::os {

// What became of the wish for huge pages.
enum class Pages : std::uint8_t { kSmall, kHuge };

// Both are multiples of 4096; the range is writable. `page` of 2 MiB or more gets huge pages if the
// kernel can make them now: for all of the range, or the answer is kSmall. After a failure some of
// the range may be backed: whoever asked gives all of it back.
Result<Pages> commit_pages(std::byte* base, std::uint64_t length, PageSize page);

// The same for a range of a hugetlb file.
Result<Pages> commit_huge_pages(std::byte* base, std::uint64_t length);

}  // namespace hufu::os
