// Host memory: private to this process. What is allocated here forked children keep; what the
// program made itself can be registered, and then the runtime knows it.

#include <cstdint>

#include "acl/acl.h"
#include "capi/ability.h"
#include "capi/error_code.h"
#include "runtime/runtime.h"

using hufu::Ability;
using hufu::Errc;
using hufu::fail;
using hufu::Reason;
using hufu::Result;
using hufu::capi::answer;
using hufu::capi::null_argument;
using hufu::capi::require;
using hufu::memory::Registrations;
using hufu::runtime::Here;
using hufu::runtime::Runtime;

namespace {

Result<void> check(const aclrtMallocConfig& cfg) {
  if (cfg.attrs == nullptr && cfg.numAttrs != 0) {
    return fail(Errc::kInvalidArgument, Reason::kNone,
                "cfg->attrs is null but cfg->numAttrs is {}; pass attributes, or a null cfg",
                cfg.numAttrs);
  }
  for (size_t i = 0; i < cfg.numAttrs; ++i) {
    const aclrtMallocAttribute& attribute = cfg.attrs[i];
    switch (attribute.attr) {
      case ACL_RT_MEM_ATTR_MODULE_ID:  // Whom CANN's statistics name; there are none here.
        continue;
      case ACL_RT_MEM_ATTR_VA_FLAG:
        // Host and device have one address space here, so both wishes are granted.
        if (attribute.value.vaFlag <= 1) continue;
        return fail(Errc::kInvalidValue, Reason::kNone,
                    "cfg->attrs[{}].value.vaFlag is {}; pass 0, or 1 for one address on host and "
                    "device",
                    i, attribute.value.vaFlag);
      case ACL_RT_MEM_ATTR_RSV:
      case ACL_RT_MEM_ATTR_DEVICE_ID:
        break;
    }
    return fail(Errc::kInvalidValue, Reason::kNone,
                "cfg->attrs[{}].attr is {}; for host memory pass ACL_RT_MEM_ATTR_MODULE_ID (1) or "
                "ACL_RT_MEM_ATTR_VA_FLAG (3)",
                i, static_cast<int>(attribute.attr));
  }
  return {};
}

// `name` is what the caller's declaration calls the output.
Result<void> allocate(void** out, const char* name, uint64_t size, const aclrtMallocConfig* cfg) {
  if (out == nullptr) return null_argument(name);
  if (size == 0) return fail(Errc::kInvalidArgument, Reason::kEmptyRange, "size is 0");
  const auto here = Here::get();
  if (!here) return here.error();
  if (cfg != nullptr) {
    if (auto good = check(*cfg); !good) return good;
  }
  const auto made = Runtime::host_memory().allocate(size);
  if (!made) return made.error();
  *out = *made;
  return {};
}

Result<void> register_memory(const Registrations::Wish& wish) {
  if (auto able = require(Ability::kHostReg); !able) return able;
  const auto here = Here::get();
  if (!here) return here.error();
  return here->runtime->registrations().add(wish);
}

// What stands in for these units are this process's threads, which reach all of its memory; the
// others have no stand-in.
bool is_there(aclrtHacType unit) {
  switch (unit) {
    case ACL_RT_HAC_TYPE_STARS:
    case ACL_RT_HAC_TYPE_AICPU:
    case ACL_RT_HAC_TYPE_AIC:
    case ACL_RT_HAC_TYPE_AIV:
    case ACL_RT_HAC_TYPE_PCIEDMA:
    case ACL_RT_HAC_TYPE_SDMA:
      return true;
    case ACL_RT_HAC_TYPE_RDMA:
    case ACL_RT_HAC_TYPE_DVPP:
    case ACL_RT_HAC_TYPE_UDMA:
    case ACL_RT_HAC_TYPE_CCU:
      return false;
  }
  return false;
}

hufu::Error fail_no_bytes() {
  return fail(Errc::kInvalidArgument, Reason::kEmptyRange, "size is 0; pass at least one byte");
}

}  // namespace

aclError aclrtMallocHost(void** hostPtr, size_t size) {
  return answer([&] { return allocate(hostPtr, "hostPtr", size, nullptr); });
}

aclError aclrtMallocHostWithCfg(void** ptr, uint64_t size, aclrtMallocConfig* cfg) {
  return answer([&] { return allocate(ptr, "ptr", size, cfg); });
}

aclError aclrtFreeHost(void* hostPtr) {
  return answer([&]() -> Result<void> {
    if (hostPtr == nullptr) return null_argument("hostPtr");
    // No runtime is needed: a forked child may have none, and no broker to make one with.
    return Runtime::deallocate_host(hostPtr);
  });
}

aclError aclrtFreeHostWithDevSync(void* hostPtr) {
  return answer([&]() -> Result<void> {
    if (hostPtr == nullptr) return null_argument("hostPtr");
    const auto here = Here::get();
    if (!here) return here.error();
    if (auto done = here->runtime->streams().synchronize_device(here->context.device, {}); !done) {
      return done;
    }
    return Runtime::deallocate_host(hostPtr);
  });
}

