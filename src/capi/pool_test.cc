// Pools through the C API, in a process without a broker.

#include <array>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "acl/acl.h"
#include "acl/acl_rt_memory_soma.h"
#include "hufu/hufu.h"
#include "runtime/gate.h"
#include "runtime/runtime.h"

namespace {

using hufu::runtime::Gate;
using hufu::runtime::Runtime;

constexpr size_t kMiB = 1U << 20U;
constexpr size_t kCapacity = 128 * kMiB;

std::string recent() {
  const char* text = aclGetRecentErrMsg();
  return text == nullptr ? "" : text;
}

// A C caller can pass any number for an enumerator.
aclrtMemPoolAttr attribute(int number) { return static_cast<aclrtMemPoolAttr>(number); }

class Pools : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    // NOLINTBEGIN(concurrency-mt-unsafe): before any thread.
    ::setenv("HUFU_BROKER", "none", 1);
    ::setenv("HUFU_DEVICES", "2", 1);
    ::setenv("HUFU_DEVICE_CAPACITY", "134217728", 1);
    // NOLINTEND(concurrency-mt-unsafe)
  }
  void SetUp() override {
    recent();
    ASSERT_EQ(aclrtSetDevice(0), ACL_SUCCESS) << recent();
    stream_ = create_stream();
    other_ = create_stream();
  }
  void TearDown() override {
    if (pool_ != nullptr) {
      EXPECT_EQ(aclrtMemPoolDestroy(pool_), ACL_SUCCESS) << recent();
    }
    EXPECT_EQ(aclrtSynchronizeDevice(), ACL_SUCCESS) << recent();
    EXPECT_EQ(free_bytes(), kCapacity);
    EXPECT_EQ(aclrtResetDeviceForce(0), ACL_SUCCESS);
  }

  static aclrtStream create_stream() {
    aclrtStream stream = nullptr;
    EXPECT_EQ(aclrtCreateStream(&stream), ACL_SUCCESS) << recent();
    return stream;
  }
  static aclrtMemPoolProps props(size_t size) {
    aclrtMemPoolProps props{};
    props.location.type = ACL_MEM_LOCATION_TYPE_DEVICE;
    props.maxSize = size;
    return props;
  }
  void create(size_t size) {
    const auto wanted = props(size);
    ASSERT_EQ(aclrtMemPoolCreate(&pool_, &wanted), ACL_SUCCESS) << recent();
  }
  char* allocate(size_t size, aclrtStream stream) const {
    void* pointer = nullptr;
    EXPECT_EQ(aclrtMemPoolMallocAsync(&pointer, size, pool_, stream), ACL_SUCCESS) << recent();
    return static_cast<char*>(pointer);
  }
  uint64_t get(aclrtMemPoolAttr attr) const {
    uint64_t value = 0;
    EXPECT_EQ(aclrtMemPoolGetAttr(pool_, attr, &value), ACL_SUCCESS) << recent();
    return value;
  }
  uint64_t reserved() const { return get(ACL_RT_MEM_POOL_ATTR_RESERVED_MEM_CURRENT); }
  uint64_t used() const { return get(ACL_RT_MEM_POOL_ATTR_USED_MEM_CURRENT); }
  void set(aclrtMemPoolAttr attr, uint64_t value) const {
    EXPECT_EQ(aclrtMemPoolSetAttr(pool_, attr, &value), ACL_SUCCESS) << recent();
  }
  static size_t free_bytes() {
    size_t free = 0;
    size_t total = 0;
    EXPECT_EQ(aclrtGetMemInfo(ACL_HBM_MEM, &free, &total), ACL_SUCCESS) << recent();
    return free;
  }
  static bool is_known(void* pointer) {
    void* base = nullptr;
    const aclError code = aclrtMemGetAddressRange(pointer, &base, nullptr);
    EXPECT_TRUE(code == ACL_SUCCESS || code == ACL_ERROR_MEMORY_ADDRESS_UNREGISTERED) << recent();
    return code == ACL_SUCCESS;
  }
  static void stand(aclrtStream stream, Gate& gate) {
    const auto task = gate.task();
    ASSERT_EQ(hufuLaunchHostTask(stream, task.run, task.argument), ACL_SUCCESS) << recent();
    gate.wait_reached();
  }

  aclrtStream stream_ = nullptr;
  aclrtStream other_ = nullptr;
  aclrtMemPool pool_ = nullptr;
};

