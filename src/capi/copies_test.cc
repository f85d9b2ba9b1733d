// Copies and sets beyond the plain ones, through the C API, in a process without a broker: what
// they do to memory, and the code of each refusal.

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <random>
#include <string>
#include <thread>
#include <vector>

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

// A C caller can pass any number for an enumerator.
template <class Enum>
Enum from_c(int number) {
  return static_cast<Enum>(number);
}

constexpr size_t kBlock = 1U << 20U;
constexpr size_t kUntouched = 77;

class Copies : public testing::Test {
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
    ASSERT_EQ(aclrtCreateStream(&stream_), ACL_SUCCESS) << recent();
    device_ = allocate();
    other_ = allocate();
    void* pinned = nullptr;
    ASSERT_EQ(aclrtMallocHost(&pinned, kBlock), ACL_SUCCESS) << recent();
    pinned_ = static_cast<uint8_t*>(pinned);
    std::memset(pinned_, 0, kBlock);
  }
  void TearDown() override {
    EXPECT_EQ(aclrtSynchronizeDevice(), ACL_SUCCESS) << recent();
    EXPECT_EQ(aclrtFree(device_), ACL_SUCCESS);
    EXPECT_EQ(aclrtFree(other_), ACL_SUCCESS);
    EXPECT_EQ(aclrtFreeHost(pinned_), ACL_SUCCESS);
    EXPECT_EQ(Runtime::get_if_any()->deferred().pending(), 0U);
    EXPECT_EQ(aclrtResetDeviceForce(0), ACL_SUCCESS);
  }

  static uint8_t* allocate(size_t size = kBlock) {
    void* pointer = nullptr;
    EXPECT_EQ(aclrtMalloc(&pointer, size, ACL_MEM_MALLOC_NORMAL_ONLY), ACL_SUCCESS) << recent();
    std::memset(pointer, 0, size);  // It may have been another test's.
    return static_cast<uint8_t*>(pointer);
  }
  void stand(Gate& gate) {
    const auto task = gate.task();
    ASSERT_EQ(hufuLaunchHostTask(stream_, task.run, task.argument), ACL_SUCCESS) << recent();
    gate.wait_reached();
  }
  void synchronize() { ASSERT_EQ(aclrtSynchronizeStream(stream_), ACL_SUCCESS) << recent(); }

  aclrtStream stream_ = nullptr;
  uint8_t* device_ = nullptr;
  uint8_t* other_ = nullptr;
  uint8_t* pinned_ = nullptr;
};

// --- Rows ----------------------------------------------------------------------------------------

using Rows = Copies;

TEST_F(Rows, AreCopiedAsByALoopAndNothingBetweenThemIsTouched) {
  std::mt19937 random(20260101);
  const auto up_to = [&](size_t most) {
    return std::uniform_int_distribution<size_t>(0, most)(random);
  };
  constexpr size_t kArea = size_t{160} * 1024;  // More than the largest rectangle.
  std::vector<uint8_t> host(kArea);
  std::independent_bits_engine<std::mt19937, 8, unsigned> bytes(1);
  std::generate(host.begin(), host.end(), [&] { return static_cast<uint8_t>(bytes()); });
  std::memcpy(pinned_, host.data(), kArea);
  int whole = 0;
  for (int round = 0; round < 200; ++round) {
    const size_t width = 1 + up_to(600);
    const size_t dpitch = width + (round % 5 == 0 ? 0 : up_to(100));
    const size_t spitch = width + (round % 5 == 0 ? 0 : up_to(100));
    const size_t height = 1 + up_to(200);
    const size_t at = up_to(300);
    if (dpitch == width && spitch == width) ++whole;
    std::memset(device_, 0xee, kArea);
    std::vector<uint8_t> expected(device_, device_ + kArea);
    for (size_t row = 0; row < height; ++row)
      std::memcpy(&expected[at + row * dpitch], &host[row * spitch], width);
    const bool queued = round % 2 == 0;
    if (queued) {
      ASSERT_EQ(aclrtMemcpy2dAsync(device_ + at, dpitch, pinned_, spitch, width, height,
                                   ACL_MEMCPY_HOST_TO_DEVICE, stream_),
                ACL_SUCCESS)
          << recent();
      synchronize();
    } else {
      ASSERT_EQ(aclrtMemcpy2d(device_ + at, dpitch, host.data(), spitch, width, height,
                              ACL_MEMCPY_DEFAULT),
                ACL_SUCCESS)
          << recent();
    }
    ASSERT_EQ(std::memcmp(device_, expected.data(), kArea), 0)
        << "width " << width << " height " << height << " pitches " << dpitch << ", " << spitch;
  }
  EXPECT_GT(whole, 0);
}

TEST_F(Rows, MayEndWhereTheMemoryEndsAndNoByteLater) {
  constexpr size_t kPitch = 4096;
  constexpr size_t kRows = kBlock / kPitch;
  std::vector<uint8_t> host(kBlock, 5);
  const auto copy = [&](size_t offset, size_t width) {
    return aclrtMemcpy2d(device_ + offset, kPitch, host.data(), kPitch, width, kRows,
                         ACL_MEMCPY_HOST_TO_DEVICE);
  };
  // The last row needs no whole pitch.
  EXPECT_EQ(copy(4000, 96), ACL_SUCCESS) << recent();
  EXPECT_EQ(device_[kBlock - 1], 5);
  EXPECT_EQ(copy(4000, 96 + 33), ACL_ERROR_RT_PARAM_INVALID);
  EXPECT_EQ(
      aclrtMemcpy2d(device_, ~size_t{0} / 2, host.data(), kPitch, 1, 4, ACL_MEMCPY_HOST_TO_DEVICE),
      ACL_ERROR_RT_PARAM_INVALID);
  EXPECT_NE(recent().find("dpitch"), std::string::npos);
}

