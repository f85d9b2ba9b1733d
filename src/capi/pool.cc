// Pools: allocation in stream order, and pools that other processes share.

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>

#include "acl/acl.h"
#include "acl/acl_rt_memory_soma.h"
#include "capi/ability.h"
#include "capi/error_code.h"
#include "hufu/hufu.h"
#include "memory/pool_pointer.h"
#include "runtime/runtime.h"

using hufu::Ability;
using hufu::Errc;
using hufu::fail;
using hufu::Reason;
using hufu::Result;
using hufu::capi::answer;
using hufu::capi::null_argument;
using hufu::capi::require;
using hufu::memory::PoolPointer;
using hufu::runtime::Here;
using hufu::runtime::PoolAttribute;

static_assert(
    static_cast<int>(PoolAttribute::kFollowEvents) ==
        ACL_RT_MEM_POOL_REUSE_FOLLOW_EVENT_DEPENDENCIES &&
    static_cast<int>(PoolAttribute::kOpportunistic) == ACL_RT_MEM_POOL_REUSE_ALLOW_OPPORTUNISTIC &&
    static_cast<int>(PoolAttribute::kInternalDependencies) ==
        ACL_RT_MEM_POOL_REUSE_ALLOW_INTERNAL_DEPENDENCIES &&
    static_cast<int>(PoolAttribute::kReleaseThreshold) == ACL_RT_MEM_POOL_ATTR_RELEASE_THRESHOLD &&
    static_cast<int>(PoolAttribute::kReserved) == ACL_RT_MEM_POOL_ATTR_RESERVED_MEM_CURRENT &&
    static_cast<int>(PoolAttribute::kReservedHigh) == ACL_RT_MEM_POOL_ATTR_RESERVED_MEM_HIGH &&
    static_cast<int>(PoolAttribute::kUsed) == ACL_RT_MEM_POOL_ATTR_USED_MEM_CURRENT &&
    static_cast<int>(PoolAttribute::kUsedHigh) == ACL_RT_MEM_POOL_ATTR_USED_MEM_HIGH);

namespace {

Result<void> check(const aclrtMemPoolProps& props) {
  if (props.allocType != ACL_MEM_ALLOCATION_TYPE_PINNED) {
    return fail(Errc::kInvalidArgument, Reason::kNone,
                "poolProps->allocType is {}; pass ACL_MEM_ALLOCATION_TYPE_PINNED (0)",
                static_cast<int>(props.allocType));
  }
  if (props.location.type != ACL_MEM_LOCATION_TYPE_DEVICE) {
    return fail(Errc::kInvalidArgument, Reason::kNone,
                "poolProps->location.type is {}; pass ACL_MEM_LOCATION_TYPE_DEVICE (1)",
                static_cast<int>(props.location.type));
  }
  if (std::any_of(std::begin(props.reserved), std::end(props.reserved),
                  [](unsigned char byte) { return byte != 0; })) {
    return fail(Errc::kInvalidArgument, Reason::kNone,
                "poolProps->reserved is not all zero; zero the struct before it is filled");
  }
  return {};
}

// Of attributes 1 to 3 the value is an uint32_t.
bool is_rule(aclrtMemPoolAttr attr) {
  return attr >= ACL_RT_MEM_POOL_REUSE_FOLLOW_EVENT_DEPENDENCIES &&
         attr <= ACL_RT_MEM_POOL_REUSE_ALLOW_INTERNAL_DEPENDENCIES;
}

// Of the others an uint64_t.
bool is_count(aclrtMemPoolAttr attr) {
  return attr >= ACL_RT_MEM_POOL_ATTR_RELEASE_THRESHOLD &&
         attr <= ACL_RT_MEM_POOL_ATTR_USED_MEM_HIGH;
}

static_assert(sizeof(aclrtMemPoolPtrExportData) == PoolPointer::kSize);

Result<uint32_t> export_flags(uint64_t flags) {
  constexpr uint64_t kAnyProcess = ACL_RT_VMM_EXPORT_FLAG_DISABLE_PID_VALIDATION;
  constexpr uint64_t kReadOnly = HUFU_IPC_MEM_EXPORT_FLAG_READ_ONLY;
  if ((flags & ~(kAnyProcess | kReadOnly)) != 0) {
    return fail(Errc::kInvalidValue, Reason::kBadFlags,
                "flags is {:#x}; pass 0 for a whitelist or {:#x} for none, with {:#x} added for "
                "read-only importers",
                flags, kAnyProcess, kReadOnly);
  }
  return ((flags & kAnyProcess) != 0 ? uint32_t{hufu::wire::kAnyProcess} : 0U) |
         ((flags & kReadOnly) != 0 ? uint32_t{hufu::wire::kReadOnly} : 0U);
}

Result<void> check_attribute_arguments(aclrtMemPool pool, const void* value) {
  if (pool == nullptr) return null_argument("memPool");
  if (value == nullptr) {  // 107000, where other calls have 100000.
    return fail(Errc::kInvalidValue, Reason::kNone, "value is null; pass the address of a number");
  }
  return require(Ability::kPool);
}

}  // namespace