TEST_F(Pools, FreeMemoryAboveTheThresholdGoesAtTheNextSynchronise) {  // S17
  create(64 * kMiB);
  std::array<char*, 3> memory{};
  for (char*& one : memory)
    one = allocate(4 * kMiB, stream_);
  EXPECT_EQ(reserved(), 12 * kMiB);
  for (char* one : memory)
    EXPECT_EQ(aclrtMemPoolFreeAsync(one, stream_), ACL_SUCCESS) << recent();
  EXPECT_EQ(used(), 0U);
  EXPECT_EQ(reserved(), 12 * kMiB);
  EXPECT_EQ(aclrtSynchronizeStream(stream_), ACL_SUCCESS);
  EXPECT_EQ(reserved(), 0U);
  EXPECT_EQ(free_bytes(), kCapacity);
  EXPECT_EQ(get(ACL_RT_MEM_POOL_ATTR_USED_MEM_HIGH), 12 * kMiB);
  EXPECT_EQ(get(ACL_RT_MEM_POOL_ATTR_RESERVED_MEM_HIGH), 12 * kMiB);
}

TEST_F(Pools, BelowTheThresholdItStaysAndIsUsedAgain) {  // S17
  create(64 * kMiB);
  set(ACL_RT_MEM_POOL_ATTR_RELEASE_THRESHOLD, 64 * kMiB);
  char* first = allocate(4 * kMiB, stream_);
  char* second = allocate(8 * kMiB, stream_);
  EXPECT_EQ(aclrtMemPoolFreeAsync(first, stream_), ACL_SUCCESS);
  EXPECT_EQ(aclrtMemPoolFreeAsync(second, stream_), ACL_SUCCESS);
  EXPECT_EQ(aclrtSynchronizeStream(stream_), ACL_SUCCESS);
  EXPECT_EQ(reserved(), 12 * kMiB);
  EXPECT_EQ(allocate(4 * kMiB, other_), first);
  EXPECT_EQ(aclrtFree(first), ACL_SUCCESS);
  EXPECT_EQ(aclrtMemPoolTrimTo(pool_, 8 * kMiB), ACL_SUCCESS) << recent();
  EXPECT_EQ(reserved(), 8 * kMiB) << "TrimTo wins over the threshold";
}

TEST_F(Pools, SynchronisingTheDeviceOrEndingTheStreamIsAsGood) {
  create(64 * kMiB);
  set(ACL_RT_MEM_POOL_ATTR_RELEASE_THRESHOLD, 64 * kMiB);
  char* memory = allocate(4 * kMiB, stream_);
  EXPECT_EQ(aclrtMemPoolFreeAsync(memory, stream_), ACL_SUCCESS);
  EXPECT_EQ(aclrtSynchronizeStream(other_), ACL_SUCCESS);
  EXPECT_NE(allocate(4 * kMiB, other_), memory) << "nobody waited for the stream that freed it";
  EXPECT_EQ(aclrtSynchronizeDevice(), ACL_SUCCESS);
  EXPECT_EQ(allocate(4 * kMiB, other_), memory);
  EXPECT_EQ(aclrtMemPoolFreeAsync(memory, stream_), ACL_SUCCESS);
  EXPECT_EQ(aclrtDestroyStream(stream_), ACL_SUCCESS);
  EXPECT_EQ(allocate(4 * kMiB, other_), memory);
}

TEST_F(Pools, TheSameStreamHasItsMemoryAgainWhileItsWorkIsQueued) {  // S18
  create(64 * kMiB);
  char* memory = allocate(kMiB, stream_);
  Gate gate;
  stand(stream_, gate);
  EXPECT_EQ(aclrtMemPoolFreeAsync(memory, stream_), ACL_SUCCESS);
  EXPECT_NE(allocate(kMiB, other_), memory);
  EXPECT_EQ(allocate(kMiB, stream_), memory);
  gate.open();
  EXPECT_EQ(aclrtSynchronizeStream(stream_), ACL_SUCCESS) << "the gate ends here";
}