TEST_F(Rows, RefusalsHaveTheContractsCodes) {
  std::array<uint8_t, 256> host{};
  const auto now = [&](void* to, size_t dpitch, const void* from, size_t spitch, size_t width,
                       int kind) {
    return aclrtMemcpy2d(to, dpitch, from, spitch, width, 2, from_c<aclrtMemcpyKind>(kind));
  };
  const auto later = [&](void* to, const void* from, int kind) {
    return aclrtMemcpy2dAsync(to, 64, from, 64, 32, 2, from_c<aclrtMemcpyKind>(kind), stream_);
  };
  EXPECT_EQ(aclrtMemcpy2d(nullptr, 0, nullptr, 0, 0, 9, from_c<aclrtMemcpyKind>(99)), ACL_SUCCESS);
  EXPECT_EQ(aclrtMemcpy2dAsync(nullptr, 0, nullptr, 0, 9, 0, ACL_MEMCPY_DEFAULT, host.data()),
            ACL_SUCCESS);
  EXPECT_EQ(now(nullptr, 64, device_, 64, 32, 4), ACL_ERROR_INVALID_PARAM);
  EXPECT_EQ(now(device_, 64, nullptr, 64, 32, 4), ACL_ERROR_INVALID_PARAM);
  EXPECT_EQ(now(device_, 31, host.data(), 64, 32, 1), ACL_ERROR_INVALID_PARAM);
  EXPECT_EQ(now(device_, 64, host.data(), 31, 32, 1), ACL_ERROR_INVALID_PARAM);
  for (const int kind : {-1, 0, 5, 6, 7, 8})
    EXPECT_EQ(now(device_, 64, host.data(), 64, 32, kind), ACL_ERROR_INVALID_PARAM) << kind;
  EXPECT_EQ(now(device_, 64, other_, 64, 32, ACL_MEMCPY_DEVICE_TO_DEVICE),
            ACL_ERROR_RT_PARAM_INVALID);
  EXPECT_EQ(now(device_, 64, other_, 64, 32, ACL_MEMCPY_DEFAULT), ACL_ERROR_RT_PARAM_INVALID);
  EXPECT_EQ(now(host.data(), 64, pinned_, 64, 32, ACL_MEMCPY_DEFAULT), ACL_ERROR_RT_PARAM_INVALID);
  EXPECT_EQ(now(host.data(), 64, device_, 64, 32, ACL_MEMCPY_HOST_TO_DEVICE),
            ACL_ERROR_MEMORY_ADDRESS_UNREGISTERED);
  EXPECT_EQ(later(host.data(), pinned_, ACL_MEMCPY_DEFAULT), ACL_ERROR_RT_PARAM_INVALID);
  EXPECT_EQ(later(device_, other_, ACL_MEMCPY_DEVICE_TO_DEVICE), ACL_SUCCESS) << recent();
  EXPECT_EQ(
      aclrtMemcpy2dAsync(device_, 64, other_, 64, 32, 2, ACL_MEMCPY_DEVICE_TO_DEVICE, host.data()),
      ACL_ERROR_RT_INVALID_HANDLE);
  std::thread([&] {
    EXPECT_EQ(now(device_, 64, host.data(), 64, 32, 1), ACL_ERROR_RT_CONTEXT_NULL);
  }).join();
}

TEST_F(Rows, OfPageableMemoryAreCopiedBeforeTheCallReturnsAndAfterTheStreamsWork) {
  std::vector<uint8_t> host(4096, 3);
  Gate gate;
  stand(gate);
  ASSERT_EQ(aclrtMemsetAsync(device_, kBlock, 9, kBlock, stream_), ACL_SUCCESS);
  std::thread opener([&] { gate.open(); });
  ASSERT_EQ(
      aclrtMemcpy2dAsync(device_, 64, host.data(), 64, 32, 64, ACL_MEMCPY_HOST_TO_DEVICE, stream_),
      ACL_SUCCESS)
      << recent();
  EXPECT_EQ(device_[0], 3);
  EXPECT_EQ(device_[32], 9);
  opener.join();
}

// --- Batches -------------------------------------------------------------------------------------

// The columns of a call, and what goes wrong with each of them.
struct Columns {
  std::vector<void*> to;
  std::vector<size_t> room;
  std::vector<void*> from;
  std::vector<size_t> sizes;
  std::vector<aclrtMemcpyBatchAttr> attributes;
  std::vector<size_t> firsts;
  size_t fail = kUntouched;

  void add(void* target, void* source, size_t size) {
    to.push_back(target);
    room.push_back(size);
    from.push_back(source);
    sizes.push_back(size);
  }
  aclrtMemcpyBatchAttr& begin_run(aclrtMemLocationType target, aclrtMemLocationType source) {
    firsts.push_back(to.size());
    return attributes.emplace_back(aclrtMemcpyBatchAttr{
        .dstLoc = {.id = 0, .type = target}, .srcLoc = {.id = 0, .type = source}, .rsv = {}});
  }
  aclError now() {
    return aclrtMemcpyBatch(to.data(), room.data(), from.data(), sizes.data(), to.size(),
                            attributes.data(), firsts.data(), firsts.size(), &fail);
  }
  aclError later(aclrtStream stream) {
    return aclrtMemcpyBatchAsync(to.data(), room.data(), from.data(), sizes.data(), to.size(),
                                 attributes.data(), firsts.data(), firsts.size(), &fail, stream);
  }
};

