// Host memory: private to this process, and the one kind that its forked children keep.

#include <cstdint>

#include "acl/acl.h"
#include "capi/error_code.h"
#include "runtime/runtime.h"

using hufu::Errc;
using hufu::fail;
using hufu::Reason;
using hufu::Result;
using hufu::capi::answer;
using hufu::capi::null_argument;
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
