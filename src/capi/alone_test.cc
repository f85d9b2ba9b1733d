// The C API in a process without a broker: everything but sharing works, and every refusal says
// why.

#include "capi/alone.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "acl/acl.h"
#include "hufu/hufu.h"

using hufu::test::Alone;
using hufu::test::from_c;
using hufu::test::recent;
using hufu::test::says;

namespace {

TEST_F(Alone, NullsAreNamed) {
  EXPECT_EQ(aclrtMalloc(nullptr, 64, ACL_MEM_MALLOC_HUGE_FIRST), ACL_ERROR_INVALID_PARAM);
  EXPECT_TRUE(says("aclrtMalloc: devPtr is null"));
  EXPECT_EQ(aclrtFree(nullptr), ACL_ERROR_INVALID_PARAM);
  EXPECT_TRUE(says("EH0001"));
  char key[65];
  EXPECT_EQ(aclrtIpcMemGetExportKey(nullptr, 1, key, 65, 0), ACL_ERROR_INVALID_PARAM);
  EXPECT_TRUE(says("devPtr"));
  EXPECT_EQ(aclrtIpcMemImportByKey(nullptr, key, 0), ACL_ERROR_INVALID_PARAM);
  EXPECT_EQ(aclrtIpcMemClose(nullptr), ACL_ERROR_INVALID_PARAM);
  EXPECT_EQ(aclrtIpcMemSetAttr(nullptr, ACL_RT_IPC_MEM_ATTR_ACCESS_LINK, 0), 107000);
}

TEST_F(Alone, RecentTextIsPerThreadAndReadOnce) {
  EXPECT_EQ(aclGetRecentErrMsg(), nullptr);
  EXPECT_EQ(aclrtFree(nullptr), ACL_ERROR_INVALID_PARAM);
  std::thread([] { EXPECT_EQ(aclGetRecentErrMsg(), nullptr); }).join();
  EXPECT_NE(aclGetRecentErrMsg(), nullptr);
  EXPECT_EQ(aclGetRecentErrMsg(), nullptr);
}

TEST_F(Alone, LastErrorForgetsArgumentMistakes) {
  EXPECT_EQ(aclrtFree(nullptr), ACL_ERROR_INVALID_PARAM);
  EXPECT_EQ(aclrtPeekAtLastError(ACL_RT_THREAD_LEVEL), ACL_SUCCESS);
  EXPECT_EQ(aclrtSetDevice(2), ACL_ERROR_RT_INVALID_DEVICEID);
  EXPECT_EQ(aclrtPeekAtLastError(ACL_RT_THREAD_LEVEL), ACL_ERROR_RT_INVALID_DEVICEID);
  EXPECT_EQ(aclrtGetLastError(ACL_RT_THREAD_LEVEL), ACL_ERROR_RT_INVALID_DEVICEID);
  EXPECT_EQ(aclrtGetLastError(ACL_RT_THREAD_LEVEL), ACL_SUCCESS);
  EXPECT_EQ(aclrtGetLastError(from_c<aclrtLastErrLevel>(1)), ACL_ERROR_INVALID_PARAM);
}

TEST_F(Alone, InitCounts) {
  EXPECT_EQ(aclFinalize(), ACL_ERROR_REPEAT_FINALIZE);
  EXPECT_EQ(aclInit(nullptr), ACL_SUCCESS);
  EXPECT_EQ(aclInit(""), ACL_ERROR_REPEAT_INITIALIZE);
  uint64_t left = 9;
  EXPECT_EQ(aclFinalizeReference(&left), ACL_SUCCESS);
  EXPECT_EQ(left, 1U);
  EXPECT_EQ(aclFinalize(), ACL_SUCCESS);
  EXPECT_EQ(aclFinalizeReference(&left), ACL_ERROR_REPEAT_FINALIZE);
  EXPECT_EQ(aclInit("/nowhere.json"), ACL_ERROR_INVALID_FILE);
  EXPECT_EQ(aclrtSetDevice(0), ACL_SUCCESS);
}

TEST_F(Alone, ContextIsNeededWhereTheContractSaysSo) {
  void* pointer = allocate(4096);
  std::thread([pointer] {
    void* other = nullptr;
    EXPECT_EQ(aclrtMalloc(&other, 64, ACL_MEM_MALLOC_HUGE_FIRST), ACL_ERROR_RT_CONTEXT_NULL);
    EXPECT_TRUE(says("aclrtSetDevice"));
    EXPECT_EQ(aclrtMalloc(&other, 0, ACL_MEM_MALLOC_HUGE_FIRST), ACL_ERROR_INVALID_PARAM);
    size_t free = 0;
    size_t total = 0;
    EXPECT_EQ(aclrtGetMemInfo(ACL_HBM_MEM, &free, &total), ACL_ERROR_RT_CONTEXT_NULL);
    EXPECT_EQ(aclrtMemset(pointer, 1, 0, 1), ACL_ERROR_RT_CONTEXT_NULL);
    char key[65];
    EXPECT_EQ(aclrtIpcMemGetExportKey(pointer, 4096, key, 65, 0), ACL_ERROR_RT_CONTEXT_NULL);
    // These do without one.
    aclrtPtrAttributes attributes{};
    EXPECT_EQ(aclrtPointerGetAttributes(pointer, &attributes), ACL_SUCCESS);
    void* base = nullptr;
    EXPECT_EQ(aclrtMemGetAddressRange(pointer, &base, nullptr), ACL_SUCCESS);
    EXPECT_EQ(aclrtFree(pointer), ACL_SUCCESS);
  }).join();
}

TEST_F(Alone, AttributesTellDeviceFromForeignMemory) {
  void* pointer = allocate(1 << 20, ACL_MEM_MALLOC_HUGE_FIRST);
  aclrtPtrAttributes attributes{};
  ASSERT_EQ(aclrtPointerGetAttributes(static_cast<char*>(pointer) + 5, &attributes), ACL_SUCCESS);
  EXPECT_EQ(attributes.location.type, ACL_MEM_LOCATION_TYPE_DEVICE);
  EXPECT_EQ(attributes.pageSize, 2U << 20U);
  int local = 0;
  ASSERT_EQ(aclrtPointerGetAttributes(&local, &attributes), ACL_SUCCESS);
  EXPECT_EQ(attributes.location.type, ACL_MEM_LOCATION_TYPE_UNREGISTERED);
  EXPECT_EQ(attributes.pageSize, 0U);
  EXPECT_EQ(aclrtFree(pointer), ACL_SUCCESS);
}

TEST_F(Alone, AddressRangeIsThePaddedAllocation) {
  void* pointer = allocate(4096);
  void* base = nullptr;
  size_t size = 0;
  ASSERT_EQ(aclrtMemGetAddressRange(static_cast<char*>(pointer) + 100, &base, &size), ACL_SUCCESS);
  EXPECT_EQ(base, pointer);
  EXPECT_EQ(size, 4128U);
  EXPECT_EQ(aclrtMemGetAddressRange(pointer, nullptr, nullptr), ACL_ERROR_RT_PARAM_INVALID);
  int local = 0;
  EXPECT_EQ(aclrtMemGetAddressRange(&local, &base, &size), ACL_ERROR_MEMORY_ADDRESS_UNREGISTERED);
  EXPECT_EQ(aclrtFree(pointer), ACL_SUCCESS);
}

TEST_F(Alone, FreeTakesEachAllocationOnce) {
  void* pointer = allocate(4096);
  EXPECT_EQ(aclrtFree(static_cast<char*>(pointer) + 64), ACL_ERROR_RT_PARAM_INVALID);
  EXPECT_TRUE(says("lies 64 bytes into the 4128-byte block"));
  EXPECT_EQ(aclrtFree(pointer), ACL_SUCCESS);
  EXPECT_EQ(aclrtFree(pointer), ACL_ERROR_RT_PARAM_INVALID);
  int local = 0;
  EXPECT_EQ(aclrtFree(&local), ACL_ERROR_MEMORY_ADDRESS_UNREGISTERED);
}

TEST_F(Alone, MemInfoFollowsAllocations) {
  size_t before = 0;
  size_t total = 0;
  ASSERT_EQ(aclrtGetMemInfo(ACL_HBM_MEM, &before, &total), ACL_SUCCESS);
  EXPECT_EQ(total, 128U << 20U);
  void* pointer = allocate(3 << 20, ACL_MEM_MALLOC_HUGE_ONLY);
  size_t after = 0;
  ASSERT_EQ(aclrtGetMemInfo(ACL_MEM_NORMAL, &after, &total), ACL_SUCCESS);
  EXPECT_EQ(before - after, 4U << 20U);
  void* too_large = nullptr;
  EXPECT_EQ(aclrtMalloc(&too_large, 1U << 30U, ACL_MEM_MALLOC_HUGE_FIRST),
            ACL_ERROR_RT_MEMORY_ALLOCATION);
  EXPECT_TRUE(says("134217728"));
  EXPECT_EQ(too_large, nullptr);
  EXPECT_EQ(aclrtGetMemInfo(from_c<aclrtMemAttr>(18), &after, &total),
            ACL_ERROR_RT_INVALID_MEMORY_TYPE);
  EXPECT_EQ(aclrtFree(pointer), ACL_SUCCESS);
}

TEST_F(Alone, ConfigurationsOfAllocationsAreChecked) {
  void* pointer = nullptr;
  aclrtMallocAttribute attribute{};
  aclrtMallocConfig cfg{&attribute, 1};
  attribute.attr = ACL_RT_MEM_ATTR_DEVICE_ID;
  attribute.value.deviceId = 1;
  EXPECT_EQ(aclrtMallocWithCfg(&pointer, 64, ACL_MEM_MALLOC_HUGE_FIRST, &cfg),
            ACL_ERROR_RT_PARAM_INVALID);
  attribute.attr = ACL_RT_MEM_ATTR_VA_FLAG;
  EXPECT_EQ(aclrtMallocWithCfg(&pointer, 64, ACL_MEM_MALLOC_HUGE_FIRST, &cfg),
            ACL_ERROR_RT_PARAM_INVALID);
  cfg.attrs = nullptr;
  EXPECT_EQ(aclrtMallocWithCfg(&pointer, 64, ACL_MEM_MALLOC_HUGE_FIRST, &cfg),
            ACL_ERROR_INVALID_PARAM);
  ASSERT_EQ(aclrtMallocWithCfg(&pointer, 64, ACL_MEM_MALLOC_HUGE_FIRST, nullptr), ACL_SUCCESS);
  EXPECT_EQ(aclrtFree(pointer), ACL_SUCCESS);
}

TEST_F(Alone, EveryMallocHasItsPaddingAndLeavesTheOutputAloneWhenItFails) {
  const auto range_of = [](void* pointer) {
    size_t size = 0;
    EXPECT_EQ(aclrtMemGetAddressRange(pointer, nullptr, &size), ACL_SUCCESS) << recent();
    return size;
  };
  void* pointer = nullptr;
  ASSERT_EQ(aclrtMallocCached(&pointer, 8192, ACL_MEM_MALLOC_NORMAL_ONLY), ACL_SUCCESS);
  EXPECT_EQ(range_of(pointer), 8224U);
  EXPECT_EQ(aclrtFree(pointer), ACL_SUCCESS);
  ASSERT_EQ(aclrtMallocAlign32(&pointer, 8190, ACL_MEM_MALLOC_NORMAL_ONLY), ACL_SUCCESS);
  EXPECT_EQ(range_of(pointer), 8192U);
  EXPECT_EQ(aclrtFree(pointer), ACL_SUCCESS);
  const auto wide =
      from_c<aclrtMemMallocPolicy>(ACL_MEM_MALLOC_NORMAL_ONLY | ACL_MEM_TYPE_HIGH_BAND_WIDTH);
  ASSERT_EQ(aclrtMallocWithCfg(&pointer, 8190, wide, nullptr), ACL_SUCCESS);
  EXPECT_EQ(range_of(pointer), 8192U);
  EXPECT_EQ(aclrtFree(pointer), ACL_SUCCESS);

  constexpr size_t kTooLarge = 1U << 30U;
  constexpr size_t kUnpaddable = ~size_t{0} - 8;
  const auto policy = ACL_MEM_MALLOC_HUGE_FIRST;
  int untouched = 0;
  void* const before = &untouched;
  const auto expect = [&](aclError got, aclError code) {
    EXPECT_EQ(got, code) << recent();
    EXPECT_EQ(pointer, before);
  };
  pointer = before;
  expect(aclrtMallocAlign32(&pointer, 0, policy), ACL_ERROR_INVALID_PARAM);
  expect(aclrtMallocAlign32(&pointer, kUnpaddable, policy), ACL_ERROR_INVALID_PARAM);
  expect(aclrtMallocAlign32(&pointer, kTooLarge, policy), ACL_ERROR_RT_MEMORY_ALLOCATION);
  expect(aclrtMallocCached(&pointer, 0, policy), ACL_ERROR_INVALID_PARAM);
  expect(aclrtMallocCached(&pointer, kUnpaddable, policy), ACL_ERROR_INVALID_PARAM);
  expect(aclrtMallocCached(&pointer, kTooLarge, policy), ACL_ERROR_RT_MEMORY_ALLOCATION);
  expect(aclrtMallocWithCfg(&pointer, 0, policy, nullptr), ACL_ERROR_INVALID_PARAM);
  expect(aclrtMallocWithCfg(&pointer, kTooLarge, policy, nullptr), ACL_ERROR_RT_MEMORY_ALLOCATION);
  aclrtMallocConfig no_attributes{nullptr, 0};
  expect(aclrtMallocWithCfg(&pointer, 64, policy, &no_attributes), ACL_ERROR_RT_PARAM_INVALID);
  EXPECT_EQ(aclrtMallocAlign32(nullptr, 64, policy), ACL_ERROR_INVALID_PARAM);
  EXPECT_EQ(aclrtMallocCached(nullptr, 64, policy), ACL_ERROR_INVALID_PARAM);
  EXPECT_EQ(aclrtMallocWithCfg(nullptr, 64, policy, nullptr), ACL_ERROR_INVALID_PARAM);
}

TEST_F(Alone, QueriesOfAddressesLeaveTheOutputsAloneWhenTheyFail) {
  int local = 0;
  void* base = &local;
  size_t size = 17;
  EXPECT_EQ(aclrtMemGetAddressRange(nullptr, &base, &size), ACL_ERROR_INVALID_PARAM);
  EXPECT_EQ(aclrtMemGetAddressRange(&local, &base, &size), ACL_ERROR_MEMORY_ADDRESS_UNREGISTERED);
  EXPECT_EQ(base, &local);
  EXPECT_EQ(size, 17U);
  aclrtPtrAttributes attributes{};
  attributes.pageSize = 17;
  EXPECT_EQ(aclrtPointerGetAttributes(nullptr, &attributes), ACL_ERROR_INVALID_PARAM);
  EXPECT_EQ(attributes.pageSize, 17U);
  EXPECT_EQ(aclrtPointerGetAttributes(&local, nullptr), ACL_ERROR_INVALID_PARAM);
  size_t free = 17;
  EXPECT_EQ(aclrtGetMemInfo(ACL_HBM_MEM, &free, nullptr), ACL_ERROR_INVALID_PARAM);
  EXPECT_EQ(aclrtGetMemInfo(ACL_HBM_MEM, nullptr, &size), ACL_ERROR_INVALID_PARAM);
  EXPECT_EQ(aclrtGetMemInfo(from_c<aclrtMemAttr>(31), &free, &size),
            ACL_ERROR_RT_INVALID_MEMORY_TYPE);
  EXPECT_EQ(free, 17U);
  EXPECT_EQ(size, 17U);
}

TEST_F(Alone, ASlabPieceIsItsOwnRange) {
  void* pointer = allocate(100);
  void* base = nullptr;
  size_t size = 0;
  ASSERT_EQ(aclrtMemGetAddressRange(static_cast<char*>(pointer) + 99, &base, &size), ACL_SUCCESS);
  EXPECT_EQ(base, pointer);
  EXPECT_GE(size, 160U);  // 100 rounded to 128, and the 32 bytes behind.
  aclrtPtrAttributes attributes{};
  ASSERT_EQ(aclrtPointerGetAttributes(pointer, &attributes), ACL_SUCCESS);
  EXPECT_EQ(attributes.location.type, ACL_MEM_LOCATION_TYPE_DEVICE);
  EXPECT_EQ(attributes.location.id, 0U);
  EXPECT_EQ(attributes.pageSize, 4096U);
  EXPECT_EQ(aclrtFree(pointer), ACL_SUCCESS);
}

TEST_F(Alone, HostMemoryIsTheHosts) {
  void* host = nullptr;
  ASSERT_EQ(aclrtMallocHost(&host, 100), ACL_SUCCESS) << recent();
  EXPECT_EQ(reinterpret_cast<uintptr_t>(host) % 64, 0U);
  aclrtPtrAttributes attributes{};
  attributes.location.id = 9;
  ASSERT_EQ(aclrtPointerGetAttributes(static_cast<char*>(host) + 50, &attributes), ACL_SUCCESS);
  EXPECT_EQ(attributes.location.type, ACL_MEM_LOCATION_TYPE_HOST);
  EXPECT_EQ(attributes.location.id, 0U);
  void* base = nullptr;
  size_t size = 0;
  ASSERT_EQ(aclrtMemGetAddressRange(host, &base, &size), ACL_SUCCESS);
  EXPECT_EQ(base, host);
  EXPECT_EQ(size, 128U);

  void* device = allocate(4096);
  std::memset(host, 0x5a, 100);
  EXPECT_EQ(aclrtMemcpy(device, 4096, host, 100, ACL_MEMCPY_HOST_TO_DEVICE), ACL_SUCCESS);
  EXPECT_EQ(static_cast<char*>(device)[99], 0x5a);
  EXPECT_EQ(aclrtMemcpy(host, 128, device, 129, ACL_MEMCPY_DEVICE_TO_HOST),
            ACL_ERROR_RT_PARAM_INVALID);

  // Neither kind ends by the other's call, and no key is made of host memory.
  EXPECT_EQ(aclrtFree(host), ACL_ERROR_RT_PARAM_INVALID);
  EXPECT_TRUE(says("aclrtFreeHost"));
  EXPECT_EQ(aclrtFreeHost(device), ACL_ERROR_RT_PARAM_INVALID);
  EXPECT_TRUE(says("aclrtFree"));
  hufuExportability exportability{};
  exportability.structSize = sizeof(exportability);
  ASSERT_EQ(hufuMemQueryExportable(host, 100, &exportability), ACL_SUCCESS);
  EXPECT_EQ(exportability.exportable, 0);
  EXPECT_NE(std::strstr(exportability.reason, "host memory"), nullptr) << exportability.reason;

  EXPECT_EQ(aclrtFreeHost(host), ACL_SUCCESS);
  EXPECT_EQ(aclrtFreeHost(host), ACL_ERROR_RT_PARAM_INVALID);
  EXPECT_EQ(aclrtFree(device), ACL_SUCCESS);
  ASSERT_EQ(aclrtPointerGetAttributes(host, &attributes), ACL_SUCCESS);
  EXPECT_EQ(attributes.location.type, ACL_MEM_LOCATION_TYPE_UNREGISTERED);
}

TEST_F(Alone, HostMemoryHasTheContractsCodes) {
  int untouched = 0;
  void* host = &untouched;
  EXPECT_EQ(aclrtMallocHost(nullptr, 64), ACL_ERROR_INVALID_PARAM);
  EXPECT_EQ(aclrtMallocHost(&host, 0), ACL_ERROR_INVALID_PARAM);
  EXPECT_EQ(aclrtMallocHost(&host, size_t{1} << 45U), ACL_ERROR_RT_MEMORY_ALLOCATION);
  EXPECT_EQ(aclrtFreeHost(nullptr), ACL_ERROR_INVALID_PARAM);
  EXPECT_EQ(aclrtMallocHostWithCfg(nullptr, 64, nullptr), ACL_ERROR_INVALID_PARAM);
  EXPECT_EQ(aclrtMallocHostWithCfg(&host, 0, nullptr), ACL_ERROR_INVALID_PARAM);
  aclrtMallocAttribute attribute{};
  aclrtMallocConfig cfg{&attribute, 1};
  attribute.attr = ACL_RT_MEM_ATTR_DEVICE_ID;
  EXPECT_EQ(aclrtMallocHostWithCfg(&host, 64, &cfg), ACL_ERROR_RT_PARAM_INVALID);
  attribute.attr = ACL_RT_MEM_ATTR_VA_FLAG;
  attribute.value.vaFlag = 2;
  EXPECT_EQ(aclrtMallocHostWithCfg(&host, 64, &cfg), ACL_ERROR_RT_PARAM_INVALID);
  std::thread([&host] { EXPECT_EQ(aclrtMallocHost(&host, 64), ACL_ERROR_RT_CONTEXT_NULL); }).join();
  EXPECT_EQ(host, &untouched);
  attribute.value.vaFlag = 1;
  ASSERT_EQ(aclrtMallocHostWithCfg(&host, 64, &cfg), ACL_SUCCESS);
  std::thread([host] { EXPECT_EQ(aclrtFreeHost(host), ACL_SUCCESS); }).join();
}

TEST_F(Alone, AForkedChildKeepsHostMemory) {
  void* host = nullptr;
  ASSERT_EQ(aclrtMallocHost(&host, 4096), ACL_SUCCESS);
  std::memset(host, 7, 4096);
  const pid_t child = ::fork();
  if (child == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (static_cast<char*>(host)[4095] != 7) ::_exit(1);
    std::memset(host, 9, 4096);
    if (aclrtSetDevice(0) != ACL_SUCCESS) ::_exit(2);
    aclrtPtrAttributes attributes{};
    if (aclrtPointerGetAttributes(host, &attributes) != ACL_SUCCESS) ::_exit(3);
    if (attributes.location.type != ACL_MEM_LOCATION_TYPE_HOST) ::_exit(4);
    ::_exit(aclrtFreeHost(host) == ACL_SUCCESS ? 0 : 5);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_EQ(static_cast<char*>(host)[0], 7);
  EXPECT_EQ(aclrtFreeHost(host), ACL_SUCCESS);
}

TEST_F(Alone, CopyOfNothingSucceedsBeforeAnyCheck) {
  EXPECT_EQ(aclrtMemcpy(nullptr, 0, nullptr, 0, from_c<aclrtMemcpyKind>(99)), ACL_SUCCESS);
  EXPECT_EQ(aclrtMemset(nullptr, 0, 0, 0), ACL_SUCCESS);
  char byte = 0;
  EXPECT_EQ(aclrtMemcpy(&byte, 1, &byte, 1, ACL_MEMCPY_INNER_DEVICE_TO_DEVICE),
            ACL_ERROR_INVALID_PARAM);
  EXPECT_EQ(aclrtMemcpy(&byte, 1, nullptr, 1, ACL_MEMCPY_DEFAULT), ACL_ERROR_INVALID_PARAM);
}

TEST_F(Alone, StreamsFollowTheDisciplineOfHandles) {
  aclrtStream stream = nullptr;
  ASSERT_EQ(aclrtCreateStream(&stream), ACL_SUCCESS);
  EXPECT_EQ(aclrtSynchronizeStream(stream), ACL_SUCCESS);
  EXPECT_EQ(aclrtSynchronizeStream(nullptr), ACL_SUCCESS);
  EXPECT_EQ(aclrtSynchronizeStreamWithTimeout(stream, 0), ACL_ERROR_RT_PARAM_INVALID);
  EXPECT_EQ(aclrtDestroyStream(stream), ACL_SUCCESS);
  EXPECT_EQ(aclrtDestroyStream(stream), ACL_ERROR_RT_INVALID_HANDLE);
  int local = 0;
  EXPECT_EQ(aclrtSynchronizeStream(&local), ACL_ERROR_RT_INVALID_HANDLE);
  EXPECT_EQ(aclrtDestroyStream(nullptr), ACL_ERROR_INVALID_PARAM);
}

TEST_F(Alone, SharingIsRefusedWithTheReason) {
  void* pointer = allocate(4096);
  char key[65] = "untouched";
  EXPECT_EQ(aclrtIpcMemGetExportKey(pointer, 4096, key, 65, 1), ACL_ERROR_RT_DRV_INTERNAL_ERROR);
  EXPECT_TRUE(says("HUFU_BROKER"));
  EXPECT_STREQ(key, "untouched");
  EXPECT_EQ(aclrtFree(pointer), ACL_SUCCESS);
}

TEST_F(Alone, ExportArgumentsHaveTheContractsCodes) {
  void* pointer = allocate(4096);
  char key[65];
  EXPECT_EQ(aclrtIpcMemGetExportKey(pointer, 0, key, 65, 0), ACL_ERROR_RT_PARAM_INVALID);
  EXPECT_TRUE(says("size"));
  EXPECT_EQ(aclrtIpcMemGetExportKey(pointer, 4096, key, 64, 0), ACL_ERROR_RT_PARAM_INVALID);
  EXPECT_TRUE(says("len"));
  EXPECT_EQ(aclrtIpcMemGetExportKey(pointer, 4096, key, 65, 2), ACL_ERROR_RT_PARAM_INVALID);
  EXPECT_TRUE(says("flags"));
  EXPECT_EQ(aclrtFree(pointer), ACL_SUCCESS);
}

TEST_F(Alone, QueryExportableSaysWhyNotAndWhatToDo) {
  auto* block = static_cast<char*>(allocate(8192));
  void* piece = allocate(1024);
  hufuExportability answer{};
  answer.structSize = sizeof(answer);
  ASSERT_EQ(hufuMemQueryExportable(block, 8192, &answer), ACL_SUCCESS);
  EXPECT_EQ(answer.exportable, 1);
  EXPECT_EQ(answer.wouldReturn, ACL_SUCCESS);
  EXPECT_EQ(answer.reason, nullptr);
  EXPECT_EQ(answer.blockBase, block);
  EXPECT_EQ(answer.blockSize, 8224U);
  EXPECT_EQ(answer.page, 4096U);

  ASSERT_EQ(hufuMemQueryExportable(block + 64, 64, &answer), ACL_SUCCESS);
  EXPECT_EQ(answer.exportable, 0);
  EXPECT_EQ(answer.wouldReturn, ACL_ERROR_RT_DRV_INTERNAL_ERROR);
  EXPECT_NE(std::strstr(answer.reason, "64 bytes into the block"), nullptr) << answer.reason;

  ASSERT_EQ(hufuMemQueryExportable(piece, 1024, &answer), ACL_SUCCESS);
  EXPECT_EQ(answer.exportable, 0);
  EXPECT_NE(std::strstr(answer.reason, "4096"), nullptr) << answer.reason;

  int local = 0;
  ASSERT_EQ(hufuMemQueryExportable(&local, 4, &answer), ACL_SUCCESS);
  EXPECT_EQ(answer.wouldReturn, ACL_ERROR_MEMORY_ADDRESS_UNREGISTERED);
  EXPECT_EQ(answer.blockBase, nullptr);

  // A caller compiled against a shorter struct gets no byte more than it has.
  struct {
    size_t structSize = 2 * sizeof(size_t);
    int exportable = -1;
    aclError wouldReturn = -1;
    char behind = 'x';
  } older;
  ASSERT_EQ(hufuMemQueryExportable(block, 1, reinterpret_cast<hufuExportability*>(&older)),
            ACL_SUCCESS);
  EXPECT_EQ(older.exportable, 1);
  EXPECT_EQ(older.behind, 'x');

  EXPECT_EQ(aclrtFree(block), ACL_SUCCESS);
  EXPECT_EQ(aclrtFree(piece), ACL_SUCCESS);
}

TEST_F(Alone, AForkedChildIsAFreshProcess) {
  void* pointer = allocate(4096);
  ASSERT_TRUE(aclInit(nullptr) == ACL_SUCCESS);
  const pid_t child = ::fork();
  if (child == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    int32_t device = 0;
    if (aclrtGetDevice(&device) != ACL_ERROR_RT_CONTEXT_NULL) ::_exit(1);
    if (aclrtFree(pointer) != ACL_ERROR_MEMORY_ADDRESS_UNREGISTERED) ::_exit(2);
    if (aclInit(nullptr) != ACL_SUCCESS) ::_exit(3);
    if (aclrtSetDevice(1) != ACL_SUCCESS) ::_exit(4);
    void* own = nullptr;
    if (aclrtMalloc(&own, 4096, ACL_MEM_MALLOC_HUGE_FIRST) != ACL_SUCCESS) ::_exit(5);
    std::memset(own, 1, 4096);
    int32_t pid = 0;
    if (aclrtDeviceGetBareTgid(&pid) != ACL_SUCCESS || pid != ::getpid()) ::_exit(6);
    ::_exit(aclrtFree(own) == ACL_SUCCESS ? 0 : 7);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_EQ(aclFinalize(), ACL_SUCCESS);
  EXPECT_EQ(aclrtSetDevice(0), ACL_SUCCESS);
  EXPECT_EQ(aclrtFree(pointer), ACL_SUCCESS);
}

#ifndef __SANITIZE_THREAD__  // It knows no fork of a process with threads.
// Whatever lock another thread held at the fork, the child must not wait for it.
TEST_F(Alone, AChildForkedWhileThreadsAllocateIsNotStuck) {
  std::atomic<bool> over = false;
  std::vector<std::thread> threads;
  threads.reserve(4);
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&over] {
      EXPECT_EQ(aclrtSetDevice(0), ACL_SUCCESS);
      for (size_t size = 64; !over; size = size % 6000 + 64) {
        void* pointer = nullptr;
        if (aclrtMalloc(&pointer, size, ACL_MEM_MALLOC_NORMAL_ONLY) == ACL_SUCCESS) {
          aclrtFree(pointer);
        }
        aclrtFree(&over);  // An error of its own, every time.
      }
    });
  }
  int failures = 0;
  for (int round = 0; round < 200; ++round) {
    const pid_t child = ::fork();
    if (child == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      ::alarm(20);  // Ends a child that is stuck, and fails the test.
      void* own = nullptr;
      if (aclrtSetDevice(0) != ACL_SUCCESS) ::_exit(1);
      if (aclrtMalloc(&own, 4096, ACL_MEM_MALLOC_NORMAL_ONLY) != ACL_SUCCESS) ::_exit(2);
      ::_exit(aclrtFree(own) == ACL_SUCCESS ? 0 : 3);
    }
    int status = 0;
    if (::waitpid(child, &status, 0) != child || status != 0) ++failures;
  }
  over = true;
  for (std::thread& thread : threads)
    thread.join();
  EXPECT_EQ(failures, 0);
}
#endif