constexpr auto kHost = ACL_MEM_LOCATION_TYPE_HOST;
constexpr auto kDevice = ACL_MEM_LOCATION_TYPE_DEVICE;

using Batches = Copies;

TEST_F(Batches, CopyEachPieceInBothDirections) {
  std::vector<uint8_t> up(4096);
  std::vector<uint8_t> down(4096);
  for (size_t i = 0; i < up.size(); ++i)
    up[i] = static_cast<uint8_t>(i * 7);
  Columns batch;
  batch.begin_run(kDevice, kHost);
  for (size_t i = 0; i < 64; ++i)
    batch.add(device_ + i * 128, &up[i * 64], 64);
  batch.add(nullptr, nullptr, 0);
  batch.begin_run(kHost, kDevice);
  for (size_t i = 0; i < 64; ++i)
    batch.add(&down[i * 64], device_ + (63 - i) * 128, 64);
  ASSERT_EQ(batch.now(), ACL_SUCCESS) << recent();
  EXPECT_EQ(batch.fail, SIZE_MAX);
  for (size_t i = 0; i < 64; ++i)
    EXPECT_EQ(std::memcmp(&down[i * 64], &up[(63 - i) * 64], 64), 0) << i;
  EXPECT_EQ(device_[64], 0);
}

TEST_F(Batches, OfFourThousandPiecesIsOneTask) {
  Gate gate;
  stand(gate);
  Columns batch;
  batch.begin_run(kDevice, kHost);
  for (size_t i = 0; i < 4096; ++i)
    batch.add(device_ + i * 64, pinned_ + i * 64, 64);
  std::memset(pinned_, 6, kBlock);
  const auto issued = [] { return Runtime::get_if_any()->streams().under_way(0).at(0).ticket; };
  const auto before = issued();
  ASSERT_EQ(batch.later(stream_), ACL_SUCCESS) << recent();
  EXPECT_EQ(issued(), before + 1);
  EXPECT_EQ(device_[0], 0);
  gate.open();
  synchronize();
  EXPECT_EQ(device_[4096 * 64 - 1], 6);
}

TEST_F(Batches, WithAPieceThatIsWrongCopyNothingAndNameIt) {
  std::vector<uint8_t> host(4096, 4);
  Columns batch;
  batch.begin_run(kDevice, kHost);
  batch.add(device_, host.data(), 64);
  batch.add(device_ + kBlock - 32, host.data(), 128);
  EXPECT_EQ(batch.now(), ACL_ERROR_RT_PARAM_INVALID);
  EXPECT_EQ(batch.fail, 1U);
  EXPECT_NE(recent().find("copy 1 of 2"), std::string::npos);
  EXPECT_EQ(device_[0], 0);
  EXPECT_EQ(batch.later(stream_), ACL_ERROR_RT_PARAM_INVALID);
  EXPECT_EQ(batch.fail, 1U);
  synchronize();
  EXPECT_EQ(device_[0], 0);
}

TEST_F(Batches, RefusalsHaveTheContractsCodes) {
  std::vector<uint8_t> host(4096, 4);
  const auto good = [&] {
    Columns batch;
    batch.begin_run(kDevice, kHost);
    batch.add(device_, host.data(), 64);
    batch.add(device_ + 64, host.data(), 64);
    return batch;
  };
  const auto expect = [&](aclError code, size_t fail, auto&& spoil) {
    for (const bool queued : {false, true}) {
      Columns batch = good();
      spoil(batch);
      EXPECT_EQ(queued ? batch.later(stream_) : batch.now(), code) << recent();
      EXPECT_EQ(batch.fail, fail);
    }
  };
  expect(ACL_SUCCESS, SIZE_MAX, [](Columns&) {});
  expect(ACL_ERROR_INVALID_PARAM, 1, [](Columns& c) { c.room[1] = 63; });
  expect(ACL_ERROR_INVALID_PARAM, 0, [](Columns& c) { c.to[0] = nullptr; });
  expect(ACL_ERROR_INVALID_PARAM, 1, [](Columns& c) { c.from[1] = nullptr; });
  expect(ACL_ERROR_INVALID_PARAM, SIZE_MAX, [](Columns& c) { c.attributes[0].rsv[15] = 1; });
  expect(ACL_ERROR_INVALID_PARAM, SIZE_MAX, [](Columns& c) { c = Columns(); });
  expect(ACL_ERROR_RT_PARAM_INVALID, SIZE_MAX, [](Columns& c) { c.firsts[0] = 1; });
  expect(ACL_ERROR_RT_PARAM_INVALID, SIZE_MAX, [](Columns& c) {
    c.begin_run(kDevice, kHost);  // Begins behind the last piece.
  });
  expect(ACL_ERROR_RT_PARAM_INVALID, SIZE_MAX, [](Columns& c) {
    c.begin_run(kDevice, kHost);
    c.firsts[1] = 0;
  });
  expect(ACL_ERROR_RT_PARAM_INVALID, SIZE_MAX, [](Columns& c) {
    for (size_t i = 0; i < 2; ++i)
      c.begin_run(kDevice, kHost);
  });
  expect(ACL_ERROR_RT_INVALID_DEVICEID, SIZE_MAX,
         [](Columns& c) { c.attributes[0].dstLoc.id = 2; });
  expect(ACL_ERROR_RT_PARAM_INVALID, 0, [](Columns& c) { c.attributes[0].dstLoc.id = 1; });
  expect(ACL_ERROR_RT_PARAM_INVALID, 0, [](Columns& c) { c.attributes[0].dstLoc.type = kHost; });
  expect(ACL_ERROR_RT_PARAM_INVALID, SIZE_MAX,
         [](Columns& c) { c.attributes[0].srcLoc.type = from_c<aclrtMemLocationType>(9); });
  expect(ACL_ERROR_MEMORY_ADDRESS_UNREGISTERED, 1, [&](Columns& c) { c.to[1] = &host[64]; });
  expect(ACL_ERROR_RT_FEATURE_NOT_SUPPORT, 0, [&](Columns& c) {
    c.to[0] = &host[64];
    c.attributes[0].dstLoc.type = kHost;
  });
  expect(ACL_SUCCESS, SIZE_MAX, [](Columns& c) {
    std::fill(c.sizes.begin(), c.sizes.end(), 0);
    c.to[0] = nullptr;
  });
}

