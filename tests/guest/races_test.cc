// Races inside one process (D22): eight threads import, close, export, withdraw, free, allocate,
// copy and describe the same few keys and addresses, every pair of calls among them, in an order
// that a seed decides. No call may answer anything but what its contract lists for a key or an
// address that another thread has just ended; and at the end the broker's books and the registry
// are as empty as they were.
//
//   HUFU_RACE_ROUNDS=n   calls in all (default 10,000; `make soak` takes 1,000,000)

#include <array>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "acl/acl.h"
#include "hufu/hufu.h"
#include "support/test_broker.h"

#if defined(__SANITIZE_THREAD__)
// The threads of this program copy over each other's bytes, as no program should. Whose turn it is
// to write a program's memory is the program's business; everything else is ours and is watched.
extern "C" const char* __tsan_default_suppressions() {
  return "race:hufu::runtime::perform\nrace:hufu::runtime::copy\n"
         "race:hufu::runtime::fill\nrace:::combine<\n";
}
#endif

namespace hufu::test {
namespace {

constexpr std::size_t kBlock = 8192;
constexpr std::size_t kThreads = 8;
constexpr std::size_t kSlots = 3;  // Few, so that threads meet.
constexpr std::uint64_t kAnyProcess = ACL_RT_IPC_MEM_EXPORT_FLAG_DISABLE_PID_VALIDATION;

// What the threads share: the latest address and key of each slot, alive or not. An address that
// was freed may be another's by now: then that one is freed, as by a program that frees twice.
struct Slot {
  std::atomic<void*> block = nullptr;
  std::atomic<void*> imported = nullptr;
  std::mutex mutex;  // Of the keys' texts alone.
  std::vector<std::string> keys;

  std::string latest_key() {
    const std::lock_guard lock(mutex);
    return keys.empty() ? "" : keys.back();
  }
  void add_key(const char* text) {
    const std::lock_guard lock(mutex);
    keys.emplace_back(text);
  }
};

enum class Call { kImport, kClose, kExport, kWithdraw, kFree, kAllocate, kCopy, kDescribe };
constexpr int kCalls = 8;

// What the contract lets a call answer when another thread may have ended its key or its address.
bool is_allowed(Call call, aclError code) {
  static const std::array<std::set<aclError>, kCalls> kAllowed = {{
      {ACL_ERROR_RT_DRV_INTERNAL_ERROR},
      {ACL_ERROR_RT_DRV_INTERNAL_ERROR},
      {ACL_ERROR_RT_DRV_INTERNAL_ERROR, ACL_ERROR_RT_PARAM_INVALID,
       ACL_ERROR_MEMORY_ADDRESS_UNREGISTERED},
      {ACL_ERROR_RT_DRV_INTERNAL_ERROR},
      {ACL_ERROR_RT_PARAM_INVALID, ACL_ERROR_MEMORY_ADDRESS_UNREGISTERED},
      {},
      {ACL_ERROR_MEMORY_ADDRESS_UNREGISTERED, ACL_ERROR_RT_PARAM_INVALID},
      {ACL_ERROR_MEMORY_ADDRESS_UNREGISTERED},
  }};
  return code == ACL_SUCCESS || kAllowed[static_cast<std::size_t>(call)].contains(code);
}

class Racer {
 public:
  Racer(std::array<Slot, kSlots>& slots, unsigned seed) : slots_(slots), random_(seed) {}

  // Empty, or what was wrong.
  std::string run(std::uint64_t calls) {
    if (aclrtSetDevice(0) != ACL_SUCCESS || aclrtCreateStream(&stream_) != ACL_SUCCESS ||
        aclrtMalloc(&own_, kBlock, ACL_MEM_MALLOC_NORMAL_ONLY) != ACL_SUCCESS) {
      return "no device, stream or memory";
    }
    for (std::uint64_t i = 0; i < calls; ++i) {
      const auto call = static_cast<Call>(random_() % kCalls);
      const aclError code = make(call, slots_[random_() % kSlots]);
      const char* text = aclGetRecentErrMsg();
      if (!is_allowed(call, code)) {
        return fmt::format("call {} answers {}: {}", static_cast<int>(call), code,
                           text == nullptr ? "" : text);
      }
    }
    if (aclrtDestroyStream(stream_) != ACL_SUCCESS) return "the stream's end";
    static_cast<void>(aclrtFree(own_));  // Unless it was freed under an older address.
    return "";
  }