TEST_F(Alone, MemoryCanBeFreedAfterFinalise) {
  ASSERT_EQ(aclInit(nullptr), ACL_SUCCESS);
  void* pointer = allocate(4096);
  EXPECT_EQ(aclFinalize(), ACL_SUCCESS);
  EXPECT_EQ(aclrtFree(pointer), ACL_SUCCESS);
  EXPECT_EQ(aclrtSetDevice(0), ACL_SUCCESS);
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // Theirs is the address space.
TEST(ErrorTexts, AreThereEvenWhereMallocHasNothingMore) {
  const auto without_memory = [] {
    const rlimit none{};
    ::setrlimit(RLIMIT_AS, &none);
    for (size_t size = size_t{1} << 20U; size >= 16; size /= 2) {
      while (std::malloc(size) != nullptr) {
      }
    }
    const aclError code = aclrtMalloc(nullptr, 64, ACL_MEM_MALLOC_HUGE_FIRST);
    const char* text = aclGetRecentErrMsg();
    const bool said = text != nullptr && std::strstr(text, "devPtr") != nullptr;
    std::_Exit(code == ACL_ERROR_INVALID_PARAM && said ? 0 : 1);
  };
  EXPECT_EXIT(std::thread(without_memory).join(), testing::ExitedWithCode(0), "");
}
#endif

TEST(DataTypes, HaveTheirSizes) {
  EXPECT_EQ(aclDataTypeSize(ACL_DT_UNDEFINED), 0U);
  EXPECT_EQ(aclDataTypeSize(ACL_BF16), 2U);
  EXPECT_EQ(aclDataTypeSize(ACL_COMPLEX128), 16U);
  EXPECT_EQ(aclDataTypeSize(from_c<aclDataType>(999)), 8U);
}

}  // namespace