TEST_F(Pools, AnotherStreamHasItOpportunisticallyOnlyWhenTheWorkIsOver) {  // S18
  create(64 * kMiB);
  set(ACL_RT_MEM_POOL_REUSE_ALLOW_OPPORTUNISTIC, 1);
  char* memory = allocate(kMiB, stream_);
  Gate gate;
  stand(stream_, gate);
  EXPECT_EQ(aclrtMemsetAsync(memory, kMiB, 1, kMiB, stream_), ACL_SUCCESS) << recent();
  EXPECT_EQ(aclrtMemPoolFreeAsync(memory, stream_), ACL_SUCCESS);
  char* meanwhile = allocate(kMiB, other_);
  EXPECT_NE(meanwhile, memory);
  gate.open();
  while (true) {  // Asking is not waiting: the pool does not learn of it.
    aclrtStreamStatus status{};
    ASSERT_EQ(aclrtStreamQuery(stream_, &status), ACL_SUCCESS);
    if (status == ACL_STREAM_STATUS_COMPLETE) break;
    std::this_thread::yield();
  }
  EXPECT_EQ(allocate(kMiB, other_), memory);
}

TEST_F(Pools, AnotherStreamWaitsForItWhereThatIsAllowedAndNothingElseIsLeft) {  // S18
  create(4 * kMiB);
  char* memory = allocate(4 * kMiB, stream_);
  Gate gate;
  stand(stream_, gate);
  EXPECT_EQ(aclrtMemsetAsync(memory, 4 * kMiB, 1, 4 * kMiB, stream_), ACL_SUCCESS);
  EXPECT_EQ(aclrtMemPoolFreeAsync(memory, stream_), ACL_SUCCESS);
  void* none = nullptr;
  EXPECT_EQ(aclrtMemPoolMallocAsync(&none, 4 * kMiB, pool_, other_), ACL_ERROR_RT_INTERNAL_ERROR);
  EXPECT_NE(recent().find("not synchronised"), std::string::npos);
  set(ACL_RT_MEM_POOL_REUSE_ALLOW_INTERNAL_DEPENDENCIES, 1);
  EXPECT_EQ(allocate(4 * kMiB, other_), memory);
  EXPECT_EQ(aclrtMemsetAsync(memory, 4 * kMiB, 2, 4 * kMiB, other_), ACL_SUCCESS);
  aclrtStreamStatus status{};
  EXPECT_EQ(aclrtStreamQuery(other_, &status), ACL_SUCCESS);
  EXPECT_EQ(status, ACL_STREAM_STATUS_NOT_READY);
  gate.open();
  EXPECT_EQ(aclrtSynchronizeStream(other_), ACL_SUCCESS);
  EXPECT_EQ(memory[4 * kMiB - 1], 2) << "in this order";
}

// What aclrtStreamWaitEvent will say is said by hand.
TEST_F(Pools, AStreamThatIsKnownToComeAfterHasTheMemory) {
  create(64 * kMiB);
  set(ACL_RT_MEM_POOL_REUSE_FOLLOW_EVENT_DEPENDENCIES, 1);
  Runtime& runtime = *Runtime::get_if_any();
  const auto context = *runtime.contexts().current();
  const auto& from = **runtime.streams().look_up(stream_, context);
  const auto& to = **runtime.streams().look_up(other_, context);
  char* memory = allocate(kMiB, stream_);
  Gate gate;
  stand(stream_, gate);
  const auto early = runtime.pools().order().moment_of(from);
  EXPECT_EQ(aclrtMemsetAsync(memory, kMiB, 1, kMiB, stream_), ACL_SUCCESS);
  EXPECT_EQ(aclrtMemPoolFreeAsync(memory, stream_), ACL_SUCCESS);
  runtime.pools().order().follow(to, early);
  EXPECT_NE(allocate(kMiB, other_), memory) << "the event was recorded before the free";
  runtime.pools().order().follow(to, runtime.pools().order().moment_of(from));
  EXPECT_EQ(allocate(kMiB, other_), memory);
  gate.open();
  EXPECT_EQ(aclrtSynchronizeStream(stream_), ACL_SUCCESS) << "the gate ends here";
}

