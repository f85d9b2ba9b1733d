// Copies whose addresses lie in device memory: in cells, or in a descriptor.

#include "acl/acl.h"
#include "capi/error_code.h"
#include "runtime/copy.h"
#include "runtime/indirect.h"
#include "runtime/runtime.h"

using hufu::Errc;
using hufu::fail;
using hufu::Reason;
using hufu::Result;
using hufu::capi::answer;
using hufu::capi::null_argument;
using hufu::runtime::CopyKind;
using hufu::runtime::Descriptor;
using hufu::runtime::Here;

static_assert(hufu::runtime::kNoCopy == ACL_ERROR_RT_SYS_DMA);

namespace {

Result<void> check_inner(aclrtMemcpyKind kind) {
  if (kind == ACL_MEMCPY_INNER_DEVICE_TO_DEVICE) return {};
  return fail(Errc::kInvalidValue, Reason::kNone,
              "kind is {}; this copy stays inside device memory: pass "
              "ACL_MEMCPY_INNER_DEVICE_TO_DEVICE ({})",
              static_cast<int>(kind), static_cast<int>(ACL_MEMCPY_INNER_DEVICE_TO_DEVICE));
}

}  // namespace

aclError aclrtMemcpyAsyncWithOffset(void** dst, size_t destMax, size_t dstDataOffset,
                                    const void** src, size_t count, size_t srcDataOffset,
                                    aclrtMemcpyKind kind, aclrtStream stream) {
  if (count == 0) return ACL_SUCCESS;
  return answer([&]() -> Result<void> {
    if (dst == nullptr) return null_argument("dst");
    if (src == nullptr) return null_argument("src");
    if (auto good = check_inner(kind); !good) return good;
    if (auto fits = hufu::runtime::check_room(destMax, count, "destMax"); !fits) return fits;
    const auto here = Here::get();
    if (!here) return here.error();
    return hufu::runtime::copy_on(*here->runtime, {.stream = stream, .context = here->context},
                                  {.to_cell = dst,
                                   .to_offset = dstDataOffset,
                                   .from_cell = src,
                                   .from_offset = srcDataOffset,
                                   .count = count});
  });
}

aclError aclrtGetMemcpyDescSize(aclrtMemcpyKind kind, size_t* descSize) {
  return answer([&]() -> Result<void> {
    if (descSize == nullptr) return null_argument("descSize");
    if (auto good = check_inner(kind); !good) return good;
    *descSize = sizeof(Descriptor);
    return {};
  });
}

aclError aclrtSetMemcpyDesc(void* desc, aclrtMemcpyKind kind, void* srcAddr, void* dstAddr,
                            size_t count, void* config) {
  return answer([&]() -> Result<void> {
    if (desc == nullptr) return null_argument("desc");
    if (srcAddr == nullptr) return null_argument("srcAddr");
    if (dstAddr == nullptr) return null_argument("dstAddr");
    if (count == 0) {
      return fail(Errc::kInvalidArgument, Reason::kEmptyRange,
                  "count is 0; pass the number of bytes that the descriptor stands for");
    }
    if (auto good = check_inner(kind); !good) return good;
    if (config != nullptr) {
      return fail(Errc::kInvalidValue, Reason::kNone, "config is {}; it is reserved, pass null",
                  config);
    }
    const auto here = Here::get();
    if (!here) return here.error();
    const Descriptor made{.to = reinterpret_cast<std::uintptr_t>(dstAddr),
                          .from = reinterpret_cast<std::uintptr_t>(srcAddr),
                          .count = count};
    return hufu::runtime::copy(*here->runtime, desc, sizeof made, &made, sizeof made,
                               CopyKind::kHostToDevice);
  });
}

aclError aclrtMemcpyAsyncWithDesc(void* desc, aclrtMemcpyKind kind, aclrtStream stream) {
  return answer([&]() -> Result<void> {
    if (desc == nullptr) return null_argument("desc");
    if (auto good = check_inner(kind); !good) return good;
    const auto here = Here::get();
    if (!here) return here.error();
    return hufu::runtime::copy_by_descriptor_on(*here->runtime,
                                                {.stream = stream, .context = here->context}, desc);
  });
}
