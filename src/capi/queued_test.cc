// Queued work through the C API, in a process without a broker: order, failures, and what happens
// to memory that is freed meanwhile.

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string>
#include <thread>

#include <gtest/gtest.h>

#include "acl/acl.h"
#include "hufu/hufu.h"
#include "runtime/gate.h"
#include "runtime/runtime.h"

namespace {

using hufu::runtime::Gate;
using hufu::runtime::Runtime;

std::string recent() {
  const char* text = aclGetRecentErrMsg();
  return text == nullptr ? "" : text;
}

constexpr size_t kBlock = 1U << 20U;  // Too long for the caller to copy himself.

class Queued : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    // NOLINTBEGIN(concurrency-mt-unsafe): before any thread.
    ::setenv("HUFU_BROKER", "none", 1);
    ::setenv("HUFU_DEVICES", "2", 1);
    ::setenv("HUFU_DEVICE_CAPACITY", "134217728", 1);
    ::setenv("HUFU_TIMEOUT_MS", "100", 1);
    // NOLINTEND(concurrency-mt-unsafe)
  }
  void SetUp() override {
    recent();
    ASSERT_EQ(aclrtSetDevice(0), ACL_SUCCESS) << recent();
    stream_ = create();
  }
  void TearDown() override {
    EXPECT_EQ(aclrtSynchronizeDevice(), ACL_SUCCESS) << recent();
    EXPECT_EQ(pending(), 0U);
    EXPECT_EQ(aclrtResetDeviceForce(0), ACL_SUCCESS);
  }

  static aclrtStream create() {
    aclrtStream stream = nullptr;
    EXPECT_EQ(aclrtCreateStream(&stream), ACL_SUCCESS) << recent();
    return stream;
  }
  static char* allocate(size_t size = kBlock) {
    void* pointer = nullptr;
    EXPECT_EQ(aclrtMalloc(&pointer, size, ACL_MEM_MALLOC_NORMAL_ONLY), ACL_SUCCESS) << recent();
    std::memset(pointer, 0, size);  // It may have been another test's.
    return static_cast<char*>(pointer);
  }
  static void stand(aclrtStream stream, Gate& gate) {
    const auto task = gate.task();
    ASSERT_EQ(hufuLaunchHostTask(stream, task.run, task.argument), ACL_SUCCESS) << recent();
    gate.wait_reached();
  }
  static size_t pending() { return Runtime::get_if_any()->deferred().pending(); }

  aclrtStream stream_ = nullptr;
};

TEST_F(Queued, CopiesAndSetsAreDoneInOrder) {
  char* one = allocate();
  char* other = allocate();
  Gate gate;
  stand(stream_, gate);
  ASSERT_EQ(aclrtMemsetAsync(one, kBlock, 7, kBlock, stream_), ACL_SUCCESS) << recent();
  ASSERT_EQ(aclrtMemcpyAsync(other, kBlock, one, kBlock, ACL_MEMCPY_DEVICE_TO_DEVICE, stream_),
            ACL_SUCCESS);
  ASSERT_EQ(aclrtMemsetAsync(one, kBlock, 8, kBlock, stream_), ACL_SUCCESS);
  EXPECT_EQ(one[0], 0);
  gate.open();
  ASSERT_EQ(aclrtSynchronizeStream(stream_), ACL_SUCCESS) << recent();
  EXPECT_EQ(one[kBlock - 1], 8);
  EXPECT_EQ(other[kBlock - 1], 7);
  EXPECT_EQ(aclrtFree(one), ACL_SUCCESS);
  EXPECT_EQ(aclrtFree(other), ACL_SUCCESS);
}

TEST_F(Queued, ProgramsOwnHostMemoryIsReadBeforeTheCallReturns) {
  char* device = allocate();
  std::array<char, 4096> host{};
  std::thread opener;
  Gate gate;
  stand(stream_, gate);
  opener = std::thread([&] { gate.open(); });
  host.fill('x');
  ASSERT_EQ(aclrtMemcpyAsync(device, kBlock, host.data(), host.size(), ACL_MEMCPY_HOST_TO_DEVICE,
                             stream_),
            ACL_SUCCESS);
  host.fill('y');
  EXPECT_EQ(device[0], 'x');
  opener.join();
  EXPECT_EQ(aclrtFree(device), ACL_SUCCESS);
}

