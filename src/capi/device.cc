// Devices: which one this thread works on, and what it has.

#include <algorithm>
#include <array>
#include <string_view>

#include "acl/acl.h"
#include "capi/ability.h"
#include "capi/deadline.h"
#include "capi/error_code.h"
#include "runtime/runtime.h"

using hufu::Ability;
using hufu::Errc;
using hufu::fail;
using hufu::PageSize;
using hufu::Reason;
using hufu::Result;
using hufu::capi::answer;
using hufu::capi::deadline_in;
using hufu::capi::null_argument;
using hufu::capi::require;
using hufu::memory::Usage;
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

// Here is one kind of memory, whether a device calls it HBM or DDR and whoever reaches it. What is
// left of an attribute is the page that it asks about.
PageSize page_of(aclrtMemAttr attr) {
  switch (attr) {
    case ACL_DDR_MEM:
    case ACL_HBM_MEM:
    case ACL_DDR_MEM_NORMAL:
    case ACL_HBM_MEM_NORMAL:
    case ACL_DDR_MEM_P2P_NORMAL:
    case ACL_HBM_MEM_P2P_NORMAL:
    case ACL_MEM_NORMAL:
    case ACL_MEM_P2P_NORMAL:
      return PageSize::k4KiB;
    case ACL_DDR_MEM_HUGE:
    case ACL_HBM_MEM_HUGE:
    case ACL_DDR_MEM_P2P_HUGE:
    case ACL_HBM_MEM_P2P_HUGE:
    case ACL_MEM_HUGE:
    case ACL_MEM_P2P_HUGE:
      return PageSize::k2MiB;
    case ACL_HBM_MEM_HUGE1G:
    case ACL_HBM_MEM_P2P_HUGE1G:
    case ACL_MEM_HUGE1G:
    case ACL_MEM_P2P_HUGE1G:
      return PageSize::k1GiB;
  }
  return PageSize::k4KiB;
}

aclrtMemUsageInfo usage_info(std::string_view name, const Usage::Level& level) {
  aclrtMemUsageInfo info{};
  name.copy(info.name, sizeof(info.name) - 1);
  info.curMemSize = level.now;
  info.memPeakSize = level.peak;
  return info;
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
    const auto id = here->runtime->contexts().id_of(here->context.device);
    *deviceId = static_cast<int32_t>(*id);  // Only what is visible becomes current.
    return {};
  });
}

aclError aclrtGetDeviceCount(uint32_t* count) {
  return answer([&]() -> Result<void> {
    if (count == nullptr) return null_argument("count");
    const auto runtime = Runtime::get();
    if (!runtime) return runtime.error();
    *count = static_cast<uint32_t>((*runtime)->contexts().visible_devices());
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
    const PageSize page = page_of(attr);
    auto capacity = here->runtime->heap().capacity(here->context.device, page);
    if (!capacity) return capacity.error();
    if (page == PageSize::k1GiB && !require(Ability::kGiantPages)) *capacity = {};
    *free = capacity->free;
    *total = capacity->total;
    return {};
  });
}

// CANN lists the modules of its runtime. Here are two: the program, and what is kept ready for it.
aclError aclrtGetMemUsageInfo(int32_t deviceId, aclrtMemUsageInfo* memUsageInfo, size_t inputNum,
                              size_t* outputNum) {
  return answer([&]() -> Result<void> {
    if (memUsageInfo == nullptr) return null_argument("memUsageInfo");
    if (outputNum == nullptr) return null_argument("outputNum");
    if (inputNum == 0) {
      return fail(Errc::kInvalidValue, Reason::kNone,
                  "inputNum is 0; pass how many entries memUsageInfo has, 2 for all there are");
    }
    const auto runtime = Runtime::get();
    if (!runtime) return runtime.error();
    const auto device = (*runtime)->contexts().device_of(deviceId, "deviceId");
    if (!device) return device.error();
    const Usage::Levels levels = (*runtime)->heap().usage().levels(*device);
    const std::array all = {usage_info("APP", levels.in_use), usage_info("RUNTIME", levels.ready)};
    const size_t count = std::min(inputNum, all.size());
    std::copy_n(all.begin(), count, memUsageInfo);
    *outputNum = count;
    return {};
  });
}
