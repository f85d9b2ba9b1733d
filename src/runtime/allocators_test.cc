#include "runtime/allocators.h"

#include <gtest/gtest.h>

#include "runtime/streams.h"

namespace hufu::runtime {
namespace {

class AllocatorsTest : public testing::Test {
 protected:
  Allocators::Handle complete() {
    const auto handle = allocators.create();
    EXPECT_TRUE(allocators.set(handle, &AllocatorDescription::object, static_cast<void*>(this)));
    EXPECT_TRUE(allocators.set(
        handle, &AllocatorDescription::alloc, +[](void* object, std::size_t) { return object; }));
    EXPECT_TRUE(allocators.set(
        handle, &AllocatorDescription::free, +[](void*, void*) {}));
    EXPECT_TRUE(allocators.set(
        handle, &AllocatorDescription::address_of_block, +[](void* block) { return block; }));
    return handle;
  }

  Deferred deferred;
  Streams streams{deferred};
  Allocators allocators{streams};
  ContextId context{.device = 0, .life = 1};
};

TEST_F(AllocatorsTest, AStreamsIsACopy) {
  void* stream = *streams.create(context);
  const auto handle = complete();
  ASSERT_TRUE(allocators.add(stream, handle));
  ASSERT_TRUE(allocators.set(handle, &AllocatorDescription::object, static_cast<void*>(stream)));
  EXPECT_EQ(allocators.of(stream)->description.object, this) << "changed after it was registered";
  ASSERT_TRUE(allocators.destroy(handle));
  const auto found = allocators.of(stream);
  ASSERT_TRUE(found) << found.error().what();
  EXPECT_EQ(found->description.object, this);
  EXPECT_EQ(found->description.alloc_advise, nullptr);
  EXPECT_EQ(allocators.destroy(found->handle).error().code, Errc::kInvalidHandle);
  ASSERT_TRUE(streams.destroy(stream, context, Destroy::kAfterItsWork));
}

TEST_F(AllocatorsTest, TheLastRegistrationOfAStreamCounts) {
  void* stream = *streams.create(context);
  const auto first = complete();
  const auto second = complete();
  ASSERT_TRUE(allocators.set(second, &AllocatorDescription::object, static_cast<void*>(stream)));
  ASSERT_TRUE(allocators.add(stream, first));
  const auto before = allocators.of(stream)->handle;
  ASSERT_TRUE(allocators.add(stream, second));
  EXPECT_EQ(allocators.of(stream)->description.object, stream);
  EXPECT_FALSE(allocators.set(before, &AllocatorDescription::object, stream)) << "it has ended";
}

TEST_F(AllocatorsTest, EndsWithItsStreamAndWhenItIsTakenAway) {
  void* stream = *streams.create(context);
  ASSERT_TRUE(allocators.add(stream, complete()));
  allocators.remove(stream);
  allocators.remove(stream);
  EXPECT_EQ(allocators.of(stream).error().code, Errc::kInvalidArgument);
  ASSERT_TRUE(allocators.add(stream, complete()));
  ASSERT_TRUE(streams.destroy(stream, context, Destroy::kByForce));
  EXPECT_EQ(allocators.of(stream).error().code, Errc::kInvalidArgument);
  EXPECT_EQ(allocators.add(stream, complete()).error().code, Errc::kInvalidHandle);
}

TEST_F(AllocatorsTest, OnlyACompleteDescriptionIsRegistered) {
  void* stream = *streams.create(context);
  const auto handle = allocators.create();
  const auto refused = [&](std::string_view word) {
    const auto result = allocators.add(stream, handle);
    EXPECT_FALSE(result);
    EXPECT_EQ(result.error().code, Errc::kInvalidArgument);
    EXPECT_NE(result.error().what().find(word), std::string_view::npos) << result.error().what();
  };
  refused("object");
  ASSERT_TRUE(allocators.set(handle, &AllocatorDescription::object, static_cast<void*>(this)));
  refused("alloc function");
  ASSERT_TRUE(allocators.set(
      handle, &AllocatorDescription::alloc, +[](void* object, std::size_t) { return object; }));
  refused("free function");
  ASSERT_TRUE(allocators.set(
      handle, &AllocatorDescription::free, +[](void*, void*) {}));
  refused("address function");
}

TEST_F(AllocatorsTest, AHandleThatIsNoneIsRecognised) {
  const auto handle = allocators.create();
  ASSERT_TRUE(allocators.destroy(handle));
  EXPECT_EQ(allocators.destroy(handle).error().code, Errc::kInvalidHandle);
  EXPECT_EQ(allocators.destroy(this).error().code, Errc::kInvalidHandle);
  EXPECT_NE(allocators.create(), handle) << "never used twice";
}

}  // namespace
}  // namespace hufu::runtime