TEST_F(Batches, EveryColumnIsNeeded) {
  std::array<uint8_t, 64> host{};
  Columns batch;
  batch.begin_run(kDevice, kHost);
  batch.add(device_, host.data(), 64);
  for (int missing = 0; missing < 7; ++missing) {
    const auto unless = [&](int which, auto* pointer) {
      return which == missing ? nullptr : pointer;
    };
    batch.fail = kUntouched;
    const auto call = [&](auto&& function, auto... rest) {
      return function(unless(0, batch.to.data()), unless(1, batch.room.data()),
                      unless(2, batch.from.data()), unless(3, batch.sizes.data()), 1,
                      unless(4, batch.attributes.data()), unless(5, batch.firsts.data()), 1,
                      rest...);
    };
    EXPECT_EQ(call(aclrtMemcpyBatch, unless(6, &batch.fail)), ACL_ERROR_INVALID_PARAM) << missing;
    EXPECT_EQ(call(aclrtMemcpyBatchAsync, unless(6, &batch.fail), stream_), ACL_ERROR_INVALID_PARAM)
        << missing;
    const aclError without = missing == 6 ? ACL_SUCCESS : ACL_ERROR_INVALID_PARAM;
    EXPECT_EQ(call(aclrtMemcpyBatchV2), without) << missing;
    EXPECT_EQ(call(aclrtMemcpyBatchAsyncV2, stream_), without) << missing;
  }
}

TEST_F(Batches, OnlyOfOneCallAreLimited) {
  Columns batch;
  batch.begin_run(kDevice, kHost);
  for (size_t i = 0; i < 4097; ++i)
    batch.add(device_ + i, pinned_ + i, 1);
  EXPECT_EQ(batch.now(), ACL_ERROR_RT_PARAM_INVALID);
  EXPECT_EQ(batch.fail, SIZE_MAX);
  EXPECT_EQ(batch.later(stream_), ACL_SUCCESS) << recent();
}

TEST_F(Batches, InsideDeviceMemoryAndAcrossDevicesAreCopied) {
  uint8_t* there = nullptr;
  std::thread([&] {
    ASSERT_EQ(aclrtSetDevice(1), ACL_SUCCESS);
    there = allocate();
  }).join();
  std::memset(there, 8, kBlock);
  Gate gate;
  stand(gate);
  Columns batch;
  batch.begin_run(kDevice, kDevice).srcLoc.id = 1;
  batch.add(device_, there, 64);
  ASSERT_EQ(batch.later(stream_), ACL_SUCCESS) << recent();
  // The stream reaches across now, so that memory waits for it.
  ASSERT_EQ(aclrtFree(there), ACL_SUCCESS);
  EXPECT_EQ(Runtime::get_if_any()->deferred().pending(), 1U);
  gate.open();
  synchronize();
  EXPECT_EQ(device_[63], 8);
  EXPECT_EQ(aclrtResetDeviceForce(1), ACL_SUCCESS);
}

// --- Words ---------------------------------------------------------------------------------------

using Words = Copies;

TEST_F(Words, AreSetAndNothingBeside) {
  ASSERT_EQ(aclrtMemsetD32(device_ + 4, 40, 0xdeadbeef, 9), ACL_SUCCESS) << recent();
  std::array<uint32_t, 12> words{};
  std::memcpy(words.data(), device_, sizeof words);
  for (size_t i = 0; i < words.size(); ++i)
    EXPECT_EQ(words[i], i >= 1 && i < 10 ? 0xdeadbeef : 0) << i;
  Gate gate;
  stand(gate);
  ASSERT_EQ(aclrtMemsetD32Async(pinned_, kBlock, 0x01020304, kBlock / 4, stream_), ACL_SUCCESS);
  EXPECT_EQ(pinned_[0], 0);
  gate.open();
  synchronize();
  EXPECT_EQ(pinned_[kBlock - 4], 4);
  EXPECT_EQ(pinned_[kBlock - 1], 1);
}

