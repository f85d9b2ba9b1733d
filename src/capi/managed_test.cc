// Managed memory: one address for host and devices, and hints that are remembered.

#include <array>
#include <cstring>
#include <thread>

#include <gtest/gtest.h>

#include "acl/acl.h"
#include "capi/alone.h"
#include "hufu/hufu.h"

namespace hufu::test {
namespace {

constexpr size_t kStep = size_t{2} << 20U;
constexpr aclrtMemManagedLocation kHost{ACL_MEM_LOCATIONTYPE_HOST, 0};
constexpr aclrtMemManagedLocation kDevice0{ACL_MEM_LOCATIONTYPE_DEVICE, 0};
constexpr aclrtMemManagedLocation kDevice1{ACL_MEM_LOCATIONTYPE_DEVICE, 1};

class Managed : public Alone {
 protected:
  void SetUp() override {
    Alone::SetUp();
    ASSERT_EQ(aclrtMemAllocManaged(&memory, kStep + 1, ACL_RT_MEM_ATTACH_GLOBAL), ACL_SUCCESS)
        << recent();
  }
  void TearDown() override {
    EXPECT_EQ(aclrtFree(memory), ACL_SUCCESS);
    Alone::TearDown();
  }
  char* at(size_t offset) const { return static_cast<char*>(memory) + offset; }
  int32_t value_of(aclrtMemManagedRangeAttribute attribute, size_t offset, size_t size) const {
    int32_t value = 17;
    EXPECT_EQ(aclrtMemManagedGetAttr(attribute, at(offset), size, &value, sizeof(value)),
              ACL_SUCCESS)
        << recent();
    return value;
  }
  aclError advise(aclrtMemManagedAdviseType what, aclrtMemManagedLocation where, size_t offset,
                  size_t size) const {
    return aclrtMemManagedAdvise(at(offset), size, what, where);
  }

