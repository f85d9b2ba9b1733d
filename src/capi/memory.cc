// Device memory: allocate, free, and what an address is.

#include <algorithm>
#include <cstdint>
#include <optional>

#include "acl/acl.h"
#include "capi/ability.h"
#include "capi/error_code.h"
#include "memory/size_rules.h"
#include "runtime/device_choice.h"
#include "runtime/runtime.h"

using hufu::Ability;
using hufu::Errc;
using hufu::fail;
using hufu::PageSize;
using hufu::Reason;
using hufu::Result;
using hufu::capi::answer;
using hufu::capi::null_argument;
using hufu::capi::require;
using hufu::memory::AllocCall;
using hufu::memory::Plan;
using hufu::memory::Region;
using hufu::memory::RegionKind;
using hufu::runtime::Here;
using hufu::runtime::Runtime;

namespace {

static_assert(ACL_MEM_MALLOC_HUGE_FIRST == 0 && ACL_MEM_MALLOC_HUGE_ONLY == 1 &&
                  ACL_MEM_MALLOC_NORMAL_ONLY == 2 && ACL_MEM_MALLOC_HUGE_FIRST_P2P == 3 &&
                  ACL_MEM_MALLOC_HUGE_ONLY_P2P == 4 && ACL_MEM_MALLOC_NORMAL_ONLY_P2P == 5 &&
                  ACL_MEM_MALLOC_HUGE1G_ONLY == 6 && ACL_MEM_MALLOC_HUGE1G_ONLY_P2P == 7 &&
                  ACL_MEM_TYPE_LOW_BAND_WIDTH == 0x100 && ACL_MEM_TYPE_HIGH_BAND_WIDTH == 0x1000 &&
                  ACL_MEM_ACCESS_USER_SPACE_READONLY == 0x100000,
              "memory/size_rules.cc says the same");

Result<void> check(const aclrtMallocConfig& cfg, const Here& here) {
  const uint32_t current_device = *here.runtime->contexts().id_of(here.context.device);
  if (cfg.attrs == nullptr) {
    // CANN's two layers differ here, by the count that goes with the null.
    return fail(cfg.numAttrs != 0 ? Errc::kInvalidArgument : Errc::kInvalidValue, Reason::kNone,
                "cfg->attrs is null; pass attributes, or a null cfg for none");
  }
  for (size_t i = 0; i < cfg.numAttrs; ++i) {
    const aclrtMallocAttribute& attribute = cfg.attrs[i];
    switch (attribute.attr) {
      case ACL_RT_MEM_ATTR_MODULE_ID:  // Whom CANN's statistics name; there are none here.
        continue;
      case ACL_RT_MEM_ATTR_DEVICE_ID:
        if (attribute.value.deviceId == current_device) continue;
        return fail(Errc::kInvalidValue, Reason::kNoDevice,
                    "cfg->attrs[{}] wants memory of device {}, but the thread's current device is "
                    "{}; call aclrtSetDevice({}) first",
                    i, attribute.value.deviceId, current_device, attribute.value.deviceId);
      case ACL_RT_MEM_ATTR_RSV:
      case ACL_RT_MEM_ATTR_VA_FLAG:
        break;
    }
    return fail(Errc::kInvalidValue, Reason::kNone,
                "cfg->attrs[{}].attr is {}; pass ACL_RT_MEM_ATTR_MODULE_ID (1) or "
                "ACL_RT_MEM_ATTR_DEVICE_ID (2)",
                i, static_cast<int>(attribute.attr));
  }
  return {};
}

Result<void> check_giant(const Plan& plan, aclrtMemMallocPolicy policy) {
  if (plan.page != PageSize::k1GiB) return {};
  constexpr unsigned kBasic = 0xff;
  if ((policy & kBasic) == ACL_MEM_MALLOC_HUGE1G_ONLY_P2P) {
    if (auto able = require(Ability::kGiantP2p); !able) return able;
  }
  return require(Ability::kGiantPages);
}

Result<void> allocate(AllocCall call, void** devPtr, size_t size, aclrtMemMallocPolicy policy,
                      const aclrtMallocConfig* cfg = nullptr) {
  if (devPtr == nullptr) return null_argument("devPtr");
  const auto& model = hufu::runtime::chosen_device_model();
  if (!model) return model.error();
  const auto plan =
      hufu::memory::plan_allocation({call, size, static_cast<uint32_t>(policy)}, *model->profile);
  if (!plan) return plan.error();
  const auto here = Here::get();
  if (!here) return here.error();
  if (auto able = check_giant(*plan, policy); !able) return able;
  if (cfg != nullptr) {
    if (auto good = check(*cfg, *here); !good) return good;
  }
  const auto made = here->runtime->heap().allocate(here->context.device, *plan);
  if (!made) return made.error();
  *devPtr = *made;
  return {};
}

// The short way for what is asked for most: a small piece that the thread has at hand. Null sends
// the caller the long way, which knows everything else, and why something is refused.
void* piece_at_hand(AllocCall call, size_t size, aclrtMemMallocPolicy policy) {
  Runtime* runtime = Runtime::get_if_any();
  const auto* profile = hufu::runtime::chosen_profile_if_known();
  if (runtime == nullptr || profile == nullptr) return nullptr;
  const uint64_t piece =
      hufu::memory::piece_size({call, size, static_cast<uint32_t>(policy)}, *profile);
  const auto context = runtime->contexts().current_if_any();
  if (piece == 0 || context.life == 0) return nullptr;
  return runtime->heap().piece_at_hand(context.device, piece);
}

aclrtMemLocationType location_of(RegionKind kind) {
  switch (kind) {
    case RegionKind::kBlock:
    case RegionKind::kSlab:
    case RegionKind::kImported:
    case RegionKind::kMapped:
    case RegionKind::kPool:
      return ACL_MEM_LOCATION_TYPE_DEVICE;
    case RegionKind::kManaged:
      return ACL_MEM_LOCATION_TYPE_MANAGED;
    case RegionKind::kHost:
    case RegionKind::kRegistered:
      return ACL_MEM_LOCATION_TYPE_HOST;
  }
  return ACL_MEM_LOCATION_TYPE_UNREGISTERED;
}

// Host memory has the id 0. Memory of a device that this process does not see has one that no
// device has.
uint32_t id_of(const Runtime& runtime, const Region& region) {
  if (location_of(region.kind) == ACL_MEM_LOCATION_TYPE_HOST) return 0;
  return runtime.contexts().id_of(region.device).value_or(UINT32_MAX);
}

hufu::Error fail_no_bytes() {
  return fail(Errc::kInvalidArgument, Reason::kEmptyRange, "size is 0; pass at least one byte");
}

Result<void> order_memory(void* devPtr, size_t size) {
  if (devPtr == nullptr) return null_argument("devPtr");
  if (size == 0) return fail_no_bytes();
  __sync_synchronize();  // As atomic_thread_fence, which g++ refuses under its thread sanitizer.
  return {};
}

}  // namespace