TEST_F(Words, RefusalsHaveTheContractsCodes) {
  std::array<uint32_t, 16> own{};
  const auto expect = [&](void* pointer, size_t size, size_t count, aclError code) {
    EXPECT_EQ(aclrtMemsetD32(pointer, size, 1, count), code) << recent();
    EXPECT_EQ(aclrtMemsetD32Async(pointer, size, 1, count, stream_), code) << recent();
  };
  expect(nullptr, 0, 0, ACL_SUCCESS);
  expect(nullptr, 4, 1, ACL_ERROR_INVALID_PARAM);
  expect(device_ + 2, 4, 1, ACL_ERROR_INVALID_PARAM);
  expect(device_, 7, 2, ACL_ERROR_INVALID_PARAM);
  expect(device_, 64, ~size_t{0} / 4 + 2, ACL_ERROR_INVALID_PARAM);  // Its bytes would wrap.
  expect(device_, 2 * kBlock, kBlock / 4 + 16, ACL_ERROR_RT_PARAM_INVALID);
  expect(own.data(), sizeof own, 1, ACL_ERROR_MEMORY_ADDRESS_UNREGISTERED);
  std::thread([&] {
    EXPECT_EQ(aclrtMemsetD32(device_, 4, 1, 1), ACL_ERROR_RT_CONTEXT_NULL);
  }).join();
}

// --- Page-locked memory only ---------------------------------------------------------------------

TEST_F(Copies, WithConditionTakePageLockedMemoryOnly) {
  std::array<uint8_t, 64> host{};
  const auto copy = [&](void* to, const void* from, int kind) {
    return aclrtMemcpyAsyncWithCondition(to, 64, from, 64, from_c<aclrtMemcpyKind>(kind), stream_);
  };
  std::memset(pinned_, 2, 64);
  EXPECT_EQ(copy(device_, pinned_, ACL_MEMCPY_HOST_TO_DEVICE), ACL_SUCCESS) << recent();
  EXPECT_EQ(copy(device_ + 64, device_, ACL_MEMCPY_DEVICE_TO_DEVICE), ACL_SUCCESS) << recent();
  synchronize();
  EXPECT_EQ(device_[127], 2);
  EXPECT_EQ(copy(device_, host.data(), ACL_MEMCPY_HOST_TO_DEVICE), ACL_ERROR_RT_PARAM_INVALID);
  EXPECT_NE(recent().find("aclrtMallocHost"), std::string::npos);
  EXPECT_EQ(copy(host.data(), device_, ACL_MEMCPY_DEFAULT), ACL_ERROR_RT_PARAM_INVALID);
  // Its bytes are taken at the call.
  EXPECT_EQ(copy(device_, host.data(), ACL_MEMCPY_HOST_TO_BUF_TO_DEVICE), ACL_SUCCESS);
  EXPECT_EQ(copy(nullptr, device_, ACL_MEMCPY_DEFAULT), ACL_ERROR_INVALID_PARAM);
  for (const int kind : {-1, 6, 7})
    EXPECT_EQ(copy(device_, pinned_, kind), ACL_ERROR_INVALID_PARAM) << kind;
  EXPECT_EQ(copy(pinned_, host.data(), ACL_MEMCPY_HOST_TO_HOST), ACL_ERROR_RT_FEATURE_NOT_SUPPORT);
  EXPECT_EQ(aclrtMemcpyAsyncWithCondition(device_, 63, pinned_, 64, ACL_MEMCPY_DEFAULT, stream_),
            ACL_ERROR_RT_PARAM_INVALID);
}

// --- Addresses that lie in device memory ---------------------------------------------------------

class Indirect : public Copies {
 protected:
  void SetUp() override {
    Copies::SetUp();
    cells_ = reinterpret_cast<void**>(allocate(4096));
    std::iota(other_, other_ + 256, uint8_t{0});
  }
  void TearDown() override {
    EXPECT_EQ(aclrtFree(cells_), ACL_SUCCESS);
    Copies::TearDown();
  }
  aclError by_cells(size_t to_offset, size_t count, size_t from_offset) {
    return aclrtMemcpyAsyncWithOffset(&cells_[0], count, to_offset,
                                      const_cast<const void**>(&cells_[1]), count, from_offset,
                                      ACL_MEMCPY_INNER_DEVICE_TO_DEVICE, stream_);
  }
  aclError described() {
    return aclrtMemcpyAsyncWithDesc(cells_, ACL_MEMCPY_INNER_DEVICE_TO_DEVICE, stream_);
  }
  aclError describe(void* from, void* to, size_t count) {
    return aclrtSetMemcpyDesc(cells_, ACL_MEMCPY_INNER_DEVICE_TO_DEVICE, from, to, count, nullptr);
  }
  void expect_no_copy() {
    EXPECT_EQ(aclrtSynchronizeStream(stream_), ACL_ERROR_RT_SYS_DMA);
    EXPECT_NE(recent().find("device memory"), std::string::npos);
  }

  void** cells_ = nullptr;
};

TEST_F(Indirect, CellsAreReadWhenTheirTurnComes) {
  Gate gate;
  stand(gate);
  ASSERT_EQ(by_cells(8, 64, 16), ACL_SUCCESS) << recent();
  cells_[0] = device_;
  cells_[1] = other_;
  gate.open();
  synchronize();
  EXPECT_EQ(device_[7], 0);
  EXPECT_EQ(device_[8], 16);
  EXPECT_EQ(device_[8 + 63], 16 + 63);
  EXPECT_EQ(device_[8 + 64], 0);
}