TEST_F(Pools, WhatIsFreedWithoutAStreamComesBackWhenWorkUnderWayIsOver) {
  create(64 * kMiB);
  char* memory = allocate(kMiB, stream_);
  EXPECT_EQ(aclrtFree(memory), ACL_SUCCESS);
  EXPECT_EQ(allocate(kMiB, other_), memory) << "nothing was under way";
  Gate gate;
  stand(other_, gate);
  EXPECT_EQ(aclrtMemsetAsync(memory, kMiB, 1, kMiB, other_), ACL_SUCCESS);
  EXPECT_EQ(aclrtFree(memory), ACL_SUCCESS);
  EXPECT_EQ(used(), 0U);
  EXPECT_NE(allocate(kMiB, stream_), memory);
  EXPECT_FALSE(is_known(memory));
  gate.open();
  // Of the device, which also waits until what waited for the work has ended.
  EXPECT_EQ(aclrtSynchronizeDevice(), ACL_SUCCESS);
  EXPECT_EQ(allocate(kMiB, stream_), memory);
}

TEST_F(Pools, CopiesStayInsideTheAllocation) {
  create(64 * kMiB);
  char* memory = allocate(1000, stream_);
  char* behind = allocate(1000, stream_);
  std::vector<char> host(2000, 'x');
  EXPECT_EQ(aclrtMemcpy(memory, 2000, host.data(), 1024, ACL_MEMCPY_HOST_TO_DEVICE), ACL_SUCCESS);
  EXPECT_EQ(aclrtMemcpy(memory, 2000, host.data(), 1025, ACL_MEMCPY_HOST_TO_DEVICE),
            ACL_ERROR_RT_PARAM_INVALID);
  EXPECT_NE(recent().find("at most 1024"), std::string::npos);
  EXPECT_EQ(aclrtMemcpyAsync(behind, 1024, memory + 24, 1000, ACL_MEMCPY_DEVICE_TO_DEVICE, stream_),
            ACL_SUCCESS)
      << recent();
  void* base = nullptr;
  size_t size = 0;
  EXPECT_EQ(aclrtMemGetAddressRange(memory + 999, &base, &size), ACL_SUCCESS);
  EXPECT_EQ(base, memory);
  EXPECT_EQ(size, 1024U);
  aclrtPtrAttributes attributes{};
  EXPECT_EQ(aclrtPointerGetAttributes(memory + 5, &attributes), ACL_SUCCESS);
  EXPECT_EQ(attributes.location.type, ACL_MEM_LOCATION_TYPE_DEVICE);
  std::array<char, 65> key{};
  EXPECT_EQ(aclrtIpcMemGetExportKey(memory, 1024, key.data(), key.size(), 0),
            ACL_ERROR_RT_DRV_INTERNAL_ERROR);
}

TEST_F(Pools, EndImmediatelyWithWhatIsInThem) {
  create(64 * kMiB);
  char* memory = allocate(4 * kMiB, stream_);
  Gate gate;
  stand(stream_, gate);
  EXPECT_EQ(aclrtMemsetAsync(memory, 4 * kMiB, 1, 4 * kMiB, stream_), ACL_SUCCESS);
  const aclrtMemPool pool = std::exchange(pool_, nullptr);
  EXPECT_EQ(aclrtMemPoolDestroy(pool), ACL_SUCCESS) << recent();
  EXPECT_FALSE(is_known(memory));
  EXPECT_EQ(aclrtFree(memory), ACL_ERROR_RT_PARAM_INVALID);
  EXPECT_EQ(aclrtMemPoolFreeAsync(memory, stream_), ACL_ERROR_RT_PARAM_INVALID);
  EXPECT_EQ(free_bytes(), kCapacity - 4 * kMiB) << "queued work may use it";
  gate.open();
  EXPECT_EQ(aclrtSynchronizeDevice(), ACL_SUCCESS);
  EXPECT_EQ(free_bytes(), kCapacity);

  void* none = nullptr;
  uint64_t value = 0;
  EXPECT_EQ(aclrtMemPoolDestroy(pool), ACL_ERROR_RT_INTERNAL_ERROR);
  EXPECT_EQ(aclrtMemPoolMallocAsync(&none, 1, pool, stream_), ACL_ERROR_RT_INTERNAL_ERROR);
  EXPECT_EQ(aclrtMemPoolTrimTo(pool, 0), ACL_ERROR_RT_INTERNAL_ERROR);
  EXPECT_EQ(aclrtMemPoolGetAttr(pool, ACL_RT_MEM_POOL_ATTR_USED_MEM_HIGH, &value),
            ACL_ERROR_RT_PARAM_INVALID);
  EXPECT_EQ(aclrtMemPoolSetAttr(pool, ACL_RT_MEM_POOL_ATTR_RELEASE_THRESHOLD, &value),
            ACL_ERROR_RT_PARAM_INVALID);
  EXPECT_EQ(none, nullptr);
}

