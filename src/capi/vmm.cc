// Virtual memory management: addresses, physical memory, the one mapped at the other, and shareable
// handles of it.

#include <chrono>
#include <cstdint>
#include <cstring>
#include <set>
#include <span>

#include "acl/acl.h"
#include "capi/ability.h"
#include "capi/error_code.h"
#include "memory/physical.h"
#include "memory/reservations.h"
#include "runtime/runtime.h"
#include "share/handle_name.h"
#include "share/waiting.h"

using hufu::Ability;
using hufu::bytes_of;
using hufu::Errc;
using hufu::fail;
using hufu::is_aligned;
using hufu::PageSize;
using hufu::Reason;
using hufu::Result;
using hufu::capi::answer;
using hufu::capi::null_argument;
using hufu::capi::require;
using hufu::memory::Accessor;
using hufu::memory::PhysicalSpec;
using hufu::os::Touch;
using hufu::runtime::Contexts;
using hufu::runtime::Here;
using hufu::runtime::Runtime;
using hufu::share::HandleName;
using Properties = hufu::runtime::PhysicalSharing::Properties;

namespace {

hufu::Error fail_flags(uint64_t flags, const char* good) {
  return fail(Errc::kInvalidArgument, Reason::kBadFlags, "flags is {:#x}; pass {}", flags, good);
}

hufu::Error fail_size_0() { return fail(Errc::kInvalidArgument, Reason::kEmptyRange, "size is 0"); }

// What a C caller wrote there, which may be none of the enumerators.
template <class Enum>
int number_in(const Enum& value) {
  static_assert(sizeof(Enum) == sizeof(int));
  int number = 0;
  std::memcpy(&number, &value, sizeof(number));
  return number;
}

// What an aclrtMemAttr says. Where it says HBM or DDR it is about the location, too.
struct Kind {
  PageSize page = PageSize::k2MiB;  // Normal pages are huge ones.
  bool normal = false;
  bool peer = false;
  bool ddr = false;
};

Result<Kind> kind_of(const aclrtPhysicalMemProp& prop) {
  Kind kind;
  switch (number_in(prop.memAttr)) {
    case ACL_MEM_NORMAL:
    case ACL_HBM_MEM_NORMAL:
      kind = {.normal = true};
      break;
    case ACL_MEM_HUGE:
    case ACL_HBM_MEM_HUGE:
      break;
    case ACL_MEM_HUGE1G:
    case ACL_HBM_MEM_HUGE1G:
      kind = {.page = PageSize::k1GiB};
      break;
    case ACL_MEM_P2P_NORMAL:
      kind = {.normal = true, .peer = true};
      break;
    case ACL_MEM_P2P_HUGE:
      kind = {.peer = true};
      break;
    case ACL_MEM_P2P_HUGE1G:
      kind = {.page = PageSize::k1GiB, .peer = true};
      break;
    case ACL_DDR_MEM_HUGE:
      kind = {.ddr = true};
      break;
    case ACL_DDR_MEM_NORMAL:
      kind = {.normal = true, .ddr = true};
      break;
    case ACL_DDR_MEM_P2P_HUGE:
      kind = {.peer = true, .ddr = true};
      break;
    case ACL_DDR_MEM_P2P_NORMAL:
      kind = {.normal = true, .peer = true, .ddr = true};
      break;
    default:
      return fail(Errc::kInvalidArgument, Reason::kNone,
                  "prop->memAttr is {}; pass ACL_HBM_MEM_HUGE (4), _NORMAL (5), _HUGE1G (10), "
                  "ACL_DDR_MEM_* (2, 3, 6, 7) for the host, or ACL_MEM_* (12 to 17)",
                  number_in(prop.memAttr));
  }
  if (kind.ddr && number_in(prop.location.type) == ACL_MEM_LOCATION_TYPE_DEVICE) {
    return fail(Errc::kInvalidArgument, Reason::kNone,
                "prop->memAttr is {}, memory of the host, and prop->location is a device; pass "
                "ACL_HBM_MEM_* or ACL_MEM_*, or ACL_MEM_LOCATION_TYPE_HOST",
                number_in(prop.memAttr));
  }
  return kind;
}

Result<void> check_prop(const aclrtPhysicalMemProp& prop) {
  if (number_in(prop.handleType) != ACL_MEM_HANDLE_TYPE_NONE) {
    return fail(Errc::kInvalidArgument, Reason::kNone,
                "prop->handleType is {}; pass ACL_MEM_HANDLE_TYPE_NONE (0)",
                number_in(prop.handleType));
  }
  if (number_in(prop.allocationType) != ACL_MEM_ALLOCATION_TYPE_PINNED) {
    return fail(Errc::kInvalidArgument, Reason::kNone,
                "prop->allocationType is {}; pass ACL_MEM_ALLOCATION_TYPE_PINNED (0)",
                number_in(prop.allocationType));
  }
  switch (number_in(prop.location.type)) {
    case ACL_MEM_LOCATION_TYPE_DEVICE:
    case ACL_MEM_LOCATION_TYPE_HOST:
    case ACL_MEM_LOCATION_TYPE_HOST_NUMA:
      return {};
    default:
      return fail(Errc::kInvalidArgument, Reason::kNone,
                  "prop->location.type is {}; pass ACL_MEM_LOCATION_TYPE_DEVICE (1) or _HOST (0)",
                  number_in(prop.location.type));
  }
}

// The rest of what CANN's driver checks, and where the memory comes from.
Result<PhysicalSpec> spec_of(Runtime& runtime, size_t size, const aclrtPhysicalMemProp& prop,
                             const Kind& kind) {
  PhysicalSpec spec{
      .size = size, .page = kind.page, .may_fall_back = kind.normal, .peer = kind.peer};
  const auto context = runtime.contexts().current();
  if (number_in(prop.location.type) == ACL_MEM_LOCATION_TYPE_DEVICE) {
    const auto device = runtime.contexts().device_of(prop.location.id, "prop->location.id");
    if (!device) return device.error();
    spec.device = *device;
  }
  if (number_in(prop.location.type) == ACL_MEM_LOCATION_TYPE_HOST_NUMA) {
    if (!context) return context.error();
    return fail(Errc::kNotSupported, Reason::kNone,
                "prop->location: memory of one NUMA node is not built; pass "
                "ACL_MEM_LOCATION_TYPE_HOST with id 0");
  }
  if (kind.page == PageSize::k1GiB) {
    if (auto able = require(Ability::kGiantPages); !able) return able.error();
  }
  if (!is_aligned(size, bytes_of(kind.page))) {
    return fail(
        Errc::kInvalidValue, Reason::kNotAligned,
        "size {} is not a multiple of {}, what aclrtMemGetAllocationGranularity says; round "
        "it up",
        size, bytes_of(kind.page));
  }
  if (number_in(prop.location.type) == ACL_MEM_LOCATION_TYPE_HOST) {
    if (prop.location.id != 0 || kind.page == PageSize::k1GiB) {
      return fail(Errc::kNotSupported, Reason::kNone,
                  "prop->location is host {} with pages of {} bytes; pass id 0 and pages of 2 MiB",
                  prop.location.id, bytes_of(kind.page));
    }
    spec.on_host = true;
    // All memory here is the host's, and counted by device: by the thread's, then.
    spec.device = context ? context->device : 0;
    return spec;
  }
  if (context && context->device != spec.device) {
    return fail(Errc::kRefused, Reason::kNoDevice,
                "prop->location.id is {}, but the thread's current device is {}; call "
                "aclrtSetDevice({}) first",
                prop.location.id, *runtime.contexts().id_of(context->device), prop.location.id);
  }
  return spec;
}

Result<void> reserve(void** virPtr, size_t size, size_t alignment, void* expectPtr) {
  if (alignment != 0) {
    return fail(Errc::kInvalidValue, Reason::kNone,
                "alignment is {}; pass 0, the range starts at a multiple of 2 MiB by itself",
                alignment);
  }
  const auto runtime = Runtime::get();
  if (!runtime) return runtime.error();
  const auto reserved = (*runtime)->reservations().reserve(size, expectPtr);
  if (!reserved) return reserved.error();
  *virPtr = *reserved;
  return {};
}

Result<void> check_reserve(void* const* virPtr, size_t size, uint64_t flags) {
  if (virPtr == nullptr) return null_argument("virPtr");
  if (size == 0) return fail_size_0();
  if (flags > 1) return fail_flags(flags, "0 (1 is taken, too)");
  return {};
}

std::chrono::steady_clock::time_point patience() {
  return std::chrono::steady_clock::now() + std::chrono::milliseconds(hufu::share::wait_limit_ms());
}

Result<void> map(void* virPtr, size_t size, size_t offset, aclrtDrvMemHandle handle, uint64_t flags,
                 Touch touch) {
  if (virPtr == nullptr) return null_argument("virPtr");
  if (handle == nullptr) return null_argument("handle");
  if (size == 0) return fail_size_0();
  if (flags != 0) return fail_flags(flags, "0");
  if (auto able = require(Ability::kVmm); !able) return able;
  if (offset != 0) {
    return fail(Errc::kInvalidValue, Reason::kNone,
                "offset is {}; pass 0, physical memory is mapped as a whole", offset);
  }
  const auto runtime = Runtime::get();
  if (!runtime) return runtime.error();
  auto physical = (*runtime)->physical().find(handle);
  if (!physical) return physical.error();
  return (*runtime)->reservations().map(virPtr, size, std::move(*physical), touch, patience());
}

// A location of aclrtMemSetAccess and aclrtMemGetAccess.
Result<Accessor> accessor_of(const aclrtMemLocation& location, const Contexts& contexts) {
  if (number_in(location.type) == ACL_MEM_LOCATION_TYPE_DEVICE) {
    if (const auto device = contexts.device_of(location.id, "location.id")) {
      return Accessor{.device = *device};
    }
  }
  if (number_in(location.type) == ACL_MEM_LOCATION_TYPE_HOST && location.id == 0) return Accessor();
  return fail(Errc::kInvalidValue, Reason::kNone,
              "location is of type {} with id {}; pass ACL_MEM_LOCATION_TYPE_DEVICE (1) with an id "
              "below {}, or ACL_MEM_LOCATION_TYPE_HOST (0) with id 0",
              number_in(location.type), location.id, contexts.visible_devices());
}

aclrtMemAttr attribute_of(const PhysicalSpec& spec) {
  if (spec.page == PageSize::k1GiB) return spec.peer ? ACL_MEM_P2P_HUGE1G : ACL_MEM_HUGE1G;
  return spec.peer ? ACL_MEM_P2P_HUGE : ACL_MEM_HUGE;
}

// V1's and V2's parameters. The rest of what is refused is the broker's to say.
Result<hufu::wire::ExportHandleReply> export_handle(aclrtDrvMemHandle handle, uint64_t flags) {
  if (auto able = require(Ability::kVmm); !able) return able.error();
  if (flags > ACL_RT_VMM_EXPORT_FLAG_DISABLE_PID_VALIDATION) {
    return fail(Errc::kInvalidValue, Reason::kBadFlags,
                "flags is {:#x}; pass 0 for a whitelist, or 1 for none", flags);
  }
  const auto runtime = Runtime::get();
  if (!runtime) return runtime.error();
  const uint32_t any = flags == ACL_RT_VMM_EXPORT_FLAG_DISABLE_PID_VALIDATION
                           ? uint32_t{hufu::wire::kAnyProcess}
                           : 0;
  return (*runtime)->physical_sharing().export_handle(handle, any);
}

Result<void> check_share_type(aclrtMemSharedHandleType type) {
  if (number_in(type) == ACL_MEM_SHARE_HANDLE_TYPE_DEFAULT) return {};
  if (number_in(type) == ACL_MEM_SHARE_HANDLE_TYPE_FABRIC) return require(Ability::kFabric);
  return fail(Errc::kInvalidValue, Reason::kNone,
              "shareType is {}; pass ACL_MEM_SHARE_HANDLE_TYPE_DEFAULT (1) or _FABRIC (2)",
              number_in(type));
}

HandleName name_of(const void* shareable, aclrtMemSharedHandleType type) {
  if (number_in(type) == ACL_MEM_SHARE_HANDLE_TYPE_DEFAULT) {
    uint64_t token = 0;
    std::memcpy(&token, shareable, sizeof(token));
    return HandleName::of_token(token);
  }
  hufu::share::FabricHandle fabric{};
  std::memcpy(fabric.data(), shareable, fabric.size());
  return HandleName::of_fabric(fabric);
}

Result<void> check_pids(const int32_t* pid, size_t count) {
  if (pid == nullptr) return null_argument("pid");
  constexpr size_t kMost = 65535;  // The driver's.
  if (count == 0) return fail(Errc::kInvalidArgument, Reason::kNone, "pidNum is 0; pass a pid");
  if (count > kMost) {
    return fail(Errc::kInvalidValue, Reason::kNone, "pidNum is {}; pass at most {} at a time",
                count, kMost);
  }
  return {};
}

Result<void> list_pids(const HandleName& name, std::span<const int32_t> pids) {
  if (auto able = require(Ability::kVmm); !able) return able;
  const auto runtime = Runtime::get();
  if (!runtime) return runtime.error();
  return (*runtime)->physical_sharing().list_pids(name, pids);
}

}  // namespace