aclError aclrtMemPoolCreate(aclrtMemPool* memPool, const aclrtMemPoolProps* poolProps) {
  return answer([&]() -> Result<void> {
    if (memPool == nullptr) return null_argument("memPool");
    if (poolProps == nullptr) return null_argument("poolProps");
    if (auto good = check(*poolProps); !good) return good;
    if (auto able = require(Ability::kPool); !able) return able;
    const auto here = Here::get();
    if (!here) return here.error();
    const auto device =
        here->runtime->contexts().device_of(poolProps->location.id, "poolProps->location.id");
    if (!device) return device.error();
    const auto made = here->runtime->pools().create(*device, poolProps->maxSize);
    if (!made) return made.error();
    *memPool = *made;
    return {};
  });
}

aclError aclrtMemPoolDestroy(const aclrtMemPool memPool) {
  return answer([&]() -> Result<void> {
    if (memPool == nullptr) return null_argument("memPool");
    const auto here = Here::get();
    if (!here) return here.error();
    return here->runtime->pools().destroy(memPool);
  });
}

aclError aclrtMemPoolSetAttr(aclrtMemPool memPool, aclrtMemPoolAttr attr, void* value) {
  return answer([&]() -> Result<void> {
    if (auto good = check_attribute_arguments(memPool, value); !good) return good;
    const auto here = Here::get();
    if (!here) return here.error();
    uint64_t number = 0;  // Nothing is read for an attribute that is none.
    if (is_rule(attr)) {
      number = *static_cast<const uint32_t*>(value);
    } else if (is_count(attr)) {
      number = *static_cast<const uint64_t*>(value);
    }
    return here->runtime->pools().set(memPool, static_cast<PoolAttribute>(attr), number);
  });
}

aclError aclrtMemPoolGetAttr(aclrtMemPool memPool, aclrtMemPoolAttr attr, void* value) {
  return answer([&]() -> Result<void> {
    if (auto good = check_attribute_arguments(memPool, value); !good) return good;
    const auto here = Here::get();
    if (!here) return here.error();
    const auto number = here->runtime->pools().get(memPool, static_cast<PoolAttribute>(attr));
    if (!number) return number.error();
    if (is_rule(attr)) {
      *static_cast<uint32_t*>(value) = static_cast<uint32_t>(*number);
    } else {
      *static_cast<uint64_t*>(value) = *number;
    }
    return {};
  });
}

aclError aclrtMemPoolMallocAsync(void** ptr, size_t size, aclrtMemPool memPool,
                                 aclrtStream stream) {
  return answer([&]() -> Result<void> {
    if (ptr == nullptr) return null_argument("ptr");
    if (memPool == nullptr) return null_argument("memPool");
    const auto here = Here::get();
    if (!here) return here.error();
    if (size == 0) return {};
    const auto made = here->runtime->pools().allocate(memPool, size,
                                                      {.stream = stream, .context = here->context});
    if (!made) return made.error();
    *ptr = *made;
    return {};
  });
}

