#pragma once

// Committing: memory behind every page of a range, now, so that running out is an error here and
// not a signal later.
//
// The kernel's own way to say "no more" is to kill, so each step asks os/headroom.h first.

#include <cstddef>
#include <cstdint>

#include "base/result.h"
#include "base/units.h"

namespace hufu::os {

// Both are multiples of 4096; the range is writable. `page` of 2 MiB or more gets huge pages if the
// kernel can make them now. After a failure some of the range may be backed: whoever asked gives
// all of it back.
Result<void> commit_pages(std::byte* base, std::uint64_t length, PageSize page);

}  // namespace hufu::os