// --- Addresses -----------------------------------------------------------------------------------

aclError aclrtReserveMemAddress(void** virPtr, size_t size, size_t alignment, void* expectPtr,
                                uint64_t flags) {
  return answer([&]() -> Result<void> {
    if (auto good = check_reserve(virPtr, size, flags); !good) return good;
    if (auto able = require(Ability::kVmm); !able) return able;
    return reserve(virPtr, size, alignment, expectPtr);
  });
}

aclError aclrtReserveMemAddressNoUCMemory(void** virPtr, size_t size, size_t alignment,
                                          void* expectPtr, uint64_t flags) {
  return answer([&]() -> Result<void> {
    if (auto good = check_reserve(virPtr, size, flags); !good) return good;
    if (auto able = require(Ability::kVmm); !able) return able;
    if (auto able = require(Ability::kNoUcRanges); !able) return able;
    if (!is_aligned(size, bytes_of(PageSize::k1GiB)) || expectPtr == nullptr) {
      return fail(Errc::kInvalidValue, Reason::kNone,
                  "size is {} and expectPtr is {}; pass a multiple of 1 GiB and the address where "
                  "it shall lie",
                  size, expectPtr);
    }
    return reserve(virPtr, size, alignment, expectPtr);
  });
}

aclError aclrtReleaseMemAddress(void* virPtr) {
  return answer([&]() -> Result<void> {
    if (virPtr == nullptr) return null_argument("virPtr");
    if (auto able = require(Ability::kVmm); !able) return able;
    const auto runtime = Runtime::get();
    if (!runtime) return runtime.error();
    return (*runtime)->reservations().release(virPtr);
  });
}