aclError aclrtHostRegister(void* ptr, uint64_t size, aclrtHostRegisterType type, void** devPtr) {
  return answer([&]() -> Result<void> {
    if (ptr == nullptr) return null_argument("ptr");
    if (devPtr == nullptr) return null_argument("devPtr");
    if (size == 0) return fail_no_bytes();
    constexpr unsigned kKnown = ACL_HOST_REGISTER_IOMEMORY | ACL_HOST_REGISTER_READONLY;
    if ((static_cast<unsigned>(type) & ~kKnown) != 0) {
      return fail(Errc::kNotSupported, Reason::kBadFlags,
                  "type is {:#x}; pass ACL_HOST_REGISTER_MAPPED (0), or ACL_HOST_REGISTER_IOMEMORY "
                  "({:#x}), ACL_HOST_REGISTER_READONLY ({:#x}) or both",
                  static_cast<unsigned>(type), static_cast<int>(ACL_HOST_REGISTER_IOMEMORY),
                  static_cast<int>(ACL_HOST_REGISTER_READONLY));
    }
    constexpr uint64_t kPage = 4096;
    if (reinterpret_cast<uintptr_t>(ptr) % kPage != 0) {
      return fail(Errc::kInvalidValue, Reason::kNotAligned,
                  "ptr {:#x} does not start a {}-byte page; register from {:#x} on, or use "
                  "aclrtHostRegisterV2, which takes any address",
                  reinterpret_cast<uintptr_t>(ptr), kPage,
                  reinterpret_cast<uintptr_t>(ptr) / kPage * kPage);
    }
    if (auto done = register_memory({.pointer = ptr,
                                     .size = size,
                                     .mapped = true,
                                     .io_memory = (type & ACL_HOST_REGISTER_IOMEMORY) != 0});
        !done) {
      return done;
    }
    *devPtr = ptr;  // One address space.
    return {};
  });
}

aclError aclrtHostRegisterV2(void* ptr, uint64_t size, uint32_t flag) {
  return answer([&]() -> Result<void> {
    if (ptr == nullptr) return null_argument("ptr");
    if (size == 0) return fail_no_bytes();
    constexpr uint64_t kKnown =
        ACL_HOST_REG_MAPPED | ACL_HOST_REG_IOMEMORY | ACL_HOST_REG_READONLY | ACL_HOST_REG_PINNED;
    if (flag == 0 || (flag & ~kKnown) != 0) {
      return fail(Errc::kInvalidValue, Reason::kBadFlags,
                  "flag is {:#x}; pass ACL_HOST_REG_MAPPED ({:#x}), ACL_HOST_REG_IOMEMORY "
                  "({:#x}), ACL_HOST_REG_READONLY ({:#x}), ACL_HOST_REG_PINNED ({:#x}), or several",
                  flag, ACL_HOST_REG_MAPPED, ACL_HOST_REG_IOMEMORY, ACL_HOST_REG_READONLY,
                  ACL_HOST_REG_PINNED);
    }
    return register_memory({.pointer = ptr,
                            .size = size,
                            .mapped = (flag & ACL_HOST_REG_MAPPED) != 0,
                            .pinned = (flag & ACL_HOST_REG_PINNED) != 0,
                            .io_memory = (flag & ACL_HOST_REG_IOMEMORY) != 0});
  });
}

aclError aclrtHostUnregister(void* ptr) {
  return answer([&]() -> Result<void> {
    if (ptr == nullptr) return null_argument("ptr");
    const auto here = Here::get();
    if (!here) return here.error();
    return here->runtime->registrations().remove(ptr);
  });
}

aclError aclrtHostGetDevicePointer(void* pHost, void** pDevice, uint32_t flag) {
  return answer([&]() -> Result<void> {
    if (pHost == nullptr) return null_argument("pHost");
    if (pDevice == nullptr) return null_argument("pDevice");
    if (flag != 0) {
      return fail(Errc::kInvalidValue, Reason::kBadFlags, "flag is {:#x}; pass 0", flag);
    }
    if (auto able = require(Ability::kHostReg); !able) return able;
    const auto runtime = Runtime::get();
    if (!runtime) return runtime.error();
    const auto device = (*runtime)->registrations().device_pointer(pHost);
    if (!device) return device.error();
    *pDevice = *device;
    return {};
  });
}

aclError aclrtHostMemMapCapabilities(uint32_t deviceId, aclrtHacType hacType,
                                     aclrtHostMemMapCapability* capabilities) {
  return answer([&]() -> Result<void> {
    if (capabilities == nullptr) return null_argument("capabilities");
    if (static_cast<unsigned>(hacType) > ACL_RT_HAC_TYPE_CCU) {
      return fail(Errc::kInvalidValue, Reason::kNone,
                  "hacType is {}; pass an aclrtHacType, 0 to {}", static_cast<int>(hacType),
                  static_cast<int>(ACL_RT_HAC_TYPE_CCU));
    }
    if (auto able = require(Ability::kHostReg); !able) return able;
    const auto runtime = Runtime::get();
    if (!runtime) return runtime.error();
    const auto device = (*runtime)->contexts().device_of(deviceId, "deviceId");
    if (!device) return device.error();
    *capabilities =
        is_there(hacType) ? ACL_RT_HOST_MEM_MAP_SUPPORTED : ACL_RT_HOST_MEM_MAP_NOT_SUPPORTED;
    return {};
  });
}