TEST_F(Pools, GiveWayToAnAllocationThatLacksTheirIdleMemory) {
  create(kCapacity);
  set(ACL_RT_MEM_POOL_ATTR_RELEASE_THRESHOLD, kCapacity);
  char* memory = allocate(100 * kMiB, stream_);
  EXPECT_EQ(aclrtFree(memory), ACL_SUCCESS);
  EXPECT_EQ(reserved(), 100 * kMiB);
  void* block = nullptr;
  ASSERT_EQ(aclrtMalloc(&block, 64 * kMiB, ACL_MEM_MALLOC_NORMAL_ONLY), ACL_SUCCESS) << recent();
  EXPECT_EQ(reserved(), 0U);
  EXPECT_EQ(aclrtFree(block), ACL_SUCCESS);
  block = nullptr;
  ASSERT_EQ(aclrtMalloc(&block, 64 * kMiB, ACL_MEM_MALLOC_NORMAL_ONLY), ACL_SUCCESS);
  void* none = nullptr;
  EXPECT_EQ(aclrtMemPoolMallocAsync(&none, 100 * kMiB, pool_, stream_),
            ACL_ERROR_RT_INTERNAL_ERROR);
  EXPECT_EQ(none, nullptr);
  EXPECT_EQ(aclrtFree(block), ACL_SUCCESS);  // Kept warm, which is what the pool then lacks.
  allocate(100 * kMiB, stream_);
}

