#include "memory/size_rules.h"

namespace hufu::memory {
namespace {

constexpr std::uint64_t kGranule = 32;
// Far beyond any machine, far below where rounding to a page could wrap.
constexpr std::uint64_t kMaxSize = std::uint64_t{1} << 62U;

// Values of aclrtMemMallocPolicy; src/capi asserts that they are the public header's.
enum : std::uint32_t {
  kHugeFirst = 0,
  kHugeOnly = 1,
  kNormalOnly = 2,
  kHugeFirstP2p = 3,
  kHugeOnlyP2p = 4,
  kNormalOnlyP2p = 5,
  kHuge1GOnly = 6,
  kHuge1GOnlyP2p = 7,
  kLowBandWidth = 0x100,
  kHighBandWidth = 0x1000,
  kUserSpaceReadOnly = 0x100000,
};

}  // namespace

Result<Plan> plan_allocation(const Wish& wish, const Profile& profile) {
  const std::uint64_t size = wish.size;
  if (size == 0) return fail(Errc::kInvalidArgument, Reason::kEmptyRange, "size is 0");
  if (size > kMaxSize) {
    return fail(
        Errc::kInvalidArgument, Reason::kSizeTooLarge,
        "size {} cannot be padded to its allocation size; at most {} bytes can be asked for", size,
        kMaxSize);
  }

  std::uint32_t basic = wish.policy;
  Plan plan{.asked = size};
  if (wish.call == AllocCall::kMallocWithCfg) {
    if ((basic & kUserSpaceReadOnly) != 0) plan.access = Access::kReadOnly;
    // One kind of host memory has one bandwidth.
    basic &= ~std::uint32_t{kLowBandWidth | kHighBandWidth | kUserSpaceReadOnly};
  }
  if (wish.call == AllocCall::kManaged) {
    plan.managed = true;
    plan.page = PageSize::k2MiB;
    plan.file_size = *round_up(size, bytes_of(plan.page));
    plan.reported_size = plan.file_size;
    plan.may_fall_back = true;
    return plan;
  }

  const bool giant = basic == kHuge1GOnly || basic == kHuge1GOnlyP2p;
  plan.reported_size = *round_up(size, kGranule);
  if (wish.call == AllocCall::kMalloc && !giant) plan.reported_size += profile.over_read;

  switch (basic) {
    case kHugeFirst:
    case kHugeFirstP2p:
      // The padded size decides: exactly 1 MiB, padded, is a huge-page block.
      plan.may_fall_back = plan.reported_size > profile.huge_above;
      plan.page = plan.may_fall_back ? PageSize::k2MiB : PageSize::k4KiB;
      break;
    case kHugeOnly:
    case kHugeOnlyP2p:
      plan.page = PageSize::k2MiB;
      break;
    case kNormalOnly:
    case kNormalOnlyP2p:
      plan.page = PageSize::k4KiB;
      break;
    case kHuge1GOnly:
    case kHuge1GOnlyP2p:
      plan.page = PageSize::k1GiB;
      break;
    default:  // Any other number is a caller that trusts the driver's default.
      plan.may_fall_back = size >= bytes_of(PageSize::k2MiB);
      plan.page = plan.may_fall_back ? PageSize::k2MiB : PageSize::k4KiB;
      break;
  }
  plan.file_size = *round_up(size, bytes_of(plan.page));
  // A page that only this allocation has can be made read-only.
  plan.slab = plan.page == PageSize::k4KiB && plan.reported_size < kSlabLimit &&
              plan.access == Access::kReadWrite;
  return plan;
}

Plan on_small_pages(const Plan& plan) {
  Plan small = plan;
  small.page = PageSize::k4KiB;
  // Managed memory is promised in steps of 2 MiB, whatever it is made of.
  small.file_size = *round_up(plan.managed ? plan.reported_size : plan.asked, bytes_of(small.page));
  small.may_fall_back = false;
  return small;
}

}  // namespace hufu::memory