 private:
  aclError make(Call call, Slot& slot) {
    const std::string key = slot.latest_key();
    void* some = random_() % 2 == 0 ? slot.block.load() : slot.imported.load();
    switch (call) {
      case Call::kImport: {
        void* imported = nullptr;
        const aclError code = aclrtIpcMemImportByKey(&imported, key.c_str(), 0);
        if (code == ACL_SUCCESS) slot.imported = imported;
        return key.empty() ? ACL_SUCCESS : code;
      }
      case Call::kClose:
      case Call::kWithdraw:  // One call for both: it depends on what the process holds.
        return key.empty() ? ACL_SUCCESS : aclrtIpcMemClose(key.c_str());
      case Call::kExport: {
        std::array<char, 65> made{};
        void* block = slot.block.load();
        if (block == nullptr) return ACL_SUCCESS;
        const aclError code =
            aclrtIpcMemGetExportKey(block, kBlock, made.data(), made.size(), kAnyProcess);
        if (code == ACL_SUCCESS) slot.add_key(made.data());
        return code;
      }
      case Call::kFree: {
        void* block = slot.block.load();
        return block == nullptr ? ACL_SUCCESS : aclrtFree(block);
      }
      case Call::kAllocate: {
        void* made = nullptr;
        const aclError code = aclrtMalloc(&made, kBlock, ACL_MEM_MALLOC_NORMAL_ONLY);
        if (code != ACL_SUCCESS) return code;
        void* before = slot.block.exchange(made);
        // Its only owner now lets it go, unless somebody has already.
        if (before != nullptr) static_cast<void>(aclrtFree(before));
        return code;
      }
      case Call::kCopy:
        if (some == nullptr) return ACL_SUCCESS;
        switch (random_() % 8) {
          case 3:
            return aclrtMemcpy2dAsync(own_, 128, some, 128, 64, kBlock / 128,
                                      ACL_MEMCPY_DEVICE_TO_DEVICE, stream_);
          case 4:
            return copy_pieces(some);
          case 5:
            return aclrtReduceAsync(own_, some, kBlock, ACL_RT_MEMCPY_SDMA_AUTOMATIC_MAX, ACL_INT8,
                                    stream_, nullptr);
          case 6:
            return aclrtMemsetD32Async(some, kBlock, 7, kBlock / 4, stream_);
          case 7:
            return aclrtCmoAsync(some, kBlock, ACL_RT_CMO_TYPE_FLUSH, stream_);
          case 0:
            return aclrtMemcpy(own_, kBlock, some, kBlock, ACL_MEMCPY_DEVICE_TO_DEVICE);
          case 1:
            return aclrtMemcpyAsync(own_, kBlock, some, kBlock, ACL_MEMCPY_DEVICE_TO_DEVICE,
                                    stream_);
          default:  // So that what follows is queued.
            return hufuLaunchHostTask(
                stream_, [](void*) -> std::int32_t { return 0; }, nullptr);
        }
      case Call::kDescribe: {
        if (some == nullptr) return ACL_SUCCESS;
        void* base = nullptr;
        std::size_t size = 0;
        return aclrtMemGetAddressRange(some, &base, &size);
      }
    }
    return ACL_ERROR_INTERNAL_ERROR;
  }

  aclError copy_pieces(void* from) {
    std::array<void*, 2> to{own_, static_cast<char*>(own_) + kBlock / 2};
    std::array<void*, 2> sources{from, static_cast<char*>(from) + kBlock / 2};
    std::array<size_t, 2> sizes{kBlock / 2, kBlock / 2};
    constexpr aclrtMemLocation kDevice{.id = 0, .type = ACL_MEM_LOCATION_TYPE_DEVICE};
    aclrtMemcpyBatchAttr both{.dstLoc = kDevice, .srcLoc = kDevice, .rsv = {}};
    size_t first = 0;
    return aclrtMemcpyBatchAsyncV2(to.data(), sizes.data(), sources.data(), sizes.data(), to.size(),
                                   &both, &first, 1, stream_);
  }

  std::array<Slot, kSlots>& slots_;
  std::mt19937 random_;
  aclrtStream stream_ = nullptr;
  void* own_ = nullptr;
};

std::size_t memory_in_use() {
  std::size_t free = 0;
  std::size_t total = 0;
  if (aclrtGetMemInfo(ACL_HBM_MEM, &free, &total) != ACL_SUCCESS) return ~std::size_t{0};
  return total - free;
}

std::string race(std::uint64_t calls, unsigned seed) {
  if (aclrtSetDevice(0) != ACL_SUCCESS) return "error no device";
  static std::array<Slot, kSlots> slots;
  const std::size_t before = memory_in_use();
  std::array<std::string, kThreads> wrong;
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      wrong[i] = Racer(slots, seed * 1000 + static_cast<unsigned>(i)).run(calls / kThreads);
    });
  }
  for (std::thread& thread : threads)
    thread.join();
  for (const std::string& text : wrong) {
    if (!text.empty()) return "error " + text;
  }
  // What is left of the slots goes; then nothing is left.
  if (aclrtSynchronizeDevice() != ACL_SUCCESS) return "error synchronize";
  for (Slot& slot : slots) {
    for (const std::string& key : slot.keys) {
      while (aclrtIpcMemClose(key.c_str()) == ACL_SUCCESS) {
      }
    }
    if (void* block = slot.block.exchange(nullptr)) static_cast<void>(aclrtFree(block));
    slot.keys.clear();
  }
  static_cast<void>(aclGetRecentErrMsg());
  return fmt::format("ok {}", memory_in_use() - before);
}

const HelperProgram kRacer("racer", [](Channel& channel) {
  serve(channel, [](const Words& words) {
    return race(std::stoull(words.at(0)), static_cast<unsigned>(std::stoul(words.at(1))));
  });
});

TEST(Races, EveryPairOfCallsOnOneKeyAndOneAddress) {
  // NOLINTNEXTLINE(concurrency-mt-unsafe): one thread.
  const char* wanted = std::getenv("HUFU_RACE_ROUNDS");
  const std::uint64_t calls = wanted == nullptr ? 10'000 : std::stoull(wanted);
  constexpr std::uint64_t kPiece = 2'000;
  TestBroker broker;
  Helper racer = broker.helper("racer");
  for (unsigned seed = 1; seed <= calls / kPiece; ++seed) {
    ASSERT_EQ(racer.ask(fmt::format("{} {}", kSanitized ? kPiece / 5 : kPiece, seed)), "ok 0")
        << "seed " << seed;
  }
}

}  // namespace
}  // namespace hufu::test
