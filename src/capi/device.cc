// Devices: which one this thread works on, and what it has.

#include "acl/acl.h"
#include "capi/deadline.h"
#include "capi/error_code.h"
#include "runtime/runtime.h"

using hufu::Errc;
using hufu::fail;
using hufu::Reason;
using hufu::Result;
using hufu::capi::answer;
using hufu::capi::deadline_in;
using hufu::capi::null_argument;
using hufu::runtime::Deadline;
using hufu::runtime::Here;
using hufu::runtime::Reset;
using hufu::runtime::Runtime;

namespace {

Result<void> reset(int32_t device, Reset how) {
  const auto runtime = Runtime::get();
  if (!runtime) return runtime.error();
  return (*runtime)->reset_device(device, how);
}

Result<void> synchronize(Deadline deadline) {
  const auto here = Here::get();
  if (!here) return here.error();
  return here->runtime->synchronize_device(here->context.device, deadline);
}

}  // namespace

aclError aclrtSetDevice(int32_t deviceId) {
  return answer([&]() -> Result<void> {
    const auto runtime = Runtime::get();
    if (!runtime) return runtime.error();
    const auto context = (*runtime)->contexts().set_device(deviceId);
    if (!context) return context.error();
    return {};
  });
}

aclError aclrtResetDevice(int32_t deviceId) {
  return answer([&] { return reset(deviceId, Reset::kOneReference); });
}

aclError aclrtResetDeviceForce(int32_t deviceId) {
  return answer([&] { return reset(deviceId, Reset::kAllReferences); });
}

aclError aclrtGetDevice(int32_t* deviceId) {
  return answer([&]() -> Result<void> {
    if (deviceId == nullptr) return null_argument("deviceId");
    const auto here = Here::get();
    if (!here) return here.error();
    *deviceId = here->context.device;
    return {};
  });
}

aclError aclrtGetDeviceCount(uint32_t* count) {
  return answer([&]() -> Result<void> {
    if (count == nullptr) return null_argument("count");
    const auto runtime = Runtime::get();
    if (!runtime) return runtime.error();
    *count = static_cast<uint32_t>((*runtime)->contexts().devices());
    return {};
  });
}

aclError aclrtSynchronizeDevice(void) {
  return answer([] { return synchronize({}); });
}

aclError aclrtSynchronizeDeviceWithTimeout(int32_t timeout) {
  return answer([&]() -> Result<void> {
    const auto deadline = deadline_in(timeout);
    if (!deadline) return deadline.error();
    return synchronize(*deadline);
  });
}

aclError aclrtDeviceGetBareTgid(int32_t* pid) {
  return answer([&]() -> Result<void> {
    if (pid == nullptr) return null_argument("pid");
    const auto runtime = Runtime::get();
    if (!runtime) return runtime.error();
    *pid = (*runtime)->broker_pid_of_self();
    return {};
  });
}

aclError aclrtGetMemInfo(aclrtMemAttr attr, size_t* free, size_t* total) {
  return answer([&]() -> Result<void> {
    if (free == nullptr) return null_argument("free");
    if (total == nullptr) return null_argument("total");
    if (static_cast<unsigned>(attr) > ACL_MEM_P2P_HUGE1G) {
      return fail(Errc::kInvalidMemoryType, Reason::kNone,
                  "attr is {}; pass an aclrtMemAttr, 0 to {}", static_cast<int>(attr),
                  static_cast<int>(ACL_MEM_P2P_HUGE1G));
    }
    const auto here = Here::get();
    if (!here) return here.error();
    const auto capacity = here->runtime->heap().capacity(here->context.device);
    if (!capacity) return capacity.error();
    *free = capacity->free;
    *total = capacity->total;
    return {};
  });
}
