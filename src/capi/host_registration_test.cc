// Memory that the program made and registers: what is known of it, and that the bytes stay its own.

#include <sys/mman.h>

#include <array>
#include <atomic>
#include <cstring>
#include <thread>

#include <gtest/gtest.h>

#include "acl/acl.h"
#include "capi/alone.h"
#include "hufu/hufu.h"

namespace hufu::test {
namespace {

constexpr size_t kPage = 4096;

class HostRegistration : public Alone {
 protected:
  void SetUp() override {
    Alone::SetUp();
    memory = ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(memory, MAP_FAILED);
  }
  void TearDown() override {
    ::munmap(memory, kBytes);
    Alone::TearDown();
  }
  void* at(size_t offset) const { return static_cast<char*>(memory) + offset; }
  static aclrtPtrAttributes attributes_of(const void* pointer) {
    aclrtPtrAttributes attributes{};
    EXPECT_EQ(aclrtPointerGetAttributes(pointer, &attributes), ACL_SUCCESS);
    return attributes;
  }

  static constexpr size_t kBytes = 4 * kPage;
  void* memory = nullptr;
};

TEST_F(HostRegistration, MakesMemoryTheHostsUntilItEnds) {
  EXPECT_EQ(attributes_of(memory).location.type, ACL_MEM_LOCATION_TYPE_UNREGISTERED);
  void* device = nullptr;
  ASSERT_EQ(aclrtHostRegister(memory, kBytes, ACL_HOST_REGISTER_MAPPED, &device), ACL_SUCCESS)
      << recent();
  EXPECT_EQ(device, memory) << "host and device have one address space";
  const aclrtPtrAttributes attributes = attributes_of(at(kBytes - 1));
  EXPECT_EQ(attributes.location.type, ACL_MEM_LOCATION_TYPE_HOST);
  EXPECT_EQ(attributes.location.id, 0U);
  EXPECT_EQ(attributes.pageSize, 0U) << "nobody here chose its pages";
  void* base = nullptr;
  size_t size = 0;
  ASSERT_EQ(aclrtMemGetAddressRange(at(5), &base, &size), ACL_SUCCESS) << recent();
  EXPECT_EQ(base, memory);
  EXPECT_EQ(size, kBytes);
  EXPECT_EQ(aclrtHostGetDevicePointer(at(100), &device, 0), ACL_SUCCESS);
  EXPECT_EQ(device, at(100)) << "an inner pointer keeps its offset";

  EXPECT_EQ(aclrtFree(memory), ACL_ERROR_RT_PARAM_INVALID);
  EXPECT_TRUE(says("aclrtHostUnregister"));
  EXPECT_EQ(aclrtFreeHost(memory), ACL_ERROR_RT_PARAM_INVALID);

  ASSERT_EQ(aclrtHostUnregister(memory), ACL_SUCCESS);
  EXPECT_EQ(attributes_of(memory).location.type, ACL_MEM_LOCATION_TYPE_UNREGISTERED);
  EXPECT_EQ(aclrtHostUnregister(memory), ACL_ERROR_HOST_MEMORY_NOT_REGISTERED);
  EXPECT_TRUE(says("EE1018"));
  static_cast<char*>(memory)[kBytes - 1] = 1;  // It is the program's still.
}

TEST_F(HostRegistration, HasTheContractsCodes) {
  void* const before = at(1);
  void* device = before;
  using Type = aclrtHostRegisterType;
  EXPECT_EQ(aclrtHostRegister(nullptr, kPage, Type{}, &device), ACL_ERROR_INVALID_PARAM);
  EXPECT_EQ(aclrtHostRegister(memory, kPage, Type{}, nullptr), ACL_ERROR_INVALID_PARAM);
  EXPECT_EQ(aclrtHostRegister(memory, 0, Type{}, &device), ACL_ERROR_INVALID_PARAM);
  EXPECT_EQ(aclrtHostRegister(memory, kPage, from_c<Type>(2), &device),
            ACL_ERROR_RT_FEATURE_NOT_SUPPORT);
  EXPECT_EQ(aclrtHostRegister(at(64), kPage, Type{}, &device), ACL_ERROR_RT_PARAM_INVALID);
  EXPECT_EQ(aclrtHostRegisterV2(memory, kPage, 0), ACL_ERROR_RT_PARAM_INVALID);
  EXPECT_EQ(aclrtHostRegisterV2(memory, kPage, 1), ACL_ERROR_RT_PARAM_INVALID);
  EXPECT_EQ(aclrtHostRegisterV2(nullptr, kPage, 2), ACL_ERROR_INVALID_PARAM);
  EXPECT_EQ(aclrtHostRegisterV2(memory, 0, 2), ACL_ERROR_INVALID_PARAM);
  EXPECT_EQ(aclrtHostUnregister(nullptr), ACL_ERROR_INVALID_PARAM);
  EXPECT_EQ(aclrtHostGetDevicePointer(memory, &device, 0), ACL_ERROR_RT_PARAM_INVALID);
  EXPECT_EQ(device, before);

  for (const int type : {0, 4, 8, 12}) {
    EXPECT_EQ(aclrtHostRegister(memory, kPage, from_c<Type>(type), &device), ACL_SUCCESS);
    EXPECT_EQ(aclrtHostUnregister(memory), ACL_SUCCESS);
  }
  ASSERT_EQ(aclrtHostRegisterV2(memory, 2 * kPage, ACL_HOST_REG_MAPPED), ACL_SUCCESS);
  device = before;
  EXPECT_EQ(aclrtHostRegister(at(kPage), kPage, Type{}, &device),
            ACL_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
  EXPECT_EQ(device, before);
  EXPECT_EQ(aclrtHostRegisterV2(at(2 * kPage - 1), 2, ACL_HOST_REG_MAPPED),
            ACL_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
  EXPECT_EQ(aclrtHostUnregister(at(kPage)), ACL_ERROR_HOST_MEMORY_NOT_REGISTERED);
  EXPECT_EQ(aclrtHostGetDevicePointer(memory, nullptr, 0), ACL_ERROR_INVALID_PARAM);
  EXPECT_EQ(aclrtHostGetDevicePointer(memory, &device, 1), ACL_ERROR_RT_PARAM_INVALID);
  EXPECT_EQ(aclrtHostUnregister(memory), ACL_SUCCESS);

  std::thread([&] {
    EXPECT_EQ(aclrtHostRegister(memory, kPage, Type{}, &device), ACL_ERROR_RT_CONTEXT_NULL);
    EXPECT_EQ(aclrtHostRegisterV2(memory, kPage, 2), ACL_ERROR_RT_CONTEXT_NULL);
    EXPECT_EQ(aclrtHostUnregister(memory), ACL_ERROR_RT_CONTEXT_NULL);
  }).join();
}

TEST_F(HostRegistration, OfMemoryThatIsNotThereIsRefused) {
  ::munmap(at(2 * kPage), kPage);
  void* device = nullptr;
  EXPECT_EQ(aclrtHostRegister(memory, kBytes, ACL_HOST_REGISTER_MAPPED, &device),
            ACL_ERROR_RT_PARAM_INVALID);
  EXPECT_TRUE(says("not all of them"));
}

TEST_F(HostRegistration, OnlyWhatIsMappedHasAnAddressOfTheDevices) {
  ASSERT_EQ(aclrtHostRegisterV2(memory, kPage, ACL_HOST_REG_PINNED), ACL_SUCCESS) << recent();
  EXPECT_EQ(attributes_of(memory).location.type, ACL_MEM_LOCATION_TYPE_HOST);
  void* device = nullptr;
  EXPECT_EQ(aclrtHostGetDevicePointer(memory, &device, 0), ACL_ERROR_RT_PARAM_INVALID);
  EXPECT_TRUE(says("ACL_HOST_REG_MAPPED"));
  EXPECT_EQ(aclrtHostRegisterV2(memory, kPage, ACL_HOST_REG_PINNED),
            ACL_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
  EXPECT_EQ(aclrtHostUnregister(memory), ACL_SUCCESS);
  void* host = nullptr;
  ASSERT_EQ(aclrtMallocHost(&host, kPage), ACL_SUCCESS);
  EXPECT_EQ(aclrtHostRegisterV2(host, kPage, ACL_HOST_REG_PINNED),
            ACL_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
  EXPECT_EQ(aclrtFreeHost(host), ACL_SUCCESS);
}

// A copy of registered memory is queued; one that was queued before the end of the registration
// still has its bytes.
TEST_F(HostRegistration, EndsAtOnceForNewCallsAndLeavesQueuedWorkItsBytes) {
  static std::atomic<bool> go{false};
  go = false;
  void* device = allocate(kPage);
  aclrtStream stream = nullptr;
  ASSERT_EQ(aclrtCreateStream(&stream), ACL_SUCCESS);
  std::memset(memory, 0x5a, kPage);
  ASSERT_EQ(aclrtHostRegisterV2(memory, kPage, ACL_HOST_REG_MAPPED), ACL_SUCCESS);
  ASSERT_EQ(hufuLaunchHostTask(
                stream,
                [](void* /*arg*/) {
                  go.wait(false);
                  return 0;
                },
                nullptr),
            ACL_SUCCESS);
  // It would never return if it were done at once, after the stream's work.
  ASSERT_EQ(aclrtMemcpyAsync(device, kPage, memory, kPage, ACL_MEMCPY_HOST_TO_DEVICE, stream),
            ACL_SUCCESS);
  EXPECT_EQ(aclrtHostUnregister(memory), ACL_SUCCESS);
  EXPECT_EQ(attributes_of(memory).location.type, ACL_MEM_LOCATION_TYPE_UNREGISTERED);
  go = true;
  go.notify_all();
  ASSERT_EQ(aclrtSynchronizeStream(stream), ACL_SUCCESS);
  EXPECT_EQ(static_cast<char*>(device)[kPage - 1], 0x5a);
  EXPECT_EQ(aclrtFree(device), ACL_SUCCESS);
}

TEST_F(HostRegistration, TheUnitsThatHaveAStandInReachHostMemory) {
  const std::array expected = {1, 1, 1, 1, 1, 0, 1, 0, 0, 0};
  for (int unit = 0; unit < static_cast<int>(expected.size()); ++unit) {
    auto capability = from_c<aclrtHostMemMapCapability>(17);
    ASSERT_EQ(aclrtHostMemMapCapabilities(1, from_c<aclrtHacType>(unit), &capability), ACL_SUCCESS);
    EXPECT_EQ(static_cast<int>(capability), expected[static_cast<size_t>(unit)]) << unit;
  }
  auto capability = from_c<aclrtHostMemMapCapability>(17);
  EXPECT_EQ(aclrtHostMemMapCapabilities(0, ACL_RT_HAC_TYPE_AIC, nullptr), ACL_ERROR_INVALID_PARAM);
  EXPECT_EQ(aclrtHostMemMapCapabilities(0, from_c<aclrtHacType>(10), &capability),
            ACL_ERROR_RT_PARAM_INVALID);
  EXPECT_EQ(aclrtHostMemMapCapabilities(2, ACL_RT_HAC_TYPE_AIC, &capability),
            ACL_ERROR_RT_INVALID_DEVICEID);
  EXPECT_EQ(static_cast<int>(capability), 17);
}

TEST_F(HostRegistration, HostMemoryIsFreedAfterTheDevicesWork) {
  static std::atomic<bool> ran{false};
  ran = false;
  void* host = nullptr;
  ASSERT_EQ(aclrtMallocHost(&host, kPage), ACL_SUCCESS);
  ASSERT_EQ(hufuLaunchHostTask(
                nullptr,
                [](void* /*arg*/) {
                  std::this_thread::yield();
                  ran = true;
                  return 0;
                },
                nullptr),
            ACL_SUCCESS);
  EXPECT_EQ(aclrtFreeHostWithDevSync(host), ACL_SUCCESS) << recent();
  EXPECT_TRUE(ran);
  EXPECT_EQ(aclrtFreeHostWithDevSync(host), ACL_ERROR_RT_PARAM_INVALID);
  EXPECT_EQ(aclrtFreeHostWithDevSync(nullptr), ACL_ERROR_INVALID_PARAM);
}

}  // namespace
}  // namespace hufu::test
