// Copies and sets.

#include "runtime/copy.h"

#include "acl/acl.h"
#include "capi/error_code.h"
#include "runtime/runtime.h"

using hufu::Errc;
using hufu::fail;
using hufu::Reason;
using hufu::Result;
using hufu::capi::answer;
using hufu::capi::null_argument;
using hufu::runtime::CopyKind;
using hufu::runtime::Here;

static_assert(static_cast<int>(CopyKind::kHostToHost) == ACL_MEMCPY_HOST_TO_HOST &&
              static_cast<int>(CopyKind::kHostToDevice) == ACL_MEMCPY_HOST_TO_DEVICE &&
              static_cast<int>(CopyKind::kDeviceToHost) == ACL_MEMCPY_DEVICE_TO_HOST &&
              static_cast<int>(CopyKind::kDeviceToDevice) == ACL_MEMCPY_DEVICE_TO_DEVICE &&
              static_cast<int>(CopyKind::kDefault) == ACL_MEMCPY_DEFAULT &&
              static_cast<int>(CopyKind::kHostToBufferToDevice) ==
                  ACL_MEMCPY_HOST_TO_BUF_TO_DEVICE);

namespace {

Result<void> check(const void* dst, const void* src, aclrtMemcpyKind kind) {
  if (dst == nullptr) return null_argument("dst");
  if (src == nullptr) return null_argument("src");
  if (static_cast<unsigned>(kind) > ACL_MEMCPY_HOST_TO_BUF_TO_DEVICE) {
    return fail(Errc::kInvalidArgument, Reason::kNone,
                "kind is {}; pass 0 to {}, or ACL_MEMCPY_DEFAULT to let the addresses decide",
                static_cast<int>(kind), static_cast<int>(ACL_MEMCPY_HOST_TO_BUF_TO_DEVICE));
  }
  return {};
}

}  // namespace

aclError aclrtMemcpy(void* dst, size_t destMax, const void* src, size_t count,
                     aclrtMemcpyKind kind) {
  if (count == 0) return ACL_SUCCESS;  // Before any other check, as the contract has it.
  return answer([&]() -> Result<void> {
    if (auto good = check(dst, src, kind); !good) return good;
    const auto here = Here::get();
    if (!here) return here.error();
    return hufu::runtime::copy(*here->runtime, dst, destMax, src, count,
                               static_cast<CopyKind>(kind));
  });
}

aclError aclrtMemset(void* devPtr, size_t maxCount, int32_t value, size_t count) {
  if (count == 0) return ACL_SUCCESS;
  return answer([&]() -> Result<void> {
    if (devPtr == nullptr) return null_argument("devPtr");
    const auto here = Here::get();
    if (!here) return here.error();
    return hufu::runtime::fill(*here->runtime, devPtr, maxCount, value, count);
  });
}

aclError aclrtMemcpyAsync(void* dst, size_t destMax, const void* src, size_t count,
                          aclrtMemcpyKind kind, aclrtStream stream) {
  if (count == 0) return ACL_SUCCESS;
  return answer([&]() -> Result<void> {
    if (auto good = check(dst, src, kind); !good) return good;
    const auto here = Here::get();
    if (!here) return here.error();
    return hufu::runtime::copy_on(*here->runtime, {.stream = stream, .context = here->context}, dst,
                                  destMax, src, count, static_cast<CopyKind>(kind));
  });
}

aclError aclrtMemsetAsync(void* devPtr, size_t maxCount, int32_t value, size_t count,
                          aclrtStream stream) {
  if (count == 0) return ACL_SUCCESS;
  return answer([&]() -> Result<void> {
    if (devPtr == nullptr) return null_argument("devPtr");
    const auto here = Here::get();
    if (!here) return here.error();
    return hufu::runtime::fill_on(*here->runtime, {.stream = stream, .context = here->context},
                                  devPtr, maxCount, value, count);
  });
}