TEST_F(Pools, RefuseWhatTheContractRefuses) {
  aclrtMemPool pool = nullptr;
  auto wrong = props(kMiB);
  EXPECT_EQ(aclrtMemPoolCreate(nullptr, &wrong), ACL_ERROR_INVALID_PARAM);
  EXPECT_EQ(aclrtMemPoolCreate(&pool, nullptr), ACL_ERROR_INVALID_PARAM);
  wrong.reserved[31] = 1;
  EXPECT_EQ(aclrtMemPoolCreate(&pool, &wrong), ACL_ERROR_INVALID_PARAM);
  wrong = props(kMiB);
  wrong.location.type = ACL_MEM_LOCATION_TYPE_HOST;
  EXPECT_EQ(aclrtMemPoolCreate(&pool, &wrong), ACL_ERROR_INVALID_PARAM);
  wrong = props(kMiB);
  wrong.allocType = static_cast<aclrtMemAllocationType>(1);
  EXPECT_EQ(aclrtMemPoolCreate(&pool, &wrong), ACL_ERROR_INVALID_PARAM);
  wrong = props(kMiB);
  wrong.location.id = 2;
  EXPECT_EQ(aclrtMemPoolCreate(&pool, &wrong), ACL_ERROR_RT_INVALID_DEVICEID);
  wrong = props(kCapacity + 1);
  EXPECT_EQ(aclrtMemPoolCreate(&pool, &wrong), ACL_ERROR_RT_PARAM_INVALID);
  EXPECT_EQ(pool, nullptr);

  create(3 * kMiB);
  const auto set_code = [&](aclrtMemPoolAttr attr, uint64_t value) {
    return aclrtMemPoolSetAttr(pool_, attr, &value);
  };
  uint64_t value = 0;
  EXPECT_EQ(aclrtMemPoolSetAttr(nullptr, ACL_RT_MEM_POOL_ATTR_RELEASE_THRESHOLD, &value),
            ACL_ERROR_INVALID_PARAM);
  EXPECT_EQ(aclrtMemPoolGetAttr(pool_, ACL_RT_MEM_POOL_ATTR_RELEASE_THRESHOLD, nullptr),
            ACL_ERROR_RT_PARAM_INVALID);
  EXPECT_EQ(set_code(ACL_RT_MEM_POOL_ATTR_RESERVED_MEM_CURRENT, 0), ACL_ERROR_RT_PARAM_INVALID);
  EXPECT_EQ(set_code(ACL_RT_MEM_POOL_ATTR_USED_MEM_CURRENT, 0), ACL_ERROR_RT_PARAM_INVALID);
  EXPECT_EQ(set_code(ACL_RT_MEM_POOL_ATTR_USED_MEM_HIGH, 1), ACL_ERROR_RT_INTERNAL_ERROR);
  EXPECT_EQ(set_code(ACL_RT_MEM_POOL_ATTR_RESERVED_MEM_HIGH, 1), ACL_ERROR_RT_INTERNAL_ERROR);
  EXPECT_EQ(set_code(ACL_RT_MEM_POOL_ATTR_RELEASE_THRESHOLD, 4 * kMiB), ACL_SUCCESS) << "rounded";
  EXPECT_EQ(set_code(ACL_RT_MEM_POOL_ATTR_RELEASE_THRESHOLD, 4 * kMiB + 1),
            ACL_ERROR_RT_INTERNAL_ERROR);
  EXPECT_EQ(set_code(attribute(9), 0), ACL_ERROR_RT_INTERNAL_ERROR);
  EXPECT_EQ(aclrtMemPoolGetAttr(pool_, attribute(0), &value), ACL_ERROR_RT_INTERNAL_ERROR);

  void* pointer = nullptr;
  EXPECT_EQ(aclrtMemPoolMallocAsync(nullptr, 1, pool_, stream_), ACL_ERROR_INVALID_PARAM);
  EXPECT_EQ(aclrtMemPoolMallocAsync(&pointer, 1, nullptr, stream_), ACL_ERROR_INVALID_PARAM);
  EXPECT_EQ(aclrtMemPoolMallocAsync(&pointer, 0, pool_, stream_), ACL_SUCCESS);
  EXPECT_EQ(aclrtMemPoolMallocAsync(&pointer, SIZE_MAX, pool_, stream_),
            ACL_ERROR_RT_INTERNAL_ERROR);
  EXPECT_EQ(aclrtMemPoolMallocAsync(&pointer, 1, pool_, pool_), ACL_ERROR_RT_INVALID_HANDLE);
  EXPECT_EQ(aclrtMemPoolMallocAsync(&pointer, 1, stream_, stream_), ACL_ERROR_RT_INTERNAL_ERROR);
  EXPECT_EQ(pointer, nullptr);

  char* memory = allocate(1000, nullptr);
  EXPECT_EQ(aclrtMemPoolFreeAsync(nullptr, stream_), ACL_ERROR_INVALID_PARAM);
  EXPECT_EQ(aclrtMemPoolFreeAsync(memory, nullptr), ACL_ERROR_RT_INTERNAL_ERROR);
  EXPECT_EQ(aclrtMemPoolFreeAsync(memory + 64, stream_), ACL_ERROR_RT_PARAM_INVALID);
  EXPECT_EQ(aclrtFree(memory + 64), ACL_ERROR_RT_PARAM_INVALID);
  EXPECT_EQ(aclrtMemPoolTrimTo(pool_, 0), ACL_ERROR_RT_INTERNAL_ERROR) << "1024 bytes are in use";
  EXPECT_EQ(aclrtMemPoolTrimTo(pool_, 4 * kMiB + 1), ACL_ERROR_RT_INTERNAL_ERROR);
  EXPECT_EQ(aclrtMemPoolTrimTo(pool_, 2 * kMiB), ACL_SUCCESS);
  EXPECT_EQ(aclrtMemPoolFreeAsync(memory, stream_), ACL_SUCCESS);
  EXPECT_EQ(aclrtMemPoolFreeAsync(memory, stream_), ACL_ERROR_RT_PARAM_INVALID);
  EXPECT_EQ(aclrtFree(memory), ACL_ERROR_RT_PARAM_INVALID);

  void* block = nullptr;
  ASSERT_EQ(aclrtMalloc(&block, kMiB, ACL_MEM_MALLOC_NORMAL_ONLY), ACL_SUCCESS);
  EXPECT_EQ(aclrtMemPoolFreeAsync(block, stream_), ACL_SUCCESS) << "frees what is no pool's, too";
  EXPECT_EQ(aclrtFree(block), ACL_ERROR_RT_PARAM_INVALID);
}

