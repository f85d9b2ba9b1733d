#include "runtime/streams.h"

#include <set>

#include <gtest/gtest.h>

namespace hufu::runtime {
namespace {

constexpr ContextId kHere{.device = 0, .life = 1};
constexpr ContextId kThere{.device = 1, .life = 2};

TEST(Streams, NullStandsForTheDefaultStream) {
  Streams streams;
  EXPECT_TRUE(streams.check(nullptr, kHere));
  StreamHandle standard = streams.default_of(kHere);
  EXPECT_EQ(streams.default_of(kHere), standard);
  EXPECT_NE(streams.default_of(kThere), standard);
  EXPECT_TRUE(streams.check(standard, kHere));
  EXPECT_EQ(streams.destroy(standard, kHere).error().code, Errc::kInvalidValue);
}

TEST(Streams, ADestroyedHandleIsNeverValidAgain) {
  Streams streams;
  std::set<StreamHandle> destroyed;
  for (int i = 0; i < 1000; ++i) {
    StreamHandle stream = streams.create(kHere);
    EXPECT_FALSE(destroyed.contains(stream));
    EXPECT_TRUE(streams.destroy(stream, kHere));
    EXPECT_EQ(streams.destroy(stream, kHere).error().code, Errc::kInvalidHandle);
    EXPECT_EQ(streams.check(stream, kHere).error().code, Errc::kInvalidHandle);
    destroyed.insert(stream);
  }
}

TEST(Streams, GarbageIsLookedUpAndNotFollowed) {
  Streams streams;
  int local = 0;
  for (void* garbage : {reinterpret_cast<void*>(0x1), reinterpret_cast<void*>(~std::uintptr_t{0}),
                        static_cast<void*>(&local)}) {
    EXPECT_EQ(streams.check(garbage, kHere).error().code, Errc::kInvalidHandle);
    EXPECT_EQ(streams.destroy(garbage, kHere).error().code, Errc::kInvalidHandle);
  }
}

TEST(Streams, BelongToOneContextAndEndWithIt) {
  Streams streams;
  StreamHandle stream = streams.create(kHere);
  StreamHandle other = streams.create(kThere);
  EXPECT_EQ(streams.check(stream, kThere).error().code, Errc::kForeignStream);
  EXPECT_EQ(streams.destroy(stream, kThere).error().code, Errc::kForeignStream);
  streams.end(kHere);
  EXPECT_EQ(streams.check(stream, kHere).error().code, Errc::kInvalidHandle);
  EXPECT_TRUE(streams.check(other, kThere));
}

}  // namespace
}  // namespace hufu::runtime