TEST_F(Indirect, CellsThatNameNoDeviceMemoryFailTheTaskAndTouchNothing) {
  std::array<uint8_t, 64> host{};
  const auto expect = [&](void* to, void* from, size_t to_offset, size_t from_offset) {
    cells_[0] = to;
    cells_[1] = from;
    EXPECT_EQ(by_cells(to_offset, 64, from_offset), ACL_SUCCESS) << recent();
    expect_no_copy();
  };
  expect(nullptr, other_, 0, 0);
  expect(device_, nullptr, 0, 0);
  expect(host.data(), other_, 0, 0);
  expect(device_, other_, kBlock - 31, 0);
  expect(device_, other_, 0, kBlock);
  expect(device_, other_, ~size_t{0}, 0);  // Wraps around.
  EXPECT_EQ(host[0], 0);
  EXPECT_EQ(device_[kBlock - 31], 0);
}

TEST_F(Indirect, OffsetsHaveTheContractsCodes) {
  void* own[2] = {device_, other_};
  const auto copy = [&](void** to, size_t room, void** from, size_t count, int kind) {
    return aclrtMemcpyAsyncWithOffset(to, room, 0, const_cast<const void**>(from), count, 0,
                                      from_c<aclrtMemcpyKind>(kind), stream_);
  };
  EXPECT_EQ(copy(nullptr, 0, nullptr, 0, 99), ACL_SUCCESS);
  EXPECT_EQ(copy(nullptr, 64, cells_, 64, 6), ACL_ERROR_INVALID_PARAM);
  EXPECT_EQ(copy(cells_, 64, nullptr, 64, 6), ACL_ERROR_INVALID_PARAM);
  for (const int kind : {0, 1, 2, 3, 4, 5, 7})
    EXPECT_EQ(copy(cells_, 64, cells_, 64, kind), ACL_ERROR_RT_PARAM_INVALID) << kind;
  EXPECT_EQ(copy(cells_, 63, cells_, 64, 6), ACL_ERROR_RT_PARAM_INVALID);
  EXPECT_EQ(copy(own, 64, cells_, 64, 6), ACL_ERROR_MEMORY_ADDRESS_UNREGISTERED);
  EXPECT_EQ(copy(cells_, 64, own + 1, 64, 6), ACL_ERROR_MEMORY_ADDRESS_UNREGISTERED);
}

TEST_F(Indirect, ADescriptorStandsForItsCopyEachTime) {
  size_t size = 0;
  ASSERT_EQ(aclrtGetMemcpyDescSize(ACL_MEMCPY_INNER_DEVICE_TO_DEVICE, &size), ACL_SUCCESS);
  ASSERT_LE(size, 4096U);
  ASSERT_EQ(describe(other_, device_, 100), ACL_SUCCESS) << recent();
  for (int i = 0; i < 2; ++i) {
    std::memset(device_, 0, 128);
    ASSERT_EQ(described(), ACL_SUCCESS) << recent();
    synchronize();
    EXPECT_EQ(device_[99], 99);
    EXPECT_EQ(device_[100], 0);
  }
}

TEST_F(Indirect, ADescriptorIsBelievedNothing) {
  EXPECT_EQ(described(), ACL_SUCCESS);  // Never set: zeros.
  expect_no_copy();
  ASSERT_EQ(describe(other_, device_, kBlock + 64), ACL_SUCCESS) << recent();
  EXPECT_EQ(described(), ACL_SUCCESS);
  expect_no_copy();
  // Whatever is scribbled over it, no byte outside device memory is touched.
  std::mt19937_64 random(3);
  for (int i = 0; i < 500; ++i) {
    ASSERT_EQ(describe(other_, device_, 64), ACL_SUCCESS);
    const size_t at = random() % 32;
    const auto byte = static_cast<uint8_t>(1U << (random() % 8));
    reinterpret_cast<uint8_t*>(cells_)[at] ^= byte;
    ASSERT_EQ(described(), ACL_SUCCESS) << recent();
    const aclError code = aclrtSynchronizeStream(stream_);
    EXPECT_TRUE(code == ACL_SUCCESS || code == ACL_ERROR_RT_SYS_DMA) << code;
  }
}

TEST_F(Indirect, DescriptorsHaveTheContractsCodes) {
  constexpr auto kInner = ACL_MEMCPY_INNER_DEVICE_TO_DEVICE;
  std::array<uint8_t, 64> host{};
  size_t size = kUntouched;
  EXPECT_EQ(aclrtGetMemcpyDescSize(kInner, nullptr), ACL_ERROR_INVALID_PARAM);
  EXPECT_EQ(aclrtGetMemcpyDescSize(ACL_MEMCPY_DEVICE_TO_DEVICE, &size), ACL_ERROR_RT_PARAM_INVALID);
  EXPECT_EQ(size, kUntouched);
  const auto set = [&](void* desc, aclrtMemcpyKind kind, void* from, void* to, size_t count,
                       void* config = nullptr) {
    return aclrtSetMemcpyDesc(desc, kind, from, to, count, config);
  };
  EXPECT_EQ(set(nullptr, kInner, other_, device_, 1), ACL_ERROR_INVALID_PARAM);
  EXPECT_EQ(set(cells_, kInner, nullptr, device_, 1), ACL_ERROR_INVALID_PARAM);
  EXPECT_EQ(set(cells_, kInner, other_, nullptr, 1), ACL_ERROR_INVALID_PARAM);
  EXPECT_EQ(set(cells_, kInner, other_, device_, 0), ACL_ERROR_INVALID_PARAM);
  EXPECT_EQ(set(cells_, ACL_MEMCPY_DEFAULT, other_, device_, 1), ACL_ERROR_RT_PARAM_INVALID);
  EXPECT_EQ(set(cells_, kInner, other_, device_, 1, cells_), ACL_ERROR_RT_PARAM_INVALID);
  EXPECT_EQ(set(host.data(), kInner, other_, device_, 1), ACL_ERROR_MEMORY_ADDRESS_UNREGISTERED);
  EXPECT_EQ(set(device_ + kBlock - 16, kInner, other_, device_, 1), ACL_ERROR_RT_PARAM_INVALID);
  EXPECT_EQ(aclrtMemcpyAsyncWithDesc(nullptr, kInner, stream_), ACL_ERROR_INVALID_PARAM);
  EXPECT_EQ(aclrtMemcpyAsyncWithDesc(cells_, ACL_MEMCPY_DEFAULT, stream_),
            ACL_ERROR_RT_PARAM_INVALID);
  EXPECT_EQ(aclrtMemcpyAsyncWithDesc(host.data(), kInner, stream_),
            ACL_ERROR_MEMORY_ADDRESS_UNREGISTERED);
}

