// Device memory in a process without a broker: what each call takes, answers and refuses, beyond
// what alone_test.cc says of the common way.

#include <unistd.h>

#include <array>
#include <atomic>
#include <cstring>
#include <string>
#include <thread>

#include <gtest/gtest.h>

#include "acl/acl.h"
#include "capi/alone.h"
#include "hufu/hufu.h"

namespace hufu::test {
namespace {

using DeviceMemory = Alone;

constexpr auto kHugeFirst = ACL_MEM_MALLOC_HUGE_FIRST;

TEST_F(DeviceMemory, ForTheTaskSchedulerIsAllocatedAsWithAConfiguration) {
  void* pointer = nullptr;
  ASSERT_EQ(aclrtMallocForTaskScheduler(&pointer, 8190, kHugeFirst, nullptr), ACL_SUCCESS)
      << recent();
  size_t size = 0;
  EXPECT_EQ(aclrtMemGetAddressRange(pointer, nullptr, &size), ACL_SUCCESS);
  EXPECT_EQ(size, 8192U) << "rounded, not padded";
  EXPECT_EQ(aclrtFree(pointer), ACL_SUCCESS);

  void* const before = pointer;
  EXPECT_EQ(aclrtMallocForTaskScheduler(nullptr, 64, kHugeFirst, nullptr), ACL_ERROR_INVALID_PARAM);
  EXPECT_TRUE(says("devPtr"));
  EXPECT_EQ(aclrtMallocForTaskScheduler(&pointer, 0, kHugeFirst, nullptr), ACL_ERROR_INVALID_PARAM);
  EXPECT_TRUE(says("size"));
  EXPECT_EQ(aclrtMallocForTaskScheduler(&pointer, 1U << 30U, kHugeFirst, nullptr),
            ACL_ERROR_RT_MEMORY_ALLOCATION);
  aclrtMallocConfig no_attributes{nullptr, 1};
  EXPECT_EQ(aclrtMallocForTaskScheduler(&pointer, 64, kHugeFirst, &no_attributes),
            ACL_ERROR_INVALID_PARAM);
  EXPECT_TRUE(says("attrs"));
  EXPECT_EQ(pointer, before);
}

TEST_F(DeviceMemory, IsFreedAfterTheDevicesWork) {
  static std::atomic<bool> ran{false};
  void* pointer = allocate(4096);
  ran = false;
  ASSERT_EQ(hufuLaunchHostTask(
                nullptr,
                [](void* /*arg*/) {
                  std::this_thread::yield();
                  ran = true;
                  return 0;
                },
                nullptr),
            ACL_SUCCESS);
  EXPECT_EQ(aclrtFreeWithDevSync(pointer), ACL_SUCCESS);
  EXPECT_TRUE(ran);
  EXPECT_EQ(aclrtFreeWithDevSync(pointer), ACL_ERROR_RT_PARAM_INVALID);
  EXPECT_EQ(aclrtFreeWithDevSync(nullptr), ACL_ERROR_INVALID_PARAM);
  EXPECT_TRUE(says("devPtr"));
  std::thread([&] { EXPECT_EQ(aclrtFreeWithDevSync(pointer), ACL_ERROR_RT_CONTEXT_NULL); }).join();
}

TEST_F(DeviceMemory, IsNotFreedWhenTheDevicesWorkHasFailed) {
  void* pointer = allocate(4096);
  constexpr aclError kFault = ACL_ERROR_RT_AICORE_EXCEPTION;
  ASSERT_EQ(hufuLaunchHostTask(
                nullptr, [](void* /*arg*/) { return kFault; }, nullptr),
            ACL_SUCCESS);
  EXPECT_EQ(aclrtFreeWithDevSync(pointer), kFault);
  EXPECT_EQ(aclrtFreeWithDevSync(pointer), ACL_SUCCESS) << "the failure is told once";
}

TEST_F(DeviceMemory, ThatIsReadOnlyIsWrittenByNobodyAndNotShared) {
  void* pointer = nullptr;
  const auto policy =
      from_c<aclrtMemMallocPolicy>(ACL_MEM_MALLOC_HUGE_FIRST | ACL_MEM_ACCESS_USER_SPACE_READONLY);
  ASSERT_EQ(aclrtMallocWithCfg(&pointer, 100, policy, nullptr), ACL_SUCCESS) << recent();
  EXPECT_EQ(reinterpret_cast<uintptr_t>(pointer) % 4096, 0U) << "a page of its own";
  EXPECT_EQ(static_cast<const char*>(pointer)[99], 0) << "it can be read";
  std::array<char, 100> host{};
  EXPECT_EQ(aclrtMemcpy(host.data(), 100, pointer, 100, ACL_MEMCPY_DEVICE_TO_HOST), ACL_SUCCESS);
  EXPECT_NE(aclrtMemcpy(pointer, 100, host.data(), 100, ACL_MEMCPY_HOST_TO_DEVICE), ACL_SUCCESS);
  EXPECT_NE(aclrtMemset(pointer, 100, 1, 100), ACL_SUCCESS);
  recent();
  hufuExportability exportability{};
  exportability.structSize = sizeof(exportability);
  ASSERT_EQ(hufuMemQueryExportable(pointer, 100, &exportability), ACL_SUCCESS);
  EXPECT_EQ(exportability.exportable, 0);
  EXPECT_EQ(exportability.wouldReturn, ACL_ERROR_RT_DRV_INTERNAL_ERROR);
  EXPECT_NE(std::strstr(exportability.reason, "USER_SPACE_READONLY"), nullptr);
  EXPECT_EQ(aclrtFree(pointer), ACL_SUCCESS);

  // The next block of its kind is an ordinary one.
  void* next = allocate(4000);
  std::memset(next, 1, 4000);
  EXPECT_EQ(aclrtFree(next), ACL_SUCCESS);
  // With the padded call the bit is part of a number that is no policy: the default.
  ASSERT_EQ(aclrtMalloc(&pointer, 100, policy), ACL_SUCCESS);
  std::memset(pointer, 1, 100);
  EXPECT_EQ(aclrtFree(pointer), ACL_SUCCESS);
}

// A forked child has no device memory, so no death test could tell; the kernel can.
bool can_be_written(void* address) {
  std::array<int, 2> ends{};
  EXPECT_EQ(::pipe(ends.data()), 0);
  EXPECT_EQ(::write(ends[1], "x", 1), 1);
  const bool written = ::read(ends[0], address, 1) == 1;
  ::close(ends[0]);
  ::close(ends[1]);
  return written;
}

TEST_F(DeviceMemory, ThatIsReadOnlyFaultsWhenTheProgramWritesIt) {
  void* pointer = nullptr;
  const auto policy =
      from_c<aclrtMemMallocPolicy>(ACL_MEM_MALLOC_NORMAL_ONLY | ACL_MEM_ACCESS_USER_SPACE_READONLY);
  ASSERT_EQ(aclrtMallocWithCfg(&pointer, 100, policy, nullptr), ACL_SUCCESS) << recent();
  EXPECT_FALSE(can_be_written(pointer));
  EXPECT_EQ(aclrtFree(pointer), ACL_SUCCESS);
  void* ordinary = allocate(8192);
  EXPECT_TRUE(can_be_written(ordinary));
  EXPECT_EQ(aclrtFree(ordinary), ACL_SUCCESS);
}

TEST_F(DeviceMemory, InfoIsAboutThePageThatIsAskedFor) {
  constexpr size_t kAll = 128U << 20U;
  void* pointer = allocate(4096);  // Leaves no whole number of huge pages.
  for (int attr = 0; attr <= ACL_MEM_P2P_HUGE1G; ++attr) {
    size_t free = 17;
    size_t total = 17;
    EXPECT_EQ(aclrtGetMemInfo(from_c<aclrtMemAttr>(attr), &free, &total), ACL_SUCCESS) << attr;
    EXPECT_LE(free, total);
    switch (attr) {
      case ACL_DDR_MEM_HUGE:
      case ACL_HBM_MEM_HUGE:
      case ACL_DDR_MEM_P2P_HUGE:
      case ACL_HBM_MEM_P2P_HUGE:
      case ACL_MEM_HUGE:
      case ACL_MEM_P2P_HUGE:
        EXPECT_EQ(total, kAll) << attr;
        EXPECT_EQ(free, kAll - (2U << 20U)) << attr;
        break;
      case ACL_HBM_MEM_HUGE1G:
      case ACL_HBM_MEM_P2P_HUGE1G:
      case ACL_MEM_HUGE1G:
      case ACL_MEM_P2P_HUGE1G:
        // Less than one fits on such a device, whatever the machine has.
        EXPECT_EQ(total, 0U) << attr;
        EXPECT_EQ(free, 0U) << attr;
        break;
      default:
        EXPECT_EQ(total, kAll) << attr;
        EXPECT_EQ(free, kAll - 4096) << attr;
    }
  }
  EXPECT_EQ(aclrtFree(pointer), ACL_SUCCESS);
}

TEST_F(DeviceMemory, UsageTellsWhatIsInUseAndTheMostThatWas) {
  std::array<aclrtMemUsageInfo, 4> infos{};
  size_t count = 0;
  ASSERT_EQ(aclrtGetMemUsageInfo(0, infos.data(), infos.size(), &count), ACL_SUCCESS) << recent();
  ASSERT_EQ(count, 2U);
  EXPECT_STREQ(infos[0].name, "APP");
  EXPECT_STREQ(infos[1].name, "RUNTIME");
  const uint64_t before = infos[0].curMemSize;
  void* pointer = allocate(32U << 20U);
  ASSERT_EQ(aclrtGetMemUsageInfo(0, infos.data(), infos.size(), &count), ACL_SUCCESS);
  EXPECT_EQ(infos[0].curMemSize, before + (32U << 20U));
  const uint64_t peak = infos[0].memPeakSize;
  EXPECT_GE(peak, infos[0].curMemSize);
  EXPECT_EQ(aclrtFree(pointer), ACL_SUCCESS);
  ASSERT_EQ(aclrtGetMemUsageInfo(0, infos.data(), 1, &count), ACL_SUCCESS);
  EXPECT_EQ(count, 1U) << "as many as there is room for";
  EXPECT_EQ(infos[0].curMemSize, before);
  EXPECT_EQ(infos[0].memPeakSize, peak);

  count = 17;
  EXPECT_EQ(aclrtGetMemUsageInfo(0, nullptr, 1, &count), ACL_ERROR_INVALID_PARAM);
  EXPECT_TRUE(says("memUsageInfo"));
  EXPECT_EQ(aclrtGetMemUsageInfo(0, infos.data(), 1, nullptr), ACL_ERROR_INVALID_PARAM);
  EXPECT_TRUE(says("outputNum"));
  EXPECT_EQ(aclrtGetMemUsageInfo(0, infos.data(), 0, &count), ACL_ERROR_RT_PARAM_INVALID);
  EXPECT_TRUE(says("inputNum"));
  for (const int32_t wrong : {-1, 2}) {
    EXPECT_EQ(aclrtGetMemUsageInfo(wrong, infos.data(), 1, &count), ACL_ERROR_RT_INVALID_DEVICEID);
    EXPECT_TRUE(says("deviceId"));
  }
  EXPECT_EQ(count, 17U);
}

TEST_F(DeviceMemory, CacheCallsCheckTheirArguments) {
  void* pointer = allocate(4096);
  for (auto* call : {aclrtMemFlush, aclrtMemInvalidate}) {
    EXPECT_EQ(call(pointer, 4096), ACL_SUCCESS);
    EXPECT_EQ(call(nullptr, 4096), ACL_ERROR_INVALID_PARAM);
    EXPECT_TRUE(says("devPtr"));
    EXPECT_EQ(call(pointer, 0), ACL_ERROR_INVALID_PARAM);
    EXPECT_TRUE(says("size"));
  }
  EXPECT_EQ(aclrtFree(pointer), ACL_SUCCESS);
}

TEST_F(DeviceMemory, IsToldFromEverythingElse) {
  void* device = allocate(4096);
  void* piece = allocate(100);
  void* host = nullptr;
  ASSERT_EQ(aclrtMallocHost(&host, 100), ACL_SUCCESS);
  int local = 0;
  const auto check = [](std::initializer_list<void*> addresses, uint32_t type) {
    std::vector<void*> list(addresses);
    uint32_t answer = 17;
    EXPECT_EQ(aclrtCheckMemType(list.data(), static_cast<uint32_t>(list.size()), type, &answer, 0),
              ACL_SUCCESS)
        << recent();
    return answer;
  };
  EXPECT_EQ(check({device, piece}, ACL_RT_MEM_TYPE_DEV), 1U);
  EXPECT_EQ(check({device, static_cast<char*>(device) + 4000},
                  ACL_RT_MEM_TYPE_DEV | ACL_RT_MEM_TYPE_DVPP),
            1U);
  EXPECT_EQ(check({device, host}, ACL_RT_MEM_TYPE_DEV), 0U);
  EXPECT_EQ(check({device, &local}, ACL_RT_MEM_TYPE_DEV), 0U);
  EXPECT_EQ(check({device, nullptr}, ACL_RT_MEM_TYPE_DEV), 0U);
  EXPECT_EQ(check({device}, ACL_RT_MEM_TYPE_DVPP), 0U);

  uint32_t answer = 17;
  EXPECT_EQ(aclrtCheckMemType(nullptr, 1, 2, &answer, 0), ACL_ERROR_INVALID_PARAM);
  EXPECT_TRUE(says("addrList"));
  EXPECT_EQ(aclrtCheckMemType(&device, 1, 2, nullptr, 0), ACL_ERROR_INVALID_PARAM);
  EXPECT_TRUE(says("checkResult"));
  EXPECT_EQ(aclrtCheckMemType(&device, 0, 2, &answer, 0), ACL_ERROR_RT_PARAM_INVALID);
  EXPECT_TRUE(says("size"));
  EXPECT_EQ(aclrtCheckMemType(&device, 1, 2, &answer, 1), ACL_ERROR_RT_PARAM_INVALID);
  EXPECT_TRUE(says("reserve"));
  for (const uint32_t wrong : {0U, 1U, 4U, ACL_RT_MEM_TYPE_RSVD, 0x20U, 2U | 1U}) {
    EXPECT_EQ(aclrtCheckMemType(&device, 1, wrong, &answer, 0), ACL_ERROR_RT_PARAM_INVALID);
    EXPECT_TRUE(says("memType"));
  }
  EXPECT_EQ(answer, 17U);
  EXPECT_EQ(aclrtFree(device), ACL_SUCCESS);
  EXPECT_EQ(aclrtFree(piece), ACL_SUCCESS);
  EXPECT_EQ(aclrtFreeHost(host), ACL_SUCCESS);
}

TEST_F(DeviceMemory, IsReachedByEveryDevice) {
  void* pointer = allocate(8192);
  EXPECT_EQ(aclrtMemP2PMap(pointer, 8192, 1, 0), ACL_SUCCESS) << recent();
  EXPECT_EQ(aclrtMemP2PMap(static_cast<char*>(pointer) + 4096, 4096, 1, 0), ACL_SUCCESS);
  EXPECT_EQ(aclrtMemP2PMap(nullptr, 8192, 1, 0), ACL_ERROR_INVALID_PARAM);
  EXPECT_TRUE(says("devPtr"));
  EXPECT_EQ(aclrtMemP2PMap(pointer, 0, 1, 0), ACL_ERROR_INVALID_PARAM);
  EXPECT_TRUE(says("size"));
  EXPECT_EQ(aclrtMemP2PMap(pointer, 9000, 1, 0), ACL_ERROR_RT_PARAM_INVALID);
  EXPECT_TRUE(says("size 9000"));
  EXPECT_EQ(aclrtMemP2PMap(pointer, 8192, 1, 1), ACL_ERROR_RT_PARAM_INVALID);
  EXPECT_TRUE(says("flags"));
  for (const int32_t wrong : {-1, 2}) {
    EXPECT_EQ(aclrtMemP2PMap(pointer, 8192, wrong, 0), ACL_ERROR_RT_INVALID_DEVICEID);
    EXPECT_TRUE(says("dstDevId"));
  }
  void* host = nullptr;
  ASSERT_EQ(aclrtMallocHost(&host, 100), ACL_SUCCESS);
  EXPECT_EQ(aclrtMemP2PMap(host, 100, 1, 0), ACL_ERROR_RT_PARAM_INVALID);
  EXPECT_TRUE(says("devPtr"));
  EXPECT_EQ(aclrtFreeHost(host), ACL_SUCCESS);
  EXPECT_EQ(aclrtFree(pointer), ACL_SUCCESS);
}

}  // namespace
}  // namespace hufu::test
