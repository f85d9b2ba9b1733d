// A program's own allocators, registered for its streams.

#include <gtest/gtest.h>

#include "acl/acl.h"
#include "acl/acl_rt_allocator.h"
#include "capi/alone.h"

namespace hufu::test {
namespace {

class Allocator : public Alone {
 protected:
  static void* alloc(aclrtAllocator object, size_t /*size*/) { return object; }
  static void release(aclrtAllocator /*object*/, aclrtAllocatorBlock /*block*/) {}
  static void* address(aclrtAllocatorBlock block) { return block; }

  aclrtAllocatorDesc complete() {
    const aclrtAllocatorDesc desc = aclrtAllocatorCreateDesc();
    EXPECT_NE(desc, nullptr);
    EXPECT_EQ(aclrtAllocatorSetObjToDesc(desc, this), ACL_SUCCESS);
    EXPECT_EQ(aclrtAllocatorSetAllocFuncToDesc(desc, alloc), ACL_SUCCESS);
    EXPECT_EQ(aclrtAllocatorSetFreeFuncToDesc(desc, release), ACL_SUCCESS);
    EXPECT_EQ(aclrtAllocatorSetGetAddrFromBlockFuncToDesc(desc, address), ACL_SUCCESS);
    return desc;
  }
};

TEST_F(Allocator, IsFoundByItsStreamAfterTheDescriptionIsGone) {
  aclrtStream stream = nullptr;
  ASSERT_EQ(aclrtCreateStream(&stream), ACL_SUCCESS);
  const aclrtAllocatorDesc desc = complete();
  ASSERT_EQ(aclrtAllocatorRegister(stream, desc), ACL_SUCCESS) << recent();
  EXPECT_EQ(aclrtAllocatorDestroyDesc(desc), ACL_SUCCESS);
  EXPECT_EQ(aclrtAllocatorDestroyDesc(desc), ACL_ERROR_RT_INVALID_HANDLE);

  aclrtAllocatorDesc found = nullptr;
  aclrtAllocator object = nullptr;
  aclrtAllocatorAllocFunc found_alloc = nullptr;
  aclrtAllocatorFreeFunc found_free = nullptr;
  aclrtAllocatorAllocAdviseFunc found_advise = [](void* any, size_t, void*) { return any; };
  aclrtAllocatorGetAddrFromBlockFunc found_address = nullptr;
  ASSERT_EQ(aclrtAllocatorGetByStream(stream, &found, &object, &found_alloc, &found_free,
                                      &found_advise, &found_address),
            ACL_SUCCESS)
      << recent();
  EXPECT_NE(found, nullptr);
  EXPECT_EQ(object, this);
  EXPECT_EQ(found_alloc, alloc);
  EXPECT_EQ(found_free, release);
  EXPECT_EQ(found_advise, nullptr);
  EXPECT_EQ(found_address, address);

  EXPECT_EQ(aclrtAllocatorUnregister(stream), ACL_SUCCESS);
  EXPECT_EQ(aclrtAllocatorUnregister(stream), ACL_SUCCESS) << "again is no mistake";
  found = this;
  EXPECT_EQ(aclrtAllocatorGetByStream(stream, &found, nullptr, nullptr, nullptr, nullptr, nullptr),
            ACL_ERROR_INVALID_PARAM);
  EXPECT_EQ(found, this);
}

TEST_F(Allocator, IsForgottenWithItsStream) {
  aclrtStream stream = nullptr;
  ASSERT_EQ(aclrtCreateStream(&stream), ACL_SUCCESS);
  const aclrtAllocatorDesc desc = complete();
  ASSERT_EQ(aclrtAllocatorRegister(stream, desc), ACL_SUCCESS);
  ASSERT_EQ(aclrtDestroyStream(stream), ACL_SUCCESS);
  aclrtAllocatorDesc found = nullptr;
  EXPECT_EQ(aclrtAllocatorGetByStream(stream, &found, nullptr, nullptr, nullptr, nullptr, nullptr),
            ACL_ERROR_INVALID_PARAM);
  EXPECT_EQ(aclrtAllocatorRegister(stream, desc), ACL_ERROR_RT_INVALID_HANDLE);
  EXPECT_EQ(aclrtAllocatorUnregister(stream), ACL_SUCCESS);
  EXPECT_EQ(aclrtAllocatorDestroyDesc(desc), ACL_SUCCESS);
}

TEST_F(Allocator, MustBeComplete) {
  aclrtStream stream = nullptr;
  ASSERT_EQ(aclrtCreateStream(&stream), ACL_SUCCESS);
  const aclrtAllocatorDesc desc = aclrtAllocatorCreateDesc();
  ASSERT_EQ(aclrtAllocatorSetObjToDesc(desc, this), ACL_SUCCESS);
  EXPECT_EQ(aclrtAllocatorRegister(stream, desc), ACL_ERROR_INVALID_PARAM);
  EXPECT_TRUE(says("aclrtAllocatorSetAllocFuncToDesc"));
  EXPECT_EQ(aclrtAllocatorDestroyDesc(desc), ACL_SUCCESS);
}

}  // namespace
}  // namespace hufu::test