// --- Physical memory -----------------------------------------------------------------------------

aclError aclrtMemGetAllocationGranularity(aclrtPhysicalMemProp* prop,
                                          aclrtMemGranularityOptions option, size_t* granularity) {
  return answer([&]() -> Result<void> {
    if (prop == nullptr) return null_argument("prop");
    if (granularity == nullptr) return null_argument("granularity");
    const auto kind = kind_of(*prop);
    if (!kind) return kind.error();
    if (auto able = require(Ability::kVmm); !able) return able;
    const auto runtime = Runtime::get();
    if (!runtime) return runtime.error();
    if (number_in(prop->location.type) == ACL_MEM_LOCATION_TYPE_DEVICE) {
      const auto device = (*runtime)->contexts().device_of(prop->location.id, "prop->location.id");
      if (!device) return device.error();
    }
    if (number_in(option) != ACL_RT_MEM_ALLOC_GRANULARITY_MINIMUM &&
        number_in(option) != ACL_RT_MEM_ALLOC_GRANULARITY_RECOMMENDED) {
      return fail(Errc::kInvalidValue, Reason::kNone,
                  "option is {}; pass ACL_RT_MEM_ALLOC_GRANULARITY_MINIMUM (0) or _RECOMMENDED (1)",
                  number_in(option));
    }
    *granularity = bytes_of(kind->page);
    return {};
  });
}

