#pragma once

// From what a caller asks for to what is made of it: the rules of size and page, and nothing else.
//
// Three sizes are told apart:
//   asked     what the caller passed;
//   reported  asked, rounded up to 32, plus what the device's profile adds (32, or nothing) for the
//             calls that promise readable bytes behind the end. It chooses the page and is what a
//             query of the range answers;
//   file      what the memory file is long: asked, rounded up to the page. What is added is never
//             part of the file, the guard page behind every mapping serves them. So 4096 bytes
//             take one page, not two.

#include <cstdint>

#include "base/device_model.h"
#include "base/result.h"
#include "base/units.h"

namespace hufu::memory {

// The public call decides about padding and about what the upper bits of a policy mean.
enum class AllocCall : std::uint8_t {
  kMalloc,         // Padded. aclrtMalloc, aclrtMallocCached.
  kMallocAlign32,  // Rounded only.
  kMallocWithCfg,  // Rounded only; the policy may carry flags above the basic value.
  kManaged,        // Whole pages of 2 MiB; there is no policy.
};

// Requests below this, where small pages do, come from the slab.
inline constexpr std::uint64_t kSlabLimit = 4 * kKiB;

struct Wish {
  AllocCall call = AllocCall::kMalloc;
  std::uint64_t size = 0;
  std::uint32_t policy = 0;  // An aclrtMemMallocPolicy as the caller passed it: any number.
};

struct Plan {
  std::uint64_t asked = 0;
  std::uint64_t reported_size = 0;
  std::uint64_t file_size = 0;
  PageSize page = PageSize::k4KiB;
  bool slab = false;
  bool may_fall_back = false;  // Huge pages are a wish: when memory is short, small ones do.
  Access access = Access::kReadWrite;  // This process's own, and its device's.
  bool managed = false;
};

Result<Plan> plan_allocation(const Wish& wish, const Profile& profile = profiles().front());

// The reported size if the plan would be a piece of the slab, by the policies that nearly everybody
// uses; 0 if it is anything else, or if only plan_allocation() knows.
inline std::uint64_t piece_size(const Wish& wish, const Profile& profile) {
  constexpr std::uint32_t kFirstOrNormal = 2;  // Policies 0 and 2.
  if (wish.size - 1 >= kSlabLimit || (wish.policy & ~kFirstOrNormal) != 0) return 0;
  std::uint64_t size = (wish.size + 31) & ~std::uint64_t{31};
  if (wish.call == AllocCall::kMalloc) size += profile.over_read;
  return size < kSlabLimit && size <= profile.huge_above ? size : 0;
}

// The plan to try after `plan` ran out of memory: the same bytes on small pages.
Plan on_small_pages(const Plan& plan);

}  // namespace hufu::memory
