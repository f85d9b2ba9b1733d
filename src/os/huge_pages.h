#pragma once

// The machine's reserved huge pages (hugetlb): memory that was set aside at boot or by a sysctl,
// for nothing else.
//
// Who maps a file of them reserves all that it needs at that moment, or fails; who commits has
// them. So a shortage is an error and never a signal. What is read here is only a hint for whom to
// ask: between reading and mapping somebody else may take them.

#include <cstdint>

#include "base/result.h"
#include "base/units.h"

namespace hufu::os {

struct HugePages {
  std::uint64_t reserved = 0;   // On this machine, in use or not.
  std::uint64_t available = 0;  // Free, and promised to nobody.
};

// All zeros where there are none of this size; 4 KiB is such a size.
HugePages huge_pages(PageSize page);

// What to say when `bytes` cannot be had of them: the numbers and the command.
Error fail_huge_pages(std::uint64_t bytes, PageSize page);

}  // namespace hufu::os