aclError aclrtMallocPhysical(aclrtDrvMemHandle* handle, size_t size,
                             const aclrtPhysicalMemProp* prop, uint64_t flags) {
  return answer([&]() -> Result<void> {
    if (handle == nullptr) return null_argument("handle");
    if (prop == nullptr) return null_argument("prop");
    if (size == 0) return fail_size_0();
    if (flags != 0) return fail_flags(flags, "0");
    if (auto good = check_prop(*prop); !good) return good;
    const auto kind = kind_of(*prop);
    if (!kind) return kind.error();
    if (auto able = require(Ability::kVmm); !able) return able;
    const auto runtime = Runtime::get();
    if (!runtime) return runtime.error();
    const auto spec = spec_of(**runtime, size, *prop, *kind);
    if (!spec) return spec.error();
    const auto allocated = (*runtime)->physical().allocate(*spec);
    if (!allocated) return allocated.error();
    *handle = *allocated;
    return {};
  });
}

aclError aclrtFreePhysical(aclrtDrvMemHandle handle) {
  return answer([&]() -> Result<void> {
    if (handle == nullptr) return null_argument("handle");
    if (auto able = require(Ability::kVmm); !able) return able;
    const auto runtime = Runtime::get();
    if (!runtime) return runtime.error();
    return (*runtime)->physical_sharing().free(handle);
  });
}