TEST_F(Pools, RulesAreZeroOrOneAndMarksCanBeReset) {
  create(64 * kMiB);
  uint32_t rule = 7;
  EXPECT_EQ(aclrtMemPoolGetAttr(pool_, ACL_RT_MEM_POOL_REUSE_ALLOW_OPPORTUNISTIC, &rule),
            ACL_SUCCESS);
  EXPECT_EQ(rule, 0U);
  rule = 7;
  EXPECT_EQ(aclrtMemPoolSetAttr(pool_, ACL_RT_MEM_POOL_REUSE_ALLOW_OPPORTUNISTIC, &rule),
            ACL_SUCCESS);
  EXPECT_EQ(aclrtMemPoolGetAttr(pool_, ACL_RT_MEM_POOL_REUSE_ALLOW_OPPORTUNISTIC, &rule),
            ACL_SUCCESS);
  EXPECT_EQ(rule, 1U);
  allocate(100, stream_);
  set(ACL_RT_MEM_POOL_ATTR_USED_MEM_HIGH, 0);
  set(ACL_RT_MEM_POOL_ATTR_RESERVED_MEM_HIGH, 0);
  EXPECT_EQ(get(ACL_RT_MEM_POOL_ATTR_USED_MEM_HIGH), 0U);
  allocate(100, stream_);
  EXPECT_EQ(get(ACL_RT_MEM_POOL_ATTR_USED_MEM_HIGH), 256U);
  EXPECT_EQ(get(ACL_RT_MEM_POOL_ATTR_RESERVED_MEM_HIGH), 2 * kMiB);
}

TEST_F(Pools, MayBeUsedByManyThreadsAtOnce) {
  create(32 * kMiB);
  set(ACL_RT_MEM_POOL_REUSE_ALLOW_OPPORTUNISTIC, 1);
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int number = 0; number < 4; ++number) {
    threads.emplace_back([&, number] {
      if (aclrtSetDevice(0) != ACL_SUCCESS) ++wrong;
      aclrtStream stream = nullptr;
      if (aclrtCreateStream(&stream) != ACL_SUCCESS) ++wrong;
      for (int round = 0; round < 400; ++round) {
        void* pointer = nullptr;
        const size_t size = 64 + static_cast<size_t>(round) * 37 % 5000;
        if (aclrtMemPoolMallocAsync(&pointer, size, pool_, stream) != ACL_SUCCESS ||
            aclrtMemsetAsync(pointer, size, number + 1, size, stream) != ACL_SUCCESS) {
          ++wrong;
          break;
        }
        std::vector<char> read(size);
        if (aclrtMemcpy(read.data(), size, pointer, size, ACL_MEMCPY_DEVICE_TO_HOST) !=
                ACL_SUCCESS ||
            read != std::vector<char>(size, static_cast<char>(number + 1))) {
          ++wrong;
        }
        const bool plain = round % 3 == 0;
        if ((plain ? aclrtFree(pointer) : aclrtMemPoolFreeAsync(pointer, stream)) != ACL_SUCCESS) {
          ++wrong;
        }
        if (round % 50 == 0 && aclrtSynchronizeStream(stream) != ACL_SUCCESS) ++wrong;
      }
      if (aclrtDestroyStream(stream) != ACL_SUCCESS) ++wrong;
    });
  }
  for (std::thread& thread : threads)
    thread.join();
  EXPECT_EQ(wrong, 0) << recent();
  EXPECT_EQ(used(), 0U);
}

}  // namespace