aclError aclrtMemPoolFreeAsync(void* ptr, aclrtStream stream) {
  return answer([&]() -> Result<void> {
    if (ptr == nullptr) return null_argument("ptr");
    if (stream == nullptr) {  // Here the default stream has to be named.
      return fail(Errc::kPool, Reason::kNone,
                  "stream is null; pass a stream, or what aclrtCtxGetCurrentDefaultStream returns");
    }
    const auto here = Here::get();
    if (!here) return here.error();
    return here->runtime->deallocate_on(ptr, {.stream = stream, .context = here->context});
  });
}

aclError aclrtMemPoolTrimTo(aclrtMemPool memPool, size_t minBytesToKeep) {
  return answer([&]() -> Result<void> {
    if (memPool == nullptr) return null_argument("memPool");
    const auto here = Here::get();
    if (!here) return here.error();
    return here->runtime->pools().trim_to(memPool, minBytesToKeep);
  });
}

aclError aclrtMemPoolExportToShareableHandle(aclrtMemPool memPool, aclrtMemHandleType handleType,
                                             uint64_t flags, uint64_t* shareableHandle) {
  return answer([&]() -> Result<void> {
    if (memPool == nullptr) return null_argument("memPool");
    if (shareableHandle == nullptr) return null_argument("shareableHandle");
    if (handleType != ACL_MEM_HANDLE_TYPE_NONE) {
      return fail(Errc::kInvalidArgument, Reason::kNone,
                  "handleType is {}; pass ACL_MEM_HANDLE_TYPE_NONE (0)",
                  static_cast<int>(handleType));
    }
    const auto wire_flags = export_flags(flags);
    if (!wire_flags) return wire_flags.error();
    if (auto able = require(Ability::kPool); !able) return able;
    const auto here = Here::get();
    if (!here) return here.error();
    const auto token = here->runtime->pools().export_pool(memPool, *wire_flags);
    if (!token) return token.error();
    *shareableHandle = *token;
    return {};
  });
}

aclError aclrtMemPoolImportFromShareableHandle(uint64_t shareableHandle, int32_t deviceId,
                                               aclrtMemPool* memPool) {
  return answer([&]() -> Result<void> {
    if (memPool == nullptr) return null_argument("memPool");
    if (auto able = require(Ability::kPool); !able) return able;
    const auto here = Here::get();
    if (!here) return here.error();
    const auto device = here->runtime->contexts().device_of(deviceId, "deviceId");
    if (!device) return device.error();
    const auto pool = here->runtime->pools().import_pool(shareableHandle);
    if (!pool) return pool.error();
    *memPool = *pool;
    return {};
  });
}

aclError aclrtMemPoolExportPointer(void* ptr, aclrtMemPoolPtrExportData* exportData) {
  return answer([&]() -> Result<void> {
    if (ptr == nullptr) return null_argument("ptr");
    if (exportData == nullptr) return null_argument("exportData");
    const auto here = Here::get();
    if (!here) return here.error();
    const auto bytes = here->runtime->pools().export_pointer(ptr);
    if (!bytes) return bytes.error();
    std::memcpy(exportData->reserved, bytes->data(), bytes->size());
    return {};
  });
}

aclError aclrtMemPoolImportPointer(aclrtMemPool memPool,
                                   const aclrtMemPoolPtrExportData* exportData, void** ptr) {
  return answer([&]() -> Result<void> {
    if (memPool == nullptr) return null_argument("memPool");
    if (exportData == nullptr) return null_argument("exportData");
    if (ptr == nullptr) return null_argument("ptr");
    const auto here = Here::get();
    if (!here) return here.error();
    const std::span<const unsigned char, PoolPointer::kSize> bytes(exportData->reserved);
    const auto pointer = here->runtime->pools().import_pointer(memPool, std::as_bytes(bytes));
    if (!pointer) return pointer.error();
    *ptr = *pointer;
    return {};
  });
}