TEST_F(Indirect, WhatItWillReadMayBeFreedOnlyAfterwards) {
  uint8_t* there = nullptr;
  std::thread([&] {
    ASSERT_EQ(aclrtSetDevice(1), ACL_SUCCESS);
    there = allocate();
  }).join();
  ASSERT_EQ(describe(there, device_, 64), ACL_SUCCESS);
  Gate gate;
  stand(gate);
  ASSERT_EQ(described(), ACL_SUCCESS) << recent();
  ASSERT_EQ(aclrtFree(there), ACL_SUCCESS);
  EXPECT_EQ(Runtime::get_if_any()->deferred().pending(), 1U);
  gate.open();
  // Dead for every call since it was freed, so for this one too.
  expect_no_copy();
  EXPECT_EQ(aclrtResetDeviceForce(1), ACL_SUCCESS);
}

// --- Reductions ----------------------------------------------------------------------------------

using Reductions = Copies;

TEST_F(Reductions, AreDoneInTheStreamsOrder) {
  auto* to = reinterpret_cast<float*>(device_);
  auto* from = reinterpret_cast<float*>(other_);
  constexpr size_t kCount = kBlock / sizeof(float);
  std::fill_n(to, kCount, 1.5F);
  std::fill_n(from, kCount, 2.0F);
  Gate gate;
  stand(gate);
  const auto reduce = [&](aclrtReduceKind kind) {
    ASSERT_EQ(aclrtReduceAsync(to, from, kBlock, kind, ACL_FLOAT, stream_, nullptr), ACL_SUCCESS)
        << recent();
  };
  reduce(ACL_RT_MEMCPY_SDMA_AUTOMATIC_SUM);
  reduce(ACL_RT_MEMCPY_SDMA_AUTOMATIC_SUM);
  reduce(ACL_RT_MEMCPY_SDMA_AUTOMATIC_MIN);
  EXPECT_EQ(to[0], 1.5F);
  gate.open();
  synchronize();
  EXPECT_EQ(to[0], 2.0F);
  EXPECT_EQ(to[kCount - 1], 2.0F);
  reduce(ACL_RT_MEMCPY_SDMA_AUTOMATIC_SUM);
  reduce(ACL_RT_MEMCPY_SDMA_AUTOMATIC_MAX);
  synchronize();
  EXPECT_EQ(to[kCount - 1], 4.0F);
}

TEST_F(Reductions, RefusalsHaveTheContractsCodes) {
  std::array<float, 16> host{};
  const auto reduce = [&](void* to, const void* from, uint64_t count, int kind, int type,
                          void* reserve = nullptr) {
    return aclrtReduceAsync(to, from, count, from_c<aclrtReduceKind>(kind),
                            from_c<aclDataType>(type), stream_, reserve);
  };
  EXPECT_EQ(reduce(nullptr, other_, 64, 10, ACL_FLOAT), ACL_ERROR_INVALID_PARAM);
  EXPECT_EQ(reduce(device_, nullptr, 64, 10, ACL_FLOAT), ACL_ERROR_INVALID_PARAM);
  for (const int type : {-1, +ACL_BOOL, +ACL_STRING, +ACL_COMPLEX64, +ACL_INT4, 1000})
    EXPECT_EQ(reduce(device_, other_, 64, 10, type), ACL_ERROR_INVALID_PARAM) << type;
  EXPECT_EQ(reduce(device_, other_, 64, 9, ACL_FLOAT), ACL_ERROR_RT_PARAM_INVALID);
  EXPECT_EQ(reduce(device_, other_, 64, 14, ACL_FLOAT), ACL_ERROR_RT_PARAM_INVALID);
  EXPECT_EQ(reduce(device_, other_, 64, 13, ACL_FLOAT), ACL_ERROR_RT_FEATURE_NOT_SUPPORT);
  EXPECT_EQ(reduce(device_, other_, 64, 10, ACL_FLOAT, device_), ACL_ERROR_RT_PARAM_INVALID);
  EXPECT_EQ(reduce(device_, other_, 63, 10, ACL_FLOAT16), ACL_ERROR_RT_PARAM_INVALID);
  EXPECT_EQ(reduce(device_ + 64, other_, kBlock, 10, ACL_INT8), ACL_ERROR_RT_PARAM_INVALID);
  EXPECT_EQ(reduce(device_, other_ + 64, kBlock, 10, ACL_INT8), ACL_ERROR_RT_PARAM_INVALID);
  EXPECT_EQ(reduce(host.data(), other_, 64, 10, ACL_FLOAT), ACL_ERROR_MEMORY_ADDRESS_UNREGISTERED);
  EXPECT_EQ(reduce(device_, host.data(), 64, 10, ACL_FLOAT), ACL_ERROR_MEMORY_ADDRESS_UNREGISTERED);
  for (const int type :
       {+ACL_FLOAT, +ACL_FLOAT16, +ACL_BF16, +ACL_INT8, +ACL_INT16, +ACL_INT32, +ACL_UINT8,
        +ACL_UINT16, +ACL_UINT32, +ACL_INT64, +ACL_UINT64, +ACL_DOUBLE})
    EXPECT_EQ(reduce(device_, other_, 64, 10, type), ACL_SUCCESS) << recent();
}

