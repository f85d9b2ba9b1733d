#pragma once

// For tests: a process without a broker, with two devices of 128 MiB, the first one current.

#include <array>
#include <cstdlib>
#include <string>
#include <string_view>

#include <gtest/gtest.h>

#include "acl/acl.h"

namespace hufu::test {

// What the thread's errors said since the last question.
inline std::string recent() {
  const char* text = aclGetRecentErrMsg();
  return text == nullptr ? "" : text;
}

inline bool says(std::string_view word) {
  const std::string text = recent();
  EXPECT_NE(text.find(word), std::string::npos) << text;
  return text.find(word) != std::string::npos;
}

// A C caller can pass any number for an enumerator.
template <class Enum>
Enum from_c(int number) {
  return static_cast<Enum>(number);
}

class Alone : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    constexpr std::array<std::array<const char*, 2>, 3> kVariables = {{
        {"HUFU_BROKER", "none"},
        {"HUFU_DEVICES", "2"},
        {"HUFU_DEVICE_CAPACITY", "134217728"},
    }};
    for (const auto& [name, value] : kVariables)
      ::setenv(name, value, 1);  // NOLINT(concurrency-mt-unsafe): before any thread.
  }
  void SetUp() override {
    recent();
    aclrtGetLastError(ACL_RT_THREAD_LEVEL);
    ASSERT_EQ(aclrtSetDevice(0), ACL_SUCCESS) << recent();
  }
  void TearDown() override { EXPECT_EQ(aclrtResetDeviceForce(0), ACL_SUCCESS); }

  static void* allocate(size_t size, aclrtMemMallocPolicy policy = ACL_MEM_MALLOC_NORMAL_ONLY) {
    void* pointer = nullptr;
    EXPECT_EQ(aclrtMalloc(&pointer, size, policy), ACL_SUCCESS) << recent();
    return pointer;
  }
};

}  // namespace hufu::test