TEST_F(Queued, BufferedHostBytesAreTakenAtTheCall) {
  char* device = allocate();
  std::array<char, 4096> host{};
  Gate gate;
  stand(stream_, gate);
  host.fill('x');
  ASSERT_EQ(aclrtMemcpyAsync(device, kBlock, host.data(), host.size(),
                             ACL_MEMCPY_HOST_TO_BUF_TO_DEVICE, stream_),
            ACL_SUCCESS);
  host.fill('y');
  EXPECT_EQ(device[0], 0);
  gate.open();
  ASSERT_EQ(aclrtSynchronizeStream(stream_), ACL_SUCCESS);
  EXPECT_EQ(device[0], 'x');
  EXPECT_EQ(device[4095], 'x');
  EXPECT_EQ(aclrtFree(device), ACL_SUCCESS);
}

TEST_F(Queued, RefusalsHaveTheContractsCodes) {
  char* device = allocate();
  std::array<char, 64> host{};
  const auto copy = [&](void* to, const void* from, aclrtMemcpyKind kind, aclrtStream stream) {
    return aclrtMemcpyAsync(to, 64, from, 64, kind, stream);
  };
  EXPECT_EQ(aclrtMemcpyAsync(nullptr, 0, nullptr, 0, ACL_MEMCPY_DEFAULT, nullptr), ACL_SUCCESS);
  EXPECT_EQ(copy(nullptr, device, ACL_MEMCPY_DEFAULT, stream_), ACL_ERROR_INVALID_PARAM);
  EXPECT_EQ(copy(host.data(), host.data() + 1, ACL_MEMCPY_HOST_TO_HOST, stream_),
            ACL_ERROR_RT_FEATURE_NOT_SUPPORT);
  EXPECT_EQ(aclrtMemcpyAsync(device, 63, device + 64, 64, ACL_MEMCPY_DEVICE_TO_DEVICE, stream_),
            ACL_ERROR_RT_PARAM_INVALID);
  EXPECT_EQ(copy(host.data(), device, ACL_MEMCPY_DEVICE_TO_DEVICE, stream_),
            ACL_ERROR_MEMORY_ADDRESS_UNREGISTERED);
  EXPECT_EQ(copy(device, device + 64, ACL_MEMCPY_DEVICE_TO_DEVICE, host.data()),
            ACL_ERROR_RT_INVALID_HANDLE);
  EXPECT_EQ(hufuLaunchHostTask(stream_, nullptr, nullptr), ACL_ERROR_RT_PARAM_INVALID);
  EXPECT_EQ(aclrtStreamQuery(stream_, nullptr), ACL_ERROR_INVALID_PARAM);
  EXPECT_EQ(aclrtFree(device), ACL_SUCCESS);
}