aclError aclrtMemGetAllocationPropertiesFromHandle(aclrtDrvMemHandle handle,
                                                   aclrtPhysicalMemProp* prop) {
  return answer([&]() -> Result<void> {
    if (handle == nullptr) return null_argument("handle");
    if (prop == nullptr) return null_argument("prop");
    if (auto able = require(Ability::kVmm); !able) return able;
    const auto runtime = Runtime::get();
    if (!runtime) return runtime.error();
    const auto physical = (*runtime)->physical().find(handle);
    if (!physical) return physical.error();
    if (!(*physical)->has_properties()) {
      return fail(
          Errc::kNotSupported, Reason::kNone,
          "handle {} was imported by aclrtMemImportFromShareableHandle, which does not tell "
          "the properties; use aclrtMemImportFromShareableHandleV2",
          handle);
    }
    const PhysicalSpec& spec = (*physical)->spec();
    aclrtPhysicalMemProp answered{};
    answered.handleType = ACL_MEM_HANDLE_TYPE_NONE;
    answered.allocationType = ACL_MEM_ALLOCATION_TYPE_PINNED;
    answered.memAttr = attribute_of(spec);
    if (spec.on_host) {
      answered.location = {.id = 0, .type = ACL_MEM_LOCATION_TYPE_HOST};
    } else {
      const auto id = (*runtime)->contexts().id_of(spec.device);
      answered.location = {.id = id.value_or(UINT32_MAX), .type = ACL_MEM_LOCATION_TYPE_DEVICE};
    }
    *prop = answered;
    return {};
  });
}

// --- Mapping -------------------------------------------------------------------------------------

aclError aclrtMapMem(void* virPtr, size_t size, size_t offset, aclrtDrvMemHandle handle,
                     uint64_t flags) {
  return answer([&] { return map(virPtr, size, offset, handle, flags, Touch::kReadWrite); });
}

aclError aclrtMemMapNoAccess(void* virPtr, size_t size, size_t offset, aclrtDrvMemHandle handle,
                             uint64_t flags) {
  return answer([&] { return map(virPtr, size, offset, handle, flags, Touch::kNothing); });
}

aclError aclrtUnmapMem(void* virPtr) {
  return answer([&]() -> Result<void> {
    if (virPtr == nullptr) return null_argument("virPtr");
    if (auto able = require(Ability::kVmm); !able) return able;
    const auto runtime = Runtime::get();
    if (!runtime) return runtime.error();
    return (*runtime)->unmap(virPtr);
  });
}

