// Cache maintenance. Host memory is coherent, so there is nothing to prefetch, write back or
// invalidate: what is left of these tasks is their place in the stream's order.

#include <array>

#include "acl/acl.h"
#include "capi/error_code.h"
#include "runtime/copy.h"
#include "runtime/runtime.h"

using hufu::Errc;
using hufu::fail;
using hufu::Reason;
using hufu::Result;
using hufu::capi::answer;
using hufu::capi::null_argument;
using hufu::runtime::CopyKind;
using hufu::runtime::Here;

namespace {

// As it lies in device memory; nobody reads it.
using Description = std::array<std::uint64_t, 8>;

Result<void> check_range(const void* src, size_t size) {
  if (src == nullptr) return null_argument("src");
  if (size == 0) {
    return fail(Errc::kInvalidArgument, Reason::kEmptyRange,
                "size is 0; pass the number of bytes to maintain");
  }
  return {};
}

Result<void> check_kind(aclrtCmoType kind) {
  switch (kind) {
    case ACL_RT_CMO_TYPE_PREFETCH:
    case ACL_RT_CMO_TYPE_WRITEBACK:
    case ACL_RT_CMO_TYPE_INVALID:
    case ACL_RT_CMO_TYPE_FLUSH:
      return {};
  }
  return fail(Errc::kNotSupported, Reason::kNone, "cmoType is {}; pass a value of aclrtCmoType",
              static_cast<int>(kind));
}

Result<void> order_on(aclrtStream stream) {
  const auto here = Here::get();
  if (!here) return here.error();
  return hufu::runtime::order_on(*here->runtime, {.stream = stream, .context = here->context});
}

}  // namespace

aclError aclrtCmoAsync(void* src, size_t size, aclrtCmoType cmoType, aclrtStream stream) {
  return answer([&]() -> Result<void> {
    if (auto good = check_range(src, size); !good) return good;
    if (auto good = check_kind(cmoType); !good) return good;
    return order_on(stream);
  });
}

aclError aclrtCmoAsyncWithBarrier(void* src, size_t size, aclrtCmoType cmoType,
                                  uint32_t /*barrierId*/, aclrtStream stream) {
  return answer([&]() -> Result<void> {
    if (auto good = check_range(src, size); !good) return good;
    if (auto good = check_kind(cmoType); !good) return good;
    return order_on(stream);
  });
}

// What a barrier waits for is done when it was issued.
aclError aclrtCmoWaitBarrier(aclrtBarrierTaskInfo* taskInfo, aclrtStream stream,
                             uint32_t /*flag*/) {
  return answer([&]() -> Result<void> {
    if (taskInfo == nullptr) return null_argument("taskInfo");
    if (taskInfo->barrierNum == 0 || taskInfo->barrierNum > ACL_RT_CMO_MAX_BARRIER_NUM) {
      return fail(Errc::kInvalidValue, Reason::kOutOfRange,
                  "barrierNum is {}; pass 1 to {}, the number of entries in cmoInfo",
                  taskInfo->barrierNum, ACL_RT_CMO_MAX_BARRIER_NUM);
    }
    for (size_t i = 0; i < taskInfo->barrierNum; ++i) {
      if (auto good = check_kind(taskInfo->cmoInfo[i].cmoType); !good) return good;
    }
    return order_on(stream);
  });
}

aclError aclrtCmoGetDescSize(size_t* size) {
  return answer([&]() -> Result<void> {
    if (size == nullptr) return null_argument("size");
    *size = sizeof(Description);
    return {};
  });
}

aclError aclrtCmoSetDesc(void* cmoDesc, void* src, size_t size) {
  return answer([&]() -> Result<void> {
    if (cmoDesc == nullptr) return null_argument("cmoDesc");
    if (auto good = check_range(src, size); !good) return good;
    const auto here = Here::get();
    if (!here) return here.error();
    const Description made{reinterpret_cast<std::uintptr_t>(src), size};
    return hufu::runtime::copy(*here->runtime, cmoDesc, sizeof made, &made, sizeof made,
                               CopyKind::kHostToDevice);
  });
}

aclError aclrtCmoAsyncWithDesc(void* cmoDesc, aclrtCmoType cmoType, aclrtStream stream,
                               const void* /*reserve*/) {
  return answer([&]() -> Result<void> {
    if (cmoDesc == nullptr) return null_argument("cmoDesc");
    if (auto good = check_kind(cmoType); !good) return good;
    return order_on(stream);
  });
}