TEST_F(Queued, QueryAndTimeoutsTellWhatIsUnderWay) {
  Gate gate;
  stand(stream_, gate);
  aclrtStreamStatus status = ACL_STREAM_STATUS_COMPLETE;
  ASSERT_EQ(aclrtStreamQuery(stream_, &status), ACL_SUCCESS);
  EXPECT_EQ(status, ACL_STREAM_STATUS_NOT_READY);
  EXPECT_EQ(aclrtSynchronizeStreamWithTimeout(stream_, 1), ACL_ERROR_RT_STREAM_SYNC_TIMEOUT);
  EXPECT_EQ(aclrtSynchronizeDeviceWithTimeout(1), ACL_ERROR_RT_STREAM_SYNC_TIMEOUT);
  gate.open();
  ASSERT_EQ(aclrtSynchronizeStreamWithTimeout(stream_, 30'000), ACL_SUCCESS);
  ASSERT_EQ(aclrtStreamQuery(stream_, &status), ACL_SUCCESS);
  EXPECT_EQ(status, ACL_STREAM_STATUS_COMPLETE);
}

TEST_F(Queued, ATasksCodeIsWhatSynchroniseReturns) {
  Gate gate;
  gate.open(ACL_ERROR_RT_VECTOR_CORE_EXCEPTION);
  stand(stream_, gate);
  EXPECT_EQ(aclrtSynchronizeStream(stream_), ACL_ERROR_RT_VECTOR_CORE_EXCEPTION);
  EXPECT_NE(recent().find("507035"), std::string::npos);
  EXPECT_EQ(aclrtGetLastError(ACL_RT_THREAD_LEVEL), ACL_ERROR_RT_VECTOR_CORE_EXCEPTION);
  EXPECT_EQ(aclrtSynchronizeStream(stream_), ACL_SUCCESS);
}

TEST_F(Queued, FreedMemoryStaysForTheWorkThatReadsIt) {
  char* read = allocate();
  char* piece = allocate(256);
  char* target = allocate();
  std::memset(read, 5, kBlock);
  std::memset(piece, 6, 256);
  Gate gate;
  stand(stream_, gate);
  ASSERT_EQ(aclrtMemcpyAsync(target, kBlock, read, kBlock, ACL_MEMCPY_DEVICE_TO_DEVICE, stream_),
            ACL_SUCCESS);
  ASSERT_EQ(aclrtMemcpyAsync(target, kBlock, piece, 256, ACL_MEMCPY_DEVICE_TO_DEVICE, stream_),
            ACL_SUCCESS);
  ASSERT_EQ(aclrtFree(read), ACL_SUCCESS);
  ASSERT_EQ(aclrtFree(piece), ACL_SUCCESS);
  EXPECT_EQ(pending(), 2U);
  // Dead for every new call, and nobody else's.
  EXPECT_EQ(aclrtFree(read), ACL_ERROR_RT_PARAM_INVALID);
  EXPECT_EQ(aclrtMemcpyAsync(target, kBlock, read, 64, ACL_MEMCPY_DEVICE_TO_DEVICE, stream_),
            ACL_ERROR_MEMORY_ADDRESS_UNREGISTERED);
  char* other_piece = allocate(256);
  EXPECT_NE(other_piece, piece);
  gate.open();
  ASSERT_EQ(aclrtSynchronizeDevice(), ACL_SUCCESS);
  EXPECT_EQ(target[0], 6);
  EXPECT_EQ(target[kBlock - 1], 5);
  EXPECT_EQ(pending(), 0U);
  EXPECT_EQ(aclrtFree(other_piece), ACL_SUCCESS);
  EXPECT_EQ(aclrtFree(target), ACL_SUCCESS);
}

TEST_F(Queued, FreedHostMemoryOfTheRuntimesStaysToo) {
  void* host = nullptr;
  ASSERT_EQ(aclrtMallocHost(&host, kBlock), ACL_SUCCESS) << recent();
  std::memset(host, 4, kBlock);
  char* device = allocate();
  Gate gate;
  stand(stream_, gate);
  ASSERT_EQ(aclrtMemcpyAsync(device, kBlock, host, kBlock, ACL_MEMCPY_HOST_TO_DEVICE, stream_),
            ACL_SUCCESS);
  EXPECT_EQ(device[0], 0);
  ASSERT_EQ(aclrtFreeHost(host), ACL_SUCCESS) << recent();
  EXPECT_EQ(pending(), 1U);
  EXPECT_EQ(aclrtFreeHost(host), ACL_ERROR_RT_PARAM_INVALID);
  gate.open();
  ASSERT_EQ(aclrtSynchronizeDevice(), ACL_SUCCESS);
  EXPECT_EQ(device[kBlock - 1], 4);
  EXPECT_EQ(aclrtFree(device), ACL_SUCCESS);
}

TEST_F(Queued, WithNothingQueuedMemoryGoesAtOnce) {
  char* block = allocate();
  ASSERT_EQ(aclrtMemsetAsync(block, kBlock, 1, kBlock, stream_), ACL_SUCCESS);
  ASSERT_EQ(aclrtSynchronizeStream(stream_), ACL_SUCCESS);
  ASSERT_EQ(aclrtFree(block), ACL_SUCCESS);
  EXPECT_EQ(pending(), 0U);
}

TEST_F(Queued, AStreamThatStandsStillKeepsOnlyWhatEndedMeanwhile) {
  char* before = allocate();
  ASSERT_EQ(aclrtFree(before), ACL_SUCCESS);
  EXPECT_EQ(pending(), 0U);
  Gate gate;
  stand(stream_, gate);
  char* meanwhile = allocate();
  ASSERT_EQ(aclrtFree(meanwhile), ACL_SUCCESS);
  EXPECT_EQ(pending(), 1U);
  // Of another device, whose memory the stream has never touched.
  std::thread([] {
    ASSERT_EQ(aclrtSetDevice(1), ACL_SUCCESS);
    ASSERT_EQ(aclrtFree(allocate()), ACL_SUCCESS);
    EXPECT_EQ(pending(), 1U);
    EXPECT_EQ(aclrtResetDevice(1), ACL_SUCCESS);
  }).join();
  // What ends on a stream that goes on does not go on without the one that stands.
  gate.open();
  ASSERT_EQ(aclrtSynchronizeDevice(), ACL_SUCCESS);
  EXPECT_EQ(pending(), 0U);
}

TEST_F(Queued, AStreamThatReachedAcrossKeepsTheOtherDevicesMemoryToo) {
  char* there = nullptr;
  std::thread([&] {
    ASSERT_EQ(aclrtSetDevice(1), ACL_SUCCESS);
    there = allocate();
  }).join();
  char* here = allocate();
  Gate gate;
  stand(stream_, gate);
  ASSERT_EQ(aclrtMemcpyAsync(here, kBlock, there, kBlock, ACL_MEMCPY_DEVICE_TO_DEVICE, stream_),
            ACL_SUCCESS);
  ASSERT_EQ(aclrtFree(there), ACL_SUCCESS);
  EXPECT_EQ(pending(), 1U);
  gate.open();
  ASSERT_EQ(aclrtSynchronizeDevice(), ACL_SUCCESS);
  EXPECT_EQ(aclrtFree(here), ACL_SUCCESS);
  EXPECT_EQ(aclrtResetDeviceForce(1), ACL_SUCCESS);
}

TEST_F(Queued, AStreamDestroyedByForceKeepsWhatItsWorkReads) {
  char* read = allocate();
  char* target = allocate();
  std::memset(read, 5, kBlock);
  Gate gate;
  stand(stream_, gate);
  ASSERT_EQ(aclrtMemcpyAsync(target, kBlock, read, kBlock, ACL_MEMCPY_DEVICE_TO_DEVICE, stream_),
            ACL_SUCCESS);
  ASSERT_EQ(aclrtDestroyStreamForce(stream_), ACL_SUCCESS);
  ASSERT_EQ(aclrtFree(read), ACL_SUCCESS);
  EXPECT_EQ(pending(), 1U);
  gate.open();
  ASSERT_EQ(aclrtSynchronizeDevice(), ACL_SUCCESS);
  EXPECT_EQ(target[kBlock - 1], 5);
  EXPECT_EQ(aclrtFree(target), ACL_SUCCESS);
}

TEST_F(Queued, ASynchronousCopyKeepsWhatItReads) {
  constexpr size_t kLarge = 32U << 20U;
  char* read = allocate(kLarge);
  char* target = allocate(kLarge);
  std::memset(read, 5, kLarge);
  std::atomic<bool> over = false;
  std::thread copier([&] {
    ASSERT_EQ(aclrtSetDevice(0), ACL_SUCCESS);
    const aclError code = aclrtMemcpy(target, kLarge, read, kLarge, ACL_MEMCPY_DEVICE_TO_DEVICE);
    // Either it came too late, or it was done to the end.
    if (code != ACL_SUCCESS) {
      EXPECT_EQ(code, ACL_ERROR_MEMORY_ADDRESS_UNREGISTERED);
    } else {
      EXPECT_EQ(target[kLarge - 1], 5);
    }
    over = true;
  });
  while (Runtime::get_if_any()->streams().under_way(0).empty() && !over)
    std::this_thread::yield();
  EXPECT_EQ(aclrtFree(read), ACL_SUCCESS);
  copier.join();
  EXPECT_EQ(aclrtFree(target), ACL_SUCCESS);
}

TEST_F(Queued, ASynchronousCopyComesAfterItsOwnThreadsWork) {
  char* device = allocate();
  struct Late {
    char* to;
  } late{device};
  const auto write = [](void* argument) -> int32_t {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    std::memset(static_cast<Late*>(argument)->to, 9, 64);
    return 0;
  };
  ASSERT_EQ(hufuLaunchHostTask(stream_, write, &late), ACL_SUCCESS);
  std::array<char, 64> host{};
  ASSERT_EQ(aclrtMemcpy(host.data(), 64, device, 64, ACL_MEMCPY_DEVICE_TO_HOST), ACL_SUCCESS);
  EXPECT_EQ(host[63], 9);
  EXPECT_EQ(aclrtFree(device), ACL_SUCCESS);
}

TEST_F(Queued, ResettingWaitsForWorkThatGetsOnAndNotForWorkThatStands) {
  std::atomic<int> count = 0;
  const auto add = [](void* argument) -> int32_t {
    static_cast<std::atomic<int>*>(argument)->fetch_add(1);
    return 0;
  };
  for (int i = 0; i < 100; ++i)
    ASSERT_EQ(hufuLaunchHostTask(stream_, add, &count), ACL_SUCCESS);
  ASSERT_EQ(aclrtDestroyStreamForce(stream_), ACL_SUCCESS);
  ASSERT_EQ(aclrtResetDeviceForce(0), ACL_SUCCESS);
  EXPECT_EQ(count, 100);

  ASSERT_EQ(aclrtSetDevice(0), ACL_SUCCESS);
  Gate gate;
  stand(create(), gate);
  EXPECT_EQ(aclrtResetDeviceForce(0), ACL_SUCCESS);
  gate.open();
  ASSERT_EQ(aclrtSetDevice(0), ACL_SUCCESS);
  ASSERT_EQ(aclrtSynchronizeDevice(), ACL_SUCCESS);  // Nobody stands in the gate when it goes.
}

}  // namespace