// --- Cache maintenance ---------------------------------------------------------------------------

TEST_F(Copies, CacheMaintenanceIsAPlaceInTheOrder) {
  size_t size = 0;
  ASSERT_EQ(aclrtCmoGetDescSize(&size), ACL_SUCCESS);
  ASSERT_LE(size, kBlock);
  ASSERT_EQ(aclrtCmoSetDesc(other_, device_, 64), ACL_SUCCESS) << recent();
  aclrtBarrierTaskInfo barrier{};
  barrier.barrierNum = 1;
  barrier.cmoInfo[0] = {.cmoType = ACL_RT_CMO_TYPE_INVALID, .barrierId = 3};
  Gate gate;
  stand(gate);
  const auto tail = [] { return Runtime::get_if_any()->streams().under_way(0).at(0).ticket; };
  const auto before = tail();
  for (const auto kind : {ACL_RT_CMO_TYPE_PREFETCH, ACL_RT_CMO_TYPE_WRITEBACK,
                          ACL_RT_CMO_TYPE_INVALID, ACL_RT_CMO_TYPE_FLUSH}) {
    EXPECT_EQ(aclrtCmoAsync(device_, 64, kind, stream_), ACL_SUCCESS) << recent();
    EXPECT_EQ(aclrtCmoAsyncWithBarrier(device_, 64, kind, 3, stream_), ACL_SUCCESS);
    EXPECT_EQ(aclrtCmoAsyncWithDesc(other_, kind, stream_, nullptr), ACL_SUCCESS);
  }
  EXPECT_EQ(aclrtCmoWaitBarrier(&barrier, stream_, 0), ACL_SUCCESS) << recent();
  EXPECT_EQ(tail(), before + 13);
  gate.open();
  synchronize();
}

TEST_F(Copies, CacheMaintenanceHasTheContractsCodes) {
  const auto bad = from_c<aclrtCmoType>(4);
  EXPECT_EQ(aclrtCmoAsync(nullptr, 64, ACL_RT_CMO_TYPE_FLUSH, stream_), ACL_ERROR_INVALID_PARAM);
  EXPECT_EQ(aclrtCmoAsync(device_, 0, ACL_RT_CMO_TYPE_FLUSH, stream_), ACL_ERROR_INVALID_PARAM);
  EXPECT_EQ(aclrtCmoAsync(device_, 64, bad, stream_), ACL_ERROR_RT_FEATURE_NOT_SUPPORT);
  EXPECT_EQ(aclrtCmoAsync(device_, 64, ACL_RT_CMO_TYPE_FLUSH, device_),
            ACL_ERROR_RT_INVALID_HANDLE);
  EXPECT_EQ(aclrtCmoAsyncWithBarrier(nullptr, 64, ACL_RT_CMO_TYPE_FLUSH, 1, stream_),
            ACL_ERROR_INVALID_PARAM);
  EXPECT_EQ(aclrtCmoAsyncWithBarrier(device_, 64, bad, 1, stream_),
            ACL_ERROR_RT_FEATURE_NOT_SUPPORT);
  EXPECT_EQ(aclrtCmoWaitBarrier(nullptr, stream_, 0), ACL_ERROR_INVALID_PARAM);
  aclrtBarrierTaskInfo barrier{};
  EXPECT_EQ(aclrtCmoWaitBarrier(&barrier, stream_, 0), ACL_ERROR_RT_PARAM_INVALID);
  barrier.barrierNum = ACL_RT_CMO_MAX_BARRIER_NUM + 1;
  EXPECT_EQ(aclrtCmoWaitBarrier(&barrier, stream_, 0), ACL_ERROR_RT_PARAM_INVALID);
  EXPECT_EQ(aclrtCmoGetDescSize(nullptr), ACL_ERROR_INVALID_PARAM);
  EXPECT_EQ(aclrtCmoSetDesc(nullptr, device_, 64), ACL_ERROR_INVALID_PARAM);
  EXPECT_EQ(aclrtCmoSetDesc(other_, nullptr, 64), ACL_ERROR_INVALID_PARAM);
  EXPECT_EQ(aclrtCmoSetDesc(other_, device_, 0), ACL_ERROR_INVALID_PARAM);
  EXPECT_EQ(aclrtCmoSetDesc(&barrier, device_, 64), ACL_ERROR_MEMORY_ADDRESS_UNREGISTERED);
  EXPECT_EQ(aclrtCmoAsyncWithDesc(nullptr, ACL_RT_CMO_TYPE_FLUSH, stream_, nullptr),
            ACL_ERROR_INVALID_PARAM);
  EXPECT_EQ(aclrtCmoAsyncWithDesc(other_, bad, stream_, nullptr), ACL_ERROR_RT_FEATURE_NOT_SUPPORT);
}

}  // namespace