aclError aclrtMalloc(void** devPtr, size_t size, aclrtMemMallocPolicy policy) {
  if (devPtr != nullptr) {
    if (void* piece = piece_at_hand(AllocCall::kMalloc, size, policy)) {
      *devPtr = piece;
      return ACL_SUCCESS;
    }
  }
  return answer([&] { return allocate(AllocCall::kMalloc, devPtr, size, policy); });
}

aclError aclrtMallocAlign32(void** devPtr, size_t size, aclrtMemMallocPolicy policy) {
  return answer([&] { return allocate(AllocCall::kMallocAlign32, devPtr, size, policy); });
}

aclError aclrtMallocCached(void** devPtr, size_t size, aclrtMemMallocPolicy policy) {
  return answer([&] { return allocate(AllocCall::kMalloc, devPtr, size, policy); });
}

aclError aclrtMallocWithCfg(void** devPtr, size_t size, aclrtMemMallocPolicy policy,
                            aclrtMallocConfig* cfg) {
  return answer([&] { return allocate(AllocCall::kMallocWithCfg, devPtr, size, policy, cfg); });
}

// The task scheduler has no memory of its own here.
aclError aclrtMallocForTaskScheduler(void** devPtr, size_t size, aclrtMemMallocPolicy policy,
                                     aclrtMallocConfig* cfg) {
  return answer([&] { return allocate(AllocCall::kMallocWithCfg, devPtr, size, policy, cfg); });
}

aclError aclrtFree(void* devPtr) {
  Runtime* made = Runtime::get_if_any();
  if (made != nullptr && made->deallocate_piece(devPtr)) return ACL_SUCCESS;
  return answer([&]() -> Result<void> {
    if (devPtr == nullptr) return null_argument("devPtr");
    const auto runtime = Runtime::get();
    if (!runtime) return runtime.error();
    return (*runtime)->deallocate(devPtr);
  });
}

aclError aclrtFreeWithDevSync(void* devPtr) {
  return answer([&]() -> Result<void> {
    if (devPtr == nullptr) return null_argument("devPtr");
    const auto here = Here::get();
    if (!here) return here.error();
    if (auto done = here->runtime->streams().synchronize_device(here->context.device, {}); !done) {
      return done;
    }
    return here->runtime->deallocate(devPtr);
  });
}

// Host and devices see one memory, through the same caches. What is left of a flush is its order.
aclError aclrtMemFlush(void* devPtr, size_t size) {
  return answer([&] { return order_memory(devPtr, size); });
}

aclError aclrtMemInvalidate(void* devPtr, size_t size) {
  return answer([&] { return order_memory(devPtr, size); });
}