aclError aclrtMemSetAccess(void* virPtr, size_t size, aclrtMemAccessDesc* desc, size_t count) {
  return answer([&]() -> Result<void> {
    if (virPtr == nullptr || desc == nullptr || count == 0) {  // 107000, unlike other calls' nulls.
      return fail(Errc::kInvalidValue, Reason::kNone,
                  "virPtr is {}, desc is {} and count is {}; none of them may be 0", virPtr,
                  static_cast<void*>(desc), count);
    }
    if (auto able = require(Ability::kVmm); !able) return able;
    const auto runtime = Runtime::get();
    if (!runtime) return runtime.error();
    std::set<Accessor> by;
    for (size_t i = 0; i < count; ++i) {
      if (number_in(desc[i].flags) != ACL_RT_MEM_ACCESS_FLAGS_READWRITE) {
        return fail(Errc::kNotSupported, Reason::kBadFlags,
                    "desc[{}].flags is {}; only ACL_RT_MEM_ACCESS_FLAGS_READWRITE (3) is supported",
                    i, number_in(desc[i].flags));
      }
      const auto accessor = accessor_of(desc[i].location, (*runtime)->contexts());
      if (!accessor) return accessor.error();
      if (!by.insert(*accessor).second) {
        return fail(Errc::kInvalidValue, Reason::kNone,
                    "desc[{}].location is that of an earlier entry; name each once", i);
      }
    }
    return (*runtime)->reservations().allow(virPtr, size, by);
  });
}

aclError aclrtMemGetAccess(void* virPtr, aclrtMemLocation* location, uint64_t* flag) {
  return answer([&]() -> Result<void> {
    if (virPtr == nullptr) return null_argument("virPtr");
    if (location == nullptr) return null_argument("location");
    if (flag == nullptr) return null_argument("flag");
    if (auto able = require(Ability::kVmm); !able) return able;
    const auto runtime = Runtime::get();
    if (!runtime) return runtime.error();
    const auto accessor = accessor_of(*location, (*runtime)->contexts());
    if (!accessor) return accessor.error();
    const auto allowed = (*runtime)->reservations().allowed(virPtr, *accessor);
    if (!allowed) return allowed.error();
    *flag = *allowed ? ACL_RT_MEM_ACCESS_FLAGS_READWRITE : ACL_RT_MEM_ACCESS_FLAGS_NONE;
    return {};
  });
}

aclError aclrtMemRetainAllocationHandle(void* virPtr, aclrtDrvMemHandle* handle) {
  return answer([&]() -> Result<void> {
    if (virPtr == nullptr) return null_argument("virPtr");
    if (handle == nullptr) return null_argument("handle");
    if (auto able = require(Ability::kVmm); !able) return able;
    const auto runtime = Runtime::get();
    if (!runtime) return runtime.error();
    const auto physical = (*runtime)->reservations().mapped_at(virPtr);
    if (!physical) return physical.error();
    *handle = (*runtime)->physical().retain(*physical);
    return {};
  });
}

aclError aclrtMemMapSetLink(aclrtDrvMemHandle handle, aclrtMemLinkType adviceLink) {
  return answer([&]() -> Result<void> {
    if (handle == nullptr || number_in(adviceLink) < 0 ||
        number_in(adviceLink) > ACL_RT_MEM_ACCESS_UB_MULTI_PORT_PATH) {
      return fail(Errc::kInvalidValue, Reason::kNone,
                  "handle is {} and adviceLink is {}; pass a handle, and a link of 0 to 3", handle,
                  number_in(adviceLink));
    }
    if (auto able = require(Ability::kVmm); !able) return able;
    const auto runtime = Runtime::get();
    if (!runtime) return runtime.error();
    // One kind of memory has one link, so good advice changes nothing.
    const auto physical = (*runtime)->physical().find(handle);
    if (!physical) return physical.error();
    return {};
  });
}

aclError aclrtMemMapSelectedLink(void* virPtrDst, size_t size, void* virPtrSrc, uint32_t linkIdx) {
  return answer([&]() -> Result<void> {
    if (virPtrDst == nullptr || virPtrSrc == nullptr || size == 0 || linkIdx > 1) {
      return fail(Errc::kInvalidValue, Reason::kNone,
                  "virPtrDst is {}, virPtrSrc is {}, size is {} and linkIdx is {}; pass two ranges "
                  "and a link of 0 or 1",
                  virPtrDst, virPtrSrc, size, linkIdx);
    }
    if (auto able = require(Ability::kVmm); !able) return able;
    const auto runtime = Runtime::get();
    if (!runtime) return runtime.error();
    auto physical = (*runtime)->reservations().mapped_from(virPtrSrc);
    if (!physical) return physical.error();
    return (*runtime)->reservations().map(virPtrDst, size, std::move(*physical), Touch::kReadWrite,
                                          patience());
  });
}

