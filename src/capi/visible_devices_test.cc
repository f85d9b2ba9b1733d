// P48 within a process: with ASCEND_RT_VISIBLE_DEVICES=1 its device 0 is the machine's second one,
// and every call that takes or tells a device means that.

#include <cstdlib>

#include <gtest/gtest.h>

#include "acl/acl.h"
#include "acl/acl_rt_memory_soma.h"
#include "capi/alone.h"

namespace hufu::test {
namespace {

class VisibleDevices : public Alone {
 protected:
  static void SetUpTestSuite() {
    Alone::SetUpTestSuite();
    // NOLINTNEXTLINE(concurrency-mt-unsafe): before any thread.
    ::setenv("ASCEND_RT_VISIBLE_DEVICES", "1", 1);
  }
};

TEST_F(VisibleDevices, AreNumberedFromZero) {
  uint32_t count = 0;
  ASSERT_EQ(aclrtGetDeviceCount(&count), ACL_SUCCESS);
  EXPECT_EQ(count, 1U);
  int32_t device = -1;
  ASSERT_EQ(aclrtGetDevice(&device), ACL_SUCCESS);
  EXPECT_EQ(device, 0);
  EXPECT_EQ(aclrtSetDevice(1), ACL_ERROR_RT_INVALID_DEVICEID);
  EXPECT_TRUE(says("ASCEND_RT_VISIBLE_DEVICES"));
}

TEST_F(VisibleDevices, AreMeantByAllocations) {
  aclrtMallocAttribute attribute{};
  attribute.attr = ACL_RT_MEM_ATTR_DEVICE_ID;
  aclrtMallocConfig cfg{&attribute, 1};
  void* pointer = nullptr;
  ASSERT_EQ(aclrtMallocWithCfg(&pointer, 4096, ACL_MEM_MALLOC_NORMAL_ONLY, &cfg), ACL_SUCCESS)
      << recent();
  aclrtPtrAttributes attributes{};
  ASSERT_EQ(aclrtPointerGetAttributes(pointer, &attributes), ACL_SUCCESS);
  EXPECT_EQ(attributes.location.id, 0U);
  EXPECT_EQ(aclrtMemP2PMap(pointer, 4096, 0, 0), ACL_SUCCESS) << recent();
  EXPECT_EQ(aclrtMemP2PMap(pointer, 4096, 1, 0), ACL_ERROR_RT_INVALID_DEVICEID);
  aclrtMemUsageInfo usage{};
  size_t count = 0;
  ASSERT_EQ(aclrtGetMemUsageInfo(0, &usage, 1, &count), ACL_SUCCESS);
  EXPECT_GE(usage.curMemSize, 4096U) << "it is this device's";
  EXPECT_EQ(aclrtFree(pointer), ACL_SUCCESS);
  void* managed = nullptr;
  ASSERT_EQ(aclrtMemAllocManaged(&managed, 1, 1), ACL_SUCCESS);
  const aclrtMemManagedLocation second{ACL_MEM_LOCATIONTYPE_DEVICE, 1};
  EXPECT_EQ(aclrtMemManagedAdvise(managed, 1, ACL_MEM_ADVISE_SET_PREFERRED_LOCATION, second),
            ACL_ERROR_RT_INVALID_DEVICEID);
  EXPECT_EQ(aclrtFree(managed), ACL_SUCCESS);
}

TEST_F(VisibleDevices, AreMeantByPhysicalMemoryAndPools) {
  constexpr size_t kSize = size_t{2} << 20U;
  aclrtPhysicalMemProp prop{};
  prop.memAttr = ACL_HBM_MEM_HUGE;
  prop.location = {0, ACL_MEM_LOCATION_TYPE_DEVICE};
  aclrtDrvMemHandle handle = nullptr;
  ASSERT_EQ(aclrtMallocPhysical(&handle, kSize, &prop, 0), ACL_SUCCESS) << recent();
  aclrtPhysicalMemProp told{};
  ASSERT_EQ(aclrtMemGetAllocationPropertiesFromHandle(handle, &told), ACL_SUCCESS) << recent();
  EXPECT_EQ(told.location.id, 0U);
  void* range = nullptr;
  ASSERT_EQ(aclrtReserveMemAddress(&range, kSize, 0, nullptr, 0), ACL_SUCCESS);
  ASSERT_EQ(aclrtMapMem(range, kSize, 0, handle, 0), ACL_SUCCESS) << recent();
  aclrtMemLocation location{0, ACL_MEM_LOCATION_TYPE_DEVICE};
  uint64_t flag = 0;
  ASSERT_EQ(aclrtMemGetAccess(range, &location, &flag), ACL_SUCCESS) << recent();
  EXPECT_EQ(flag, ACL_RT_MEM_ACCESS_FLAGS_READWRITE) << "it is the owner's";
  EXPECT_EQ(aclrtUnmapMem(range), ACL_SUCCESS);
  EXPECT_EQ(aclrtReleaseMemAddress(range), ACL_SUCCESS);
  EXPECT_EQ(aclrtFreePhysical(handle), ACL_SUCCESS);
  prop.location.id = 1;
  EXPECT_EQ(aclrtMallocPhysical(&handle, kSize, &prop, 0), ACL_ERROR_RT_INVALID_DEVICEID);

  aclrtMemPoolProps props{};
  props.location = {0, ACL_MEM_LOCATION_TYPE_DEVICE};
  props.maxSize = kSize;
  aclrtMemPool pool = nullptr;
  ASSERT_EQ(aclrtMemPoolCreate(&pool, &props), ACL_SUCCESS) << recent();
  EXPECT_EQ(aclrtMemPoolDestroy(pool), ACL_SUCCESS);
  props.location.id = 1;
  EXPECT_EQ(aclrtMemPoolCreate(&pool, &props), ACL_ERROR_RT_INVALID_DEVICEID);
}

}  // namespace
}  // namespace hufu::test