aclError aclrtMemP2PMap(void* devPtr, size_t size, int32_t dstDevId, uint64_t flags) {
  return answer([&]() -> Result<void> {
    if (devPtr == nullptr) return null_argument("devPtr");
    if (size == 0) return fail_no_bytes();
    if (auto able = require(Ability::kP2p); !able) return able;
    if (flags != 0) {
      return fail(Errc::kInvalidValue, Reason::kBadFlags, "flags is {:#x}; pass 0", flags);
    }
    const auto runtime = Runtime::get();
    if (!runtime) return runtime.error();
    const auto device = (*runtime)->contexts().device_of(dstDevId, "dstDevId");
    if (!device) return device.error();
    const auto region = (*runtime)->region_of(devPtr, size);
    if (!region) return region.error();
    if (location_of(region->kind) != ACL_MEM_LOCATION_TYPE_DEVICE) {
      return fail(Errc::kInvalidValue, Reason::kNone,
                  "devPtr {:#x} is not device memory; pass what aclrtMalloc returned",
                  reinterpret_cast<uintptr_t>(devPtr));
    }
    const uint64_t left = region->end() - reinterpret_cast<uintptr_t>(devPtr);
    if (size > left) {
      return fail(Errc::kInvalidValue, Reason::kOutOfRange,
                  "size {} from devPtr {:#x} reaches past the allocation [{:#x}, {:#x}); at most "
                  "{} bytes lie there",
                  size, reinterpret_cast<uintptr_t>(devPtr), region->base, region->end(), left);
    }
    return {};  // Every device of this host reaches it already.
  });
}

aclError aclrtCheckMemType(void** addrList, uint32_t size, uint32_t memType, uint32_t* checkResult,
                           uint32_t reserve) {
  return answer([&]() -> Result<void> {
    if (addrList == nullptr) return null_argument("addrList");
    if (checkResult == nullptr) return null_argument("checkResult");
    constexpr uint32_t kKnown = ACL_RT_MEM_TYPE_DEV | ACL_RT_MEM_TYPE_DVPP;
    if (size == 0) {
      return fail(Errc::kInvalidValue, Reason::kNone, "size is 0; pass at least one address");
    }
    if (reserve != 0) {
      return fail(Errc::kInvalidValue, Reason::kNone, "reserve is {}; pass 0", reserve);
    }
    // The header's bit for reserved memory is not the one that CANN's runtime takes either.
    if (memType == 0 || (memType & ~kKnown) != 0) {
      return fail(Errc::kInvalidValue, Reason::kNone,
                  "memType is {:#x}; pass ACL_RT_MEM_TYPE_DEV ({:#x}), ACL_RT_MEM_TYPE_DVPP "
                  "({:#x}), or both",
                  memType, ACL_RT_MEM_TYPE_DEV, ACL_RT_MEM_TYPE_DVPP);
    }
    Runtime* runtime = Runtime::get_if_any();
    const auto is_of_the_types = [&](const void* address) {
      const auto region = runtime == nullptr ? std::nullopt : runtime->heap().describe(address);
      // Nothing here is memory for image processing.
      return region && location_of(region->kind) == ACL_MEM_LOCATION_TYPE_DEVICE &&
             (memType & ACL_RT_MEM_TYPE_DEV) != 0;
    };
    *checkResult = std::all_of(addrList, addrList + size, is_of_the_types) ? 1 : 0;
    return {};
  });
}

aclError aclrtPointerGetAttributes(const void* ptr, aclrtPtrAttributes* attributes) {
  return answer([&]() -> Result<void> {
    if (ptr == nullptr) return null_argument("ptr");
    if (attributes == nullptr) return null_argument("attributes");
    aclrtPtrAttributes answered{};
    answered.location.type = ACL_MEM_LOCATION_TYPE_UNREGISTERED;
    // Before there is a runtime no address is anything, and asking needs no broker.
    Runtime* runtime = Runtime::get_if_any();
    if (runtime != nullptr) {
      if (const auto region = runtime->heap().describe(ptr)) {
        answered.location.type = location_of(region->kind);
        answered.location.id = id_of(*runtime, *region);
        // What the program made has pages that nobody here has chosen.
        if (region->kind != RegionKind::kRegistered) {
          answered.pageSize = static_cast<uint32_t>(region->page);
        }
      }
    }
    *attributes = answered;
    return {};
  });
}

aclError aclrtMemGetAddressRange(void* ptr, void** pbase, size_t* psize) {
  return answer([&]() -> Result<void> {
    if (ptr == nullptr) return null_argument("ptr");
    if (pbase == nullptr && psize == nullptr) {
      return fail(Errc::kInvalidValue, Reason::kNone, "pbase and psize are both null; pass one");
    }
    const auto runtime = Runtime::get();
    if (!runtime) return runtime.error();
    const auto region = (*runtime)->region_of(ptr, 0);
    if (!region) return region.error();
    if (pbase != nullptr) *pbase = reinterpret_cast<void*>(region->base);
    if (psize != nullptr) *psize = region->reported;
    return {};
  });
}