// --- Sharing -------------------------------------------------------------------------------------

aclError aclrtMemExportToShareableHandle(aclrtDrvMemHandle handle, aclrtMemHandleType handleType,
                                         uint64_t flags, uint64_t* shareableHandle) {
  return answer([&]() -> Result<void> {
    if (handle == nullptr) return null_argument("handle");
    if (shareableHandle == nullptr) return null_argument("shareableHandle");
    if (number_in(handleType) != ACL_MEM_HANDLE_TYPE_NONE) {
      return fail(Errc::kInvalidArgument, Reason::kNone,
                  "handleType is {}; pass ACL_MEM_HANDLE_TYPE_NONE (0)", number_in(handleType));
    }
    const auto exported = export_handle(handle, flags);
    if (!exported) return exported.error();
    *shareableHandle = exported->token;
    return {};
  });
}

aclError aclrtMemExportToShareableHandleV2(aclrtDrvMemHandle handle, uint64_t flags,
                                           aclrtMemSharedHandleType shareType,
                                           void* shareableHandle) {
  return answer([&]() -> Result<void> {
    if (handle == nullptr) return null_argument("handle");
    if (shareableHandle == nullptr) return null_argument("shareableHandle");
    if (auto good = check_share_type(shareType); !good) return good;
    const auto exported = export_handle(handle, flags);
    if (!exported) return exported.error();
    if (shareType == ACL_MEM_SHARE_HANDLE_TYPE_DEFAULT) {
      std::memcpy(shareableHandle, &exported->token, sizeof(exported->token));
    } else {
      const auto fabric = hufu::share::fabric_handle_of(*exported);
      std::memcpy(shareableHandle, fabric.data(), fabric.size());
    }
    return {};
  });
}

aclError aclrtMemSetPidToShareableHandle(uint64_t shareableHandle, int32_t* pid, size_t pidNum) {
  return answer([&]() -> Result<void> {
    if (auto good = check_pids(pid, pidNum); !good) return good;
    return list_pids(HandleName::of_token(shareableHandle), {pid, pidNum});
  });
}

aclError aclrtMemSetPidToShareableHandleV2(void* shareableHandle,
                                           aclrtMemSharedHandleType shareType, int32_t* pid,
                                           size_t pidNum) {
  return answer([&]() -> Result<void> {
    if (shareableHandle == nullptr) return null_argument("shareableHandle");
    if (auto good = check_pids(pid, pidNum); !good) return good;
    if (auto good = check_share_type(shareType); !good) return good;
    return list_pids(name_of(shareableHandle, shareType), {pid, pidNum});
  });
}

aclError aclrtMemImportFromShareableHandle(uint64_t shareableHandle, int32_t deviceId,
                                           aclrtDrvMemHandle* handle) {
  return answer([&]() -> Result<void> {
    if (handle == nullptr) return null_argument("handle");
    if (auto able = require(Ability::kVmm); !able) return able;
    const auto runtime = Runtime::get();
    if (!runtime) return runtime.error();
    const auto device = (*runtime)->contexts().device_of(deviceId, "deviceId");
    if (!device) return device.error();
    const auto here = Here::get();
    if (!here) return here.error();
    const auto imported = here->runtime->physical_sharing().import(
        HandleName::of_token(shareableHandle), *device, Properties::kUnknown);
    if (!imported) return imported.error();
    *handle = *imported;
    return {};
  });
}

aclError aclrtMemImportFromShareableHandleV2(void* shareableHandle,
                                             aclrtMemSharedHandleType shareType, uint64_t flags,
                                             aclrtDrvMemHandle* handle) {
  return answer([&]() -> Result<void> {
    if (shareableHandle == nullptr) return null_argument("shareableHandle");
    if (handle == nullptr) return null_argument("handle");
    if (flags != 0) return fail_flags(flags, "0");
    if (auto able = require(Ability::kVmm); !able) return able;
    const auto here = Here::get();
    if (!here) return here.error();
    if (auto good = check_share_type(shareType); !good) return good;
    const auto imported = here->runtime->physical_sharing().import(
        name_of(shareableHandle, shareType), here->context.device, Properties::kKnown);
    if (!imported) return imported.error();
    *handle = *imported;
    return {};
  });
}