  void* memory = nullptr;
};

TEST_F(Managed, IsMemoryOfBothAtOneAddress) {
  aclrtPtrAttributes attributes{};
  ASSERT_EQ(aclrtPointerGetAttributes(at(2 * kStep - 1), &attributes), ACL_SUCCESS);
  EXPECT_EQ(attributes.location.type, ACL_MEM_LOCATION_TYPE_MANAGED);
  void* base = nullptr;
  size_t size = 0;
  ASSERT_EQ(aclrtMemGetAddressRange(at(7), &base, &size), ACL_SUCCESS);
  EXPECT_EQ(base, memory);
  EXPECT_EQ(size, 2 * kStep) << "in steps of 2 MiB";
  std::memset(memory, 0x5a, 2 * kStep);
  void* device = allocate(4096);
  EXPECT_EQ(aclrtMemcpy(device, 4096, memory, 4096, ACL_MEMCPY_DEVICE_TO_DEVICE), ACL_SUCCESS);
  EXPECT_EQ(static_cast<char*>(device)[4095], 0x5a);
  EXPECT_EQ(aclrtFree(device), ACL_SUCCESS);
  hufuExportability exportability{};
  exportability.structSize = sizeof(exportability);
  ASSERT_EQ(hufuMemQueryExportable(memory, 4096, &exportability), ACL_SUCCESS);
  EXPECT_EQ(exportability.exportable, 0);
}

TEST_F(Managed, IsCountedAndFreedAsDeviceMemory) {
  size_t before = 0;
  size_t after = 0;
  size_t total = 0;
  ASSERT_EQ(aclrtGetMemInfo(ACL_HBM_MEM, &before, &total), ACL_SUCCESS);
  void* more = nullptr;
  ASSERT_EQ(aclrtMemAllocManaged(&more, 1, 1), ACL_SUCCESS);
  ASSERT_EQ(aclrtGetMemInfo(ACL_HBM_MEM, &after, &total), ACL_SUCCESS);
  EXPECT_EQ(before - after, kStep);
  EXPECT_EQ(aclrtFree(static_cast<char*>(more) + 64), ACL_ERROR_RT_PARAM_INVALID);
  EXPECT_EQ(aclrtFree(more), ACL_SUCCESS);
  EXPECT_EQ(aclrtFree(more), ACL_ERROR_RT_PARAM_INVALID);
  ASSERT_EQ(aclrtGetMemInfo(ACL_HBM_MEM, &after, &total), ACL_SUCCESS);
  EXPECT_EQ(before, after);
  void* const untouched = more;
  EXPECT_EQ(aclrtMemAllocManaged(&more, size_t{1} << 30U, 1), ACL_ERROR_RT_MEMORY_ALLOCATION);
  EXPECT_EQ(aclrtMemAllocManaged(&more, 0, 1), ACL_ERROR_RT_PARAM_INVALID);
  EXPECT_EQ(aclrtMemAllocManaged(&more, 1, 0), ACL_ERROR_INVALID_PARAM);
  EXPECT_EQ(aclrtMemAllocManaged(nullptr, 1, 1), ACL_ERROR_INVALID_PARAM);
  std::thread([&] {
    EXPECT_EQ(aclrtMemAllocManaged(&more, 1, 1), ACL_ERROR_RT_CONTEXT_NULL);
  }).join();
  EXPECT_EQ(more, untouched);
}

TEST_F(Managed, RemembersWhatWasAdvisedForEachRange) {
  EXPECT_EQ(value_of(ACL_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, 0, kStep), 0);
  EXPECT_EQ(value_of(ACL_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION, 0, kStep), -2);
  ASSERT_EQ(advise(ACL_MEM_ADVISE_SET_READ_MOSTLY, {}, 0, kStep), ACL_SUCCESS) << recent();
  ASSERT_EQ(advise(ACL_MEM_ADVISE_SET_PREFERRED_LOCATION, kDevice1, kStep / 2, kStep), ACL_SUCCESS);
  EXPECT_EQ(value_of(ACL_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, 0, kStep), 1);
  EXPECT_EQ(value_of(ACL_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, 0, kStep + 1), 0);
  EXPECT_EQ(value_of(ACL_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION, kStep / 2, kStep), 1);
  EXPECT_EQ(value_of(ACL_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION, 0, kStep), -2);
  EXPECT_EQ(value_of(ACL_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_TYPE, kStep / 2, 1),
            ACL_MEM_LOCATIONTYPE_DEVICE);
  EXPECT_EQ(value_of(ACL_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_ID, kStep / 2, 1), 1);
  EXPECT_EQ(value_of(ACL_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_TYPE, 0, 1),
            ACL_MEM_LOCATIONTYPE_INVALID);
  ASSERT_EQ(advise(ACL_MEM_ADVISE_UNSET_READ_MOSTLY, {}, 0, 1), ACL_SUCCESS);
  EXPECT_EQ(value_of(ACL_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, 0, 1), 0);
  ASSERT_EQ(advise(ACL_MEM_ADVISE_UNSET_PREFERRED_LOCATION, {}, 0, 2 * kStep), ACL_SUCCESS);
  EXPECT_EQ(value_of(ACL_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION, kStep / 2, 1), -2);
  ASSERT_EQ(advise(ACL_MEM_ADVISE_SET_PREFERRED_LOCATION, kHost, 0, 1), ACL_SUCCESS);
  EXPECT_EQ(value_of(ACL_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION, 0, 1), -1);
}

TEST_F(Managed, ListsWhoWillUseIt) {
  ASSERT_EQ(advise(ACL_MEM_ADVISE_SET_ACCESSED_BY, kDevice1, 0, kStep), ACL_SUCCESS);
  ASSERT_EQ(advise(ACL_MEM_ADVISE_SET_ACCESSED_BY, kHost, 0, kStep), ACL_SUCCESS);
  std::array<int32_t, 4> ids{};
  const auto attribute = ACL_MEM_RANGE_ATTRIBUTE_ACCESSED_BY;
  ASSERT_EQ(aclrtMemManagedGetAttr(attribute, memory, kStep, ids.data(), sizeof(ids)), ACL_SUCCESS);
  EXPECT_EQ(ids, (std::array<int32_t, 4>{-1, 1, -2, -2}));
  ASSERT_EQ(advise(ACL_MEM_ADVISE_UNSET_ACCESSED_BY, kHost, 0, 1), ACL_SUCCESS);
  ASSERT_EQ(aclrtMemManagedGetAttr(attribute, memory, kStep, ids.data(), 4), ACL_SUCCESS);
  EXPECT_EQ(ids[0], 1) << "of all of the range";
  EXPECT_EQ(aclrtMemManagedGetAttr(attribute, memory, kStep, ids.data(), 6),
            ACL_ERROR_RT_PARAM_INVALID);
}

TEST_F(Managed, IsPrefetchedInTheStreamsOrder) {
  aclrtStream stream = nullptr;
  ASSERT_EQ(aclrtCreateStream(&stream), ACL_SUCCESS);
  EXPECT_EQ(value_of(ACL_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION, 0, 1), -2);
  ASSERT_EQ(aclrtMemManagedPrefetchAsync(memory, kStep, kDevice1, 0, stream), ACL_SUCCESS)
      << recent();
  EXPECT_EQ(value_of(ACL_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION, 0, kStep), 1);
  EXPECT_EQ(value_of(ACL_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION, kStep, 1), -2);

  std::array<const void*, 3> pointers = {at(0), at(4096), at(8192)};
  std::array<size_t, 3> sizes = {4096, 4096, 4096};
  std::array<aclrtMemManagedLocation, 2> places = {kHost, kDevice0};
  std::array<size_t, 2> from = {0, 2};
  ASSERT_EQ(aclrtMemManagedPrefetchBatchAsync(pointers.data(), sizes.data(), 3, places.data(),
                                              from.data(), 2, 0, stream),
            ACL_SUCCESS)
      << recent();
  EXPECT_EQ(value_of(ACL_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION, 0, 8192), -1);
  EXPECT_EQ(value_of(ACL_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_TYPE, 0, 8192),
            ACL_MEM_LOCATIONTYPE_HOST);
  EXPECT_EQ(value_of(ACL_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_ID, 8192, 1), 0);
  EXPECT_EQ(aclrtSynchronizeStream(stream), ACL_SUCCESS);

  // One that is wrong: none is done.
  int local = 0;
  pointers[2] = &local;
  places[0] = kDevice1;
  EXPECT_EQ(aclrtMemManagedPrefetchBatchAsync(pointers.data(), sizes.data(), 3, places.data(),
                                              from.data(), 2, 0, stream),
            ACL_ERROR_RT_PARAM_INVALID);
  EXPECT_EQ(value_of(ACL_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION, 0, 8192), -1);
  EXPECT_EQ(aclrtMemManagedPrefetchBatchAsync(pointers.data(), sizes.data(), 1, places.data(),
                                              from.data(), 2, 0, stream),
            ACL_ERROR_INVALID_PARAM)
      << "more locations than ranges";
  EXPECT_EQ(aclrtMemManagedPrefetchAsync(memory, kStep, kDevice1, 0, memory),
            ACL_ERROR_RT_INVALID_HANDLE);
}

TEST_F(Managed, HintsAreOnlyForRangesInIt) {
  void* device = allocate(4096);
  int local = 0;
  for (void* other : {device, static_cast<void*>(&local)}) {
    EXPECT_EQ(aclrtMemManagedAdvise(other, 4, ACL_MEM_ADVISE_SET_READ_MOSTLY, {}),
              ACL_ERROR_RT_PARAM_INVALID);
    EXPECT_TRUE(says("aclrtMemAllocManaged"));
  }
  EXPECT_EQ(advise(ACL_MEM_ADVISE_SET_READ_MOSTLY, {}, kStep, kStep + 1),
            ACL_ERROR_RT_PARAM_INVALID);
  EXPECT_TRUE(says("at most 2097152 bytes"));
  EXPECT_EQ(aclrtFree(device), ACL_SUCCESS);

  // They end with the memory: the next one begins without.
  ASSERT_EQ(advise(ACL_MEM_ADVISE_SET_READ_MOSTLY, {}, 0, 2 * kStep), ACL_SUCCESS);
  ASSERT_EQ(aclrtFree(memory), ACL_SUCCESS);
  memory = nullptr;
  ASSERT_EQ(aclrtMemAllocManaged(&memory, 2 * kStep, 1), ACL_SUCCESS);
  EXPECT_EQ(value_of(ACL_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, 0, 1), 0);
}

TEST_F(Managed, SeveralQuestionsAreAnsweredAllOrNotAtAll) {
  ASSERT_EQ(advise(ACL_MEM_ADVISE_SET_READ_MOSTLY, {}, 0, kStep), ACL_SUCCESS);
  std::array attributes = {ACL_MEM_RANGE_ATTRIBUTE_READ_MOSTLY,
                           ACL_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION};
  std::array<int32_t, 2> values = {17, 17};
  std::array<void*, 2> data = {values.data(), &values[1]};
  std::array<size_t, 2> sizes = {4, 8};
  EXPECT_EQ(aclrtMemManagedGetAttrs(attributes.data(), 2, memory, kStep, data.data(), sizes.data()),
            ACL_ERROR_RT_PARAM_INVALID);
  EXPECT_EQ(values[0], 17);
  sizes[1] = 4;
  EXPECT_EQ(aclrtMemManagedGetAttrs(attributes.data(), 2, memory, kStep, data.data(), sizes.data()),
            ACL_SUCCESS)
      << recent();
  EXPECT_EQ(values, (std::array<int32_t, 2>{1, -2}));
}

}  // namespace
}  // namespace hufu::test
