// What does it cost to have work done on a stream, against the barest hand-over there is?
//
//   to and back   one task and waiting for it: hufuLaunchHostTask and aclrtSynchronizeStream,
//                 against a word that a spinning thread answers, and against a thread behind a
//                 mutex and a condition variable, which is how streams are often made
//   idle stream   a small aclrtMemcpyAsync and aclrtSynchronizeStream, against the memcpy
//   pipelined     a thousand tasks and one wait, per task, against a ring of words between two
//                 threads
//
// Run: make bench, or build/release/bin/dispatch_bench

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <thread>

#include "acl/acl.h"
#include "bench/harness.h"
#include "hufu/hufu.h"

namespace {

using hufu::bench::give_up;
using hufu::bench::keep;

void pause_processor() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

// The floor: tickets through a ring of words, done by a thread that always spins.
class Spinner {
 public:
  void issue() {
    const std::uint64_t ticket = issued_++;
    while (ticket - done_.load(std::memory_order_acquire) >= kPlaces)
      pause_processor();
    ring_[ticket % kPlaces].store(ticket + 1, std::memory_order_release);
  }
  void wait() const {
    while (done_.load(std::memory_order_acquire) != issued_)
      pause_processor();
  }
  // For as long as it is measured, and no longer: a thread that spins takes a processor from
  // everybody else.
  void start() {
    stop_ = false;
    thread_ = std::thread([this] { work(); });
  }
  void stop() {
    stop_ = true;
    thread_.join();
  }

 private:
  static constexpr std::uint64_t kPlaces = 1024;

  void work() {
    std::uint64_t next = done_.load();
    while (!stop_.load(std::memory_order_relaxed)) {
      if (ring_[next % kPlaces].load(std::memory_order_acquire) != next + 1) {
        pause_processor();
        continue;
      }
      done_.store(++next, std::memory_order_release);
    }
  }

  std::array<std::atomic<std::uint64_t>, kPlaces> ring_{};
  alignas(64) std::uint64_t issued_ = 0;
  alignas(64) std::atomic<std::uint64_t> done_ = 0;
  std::atomic<bool> stop_ = false;
  std::thread thread_;
};

// The rival: one mutex, two condition variables.
class Sleeper {
 public:
  Sleeper() : thread_([this] { work(); }) {}
  ~Sleeper() {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    work_.notify_one();
    thread_.join();
  }
  void issue() {
    {
      const std::lock_guard lock(mutex_);
      ++issued_;
    }
    work_.notify_one();
  }
  void wait() {
    std::unique_lock lock(mutex_);
    over_.wait(lock, [&] { return done_ == issued_; });
  }

 private:
  void work() {
    std::unique_lock lock(mutex_);
    while (true) {
      work_.wait(lock, [&] { return stop_ || done_ != issued_; });
      if (stop_) return;
      ++done_;
      over_.notify_one();
    }
  }

  std::mutex mutex_;
  std::condition_variable work_;
  std::condition_variable over_;
  std::uint64_t issued_ = 0;
  std::uint64_t done_ = 0;
  bool stop_ = false;
  std::thread thread_;
};

void must(aclError code, const char* what) {
  if (code != ACL_SUCCESS) give_up(what);
}

void launch(aclrtStream stream) {
  must(hufuLaunchHostTask(
           stream, [](void*) -> int32_t { return 0; }, nullptr),
       "hufuLaunchHostTask");
}

void synchronize(aclrtStream stream) { must(aclrtSynchronizeStream(stream), "synchronize"); }

}  // namespace

int main() {
  ::setenv("HUFU_BROKER", "none", 1);
  must(aclrtSetDevice(0), "aclrtSetDevice");
  aclrtStream stream = nullptr;
  must(aclrtCreateStream(&stream), "aclrtCreateStream");
  Spinner spinner;
  Sleeper sleeper;

  hufu::bench::Suite there_and_back("To and back");
  there_and_back.add("spinning thread", 20'000, [&](std::size_t n) {
    spinner.start();
    for (std::size_t i = 0; i < n; ++i) {
      spinner.issue();
      spinner.wait();
    }
    spinner.stop();
  });
  there_and_back.add(
      "host task and synchronise", 20'000,
      [&](std::size_t n) {
        for (std::size_t i = 0; i < n; ++i) {
          launch(stream);
          synchronize(stream);
        }
      },
      "spinning thread");
  there_and_back.add(
      "mutex and condition variables", 2'000,
      [&](std::size_t n) {
        for (std::size_t i = 0; i < n; ++i) {
          sleeper.issue();
          sleeper.wait();
        }
      },
      "host task and synchronise");
  there_and_back.run();

  hufu::bench::Suite idle("Idle stream");
  void* memory = nullptr;
  must(aclrtMalloc(&memory, 8192, ACL_MEM_MALLOC_NORMAL_ONLY), "aclrtMalloc");
  char* const bytes = static_cast<char*>(memory);
  idle.add("memcpy of 64 bytes", 200'000, [&](std::size_t n) {
    for (std::size_t i = 0; i < n; ++i) {
      std::memcpy(bytes, bytes + 4096, 64);
      keep(bytes);
    }
  });
  idle.add(
      "aclrtMemcpyAsync of 64 bytes and synchronise", 100'000,
      [&](std::size_t n) {
        for (std::size_t i = 0; i < n; ++i) {
          must(aclrtMemcpyAsync(bytes, 64, bytes + 4096, 64, ACL_MEMCPY_DEVICE_TO_DEVICE, stream),
               "aclrtMemcpyAsync");
          synchronize(stream);
        }
      },
      "memcpy of 64 bytes");
  idle.run();

  hufu::bench::Suite pipelined("Pipelined");
  constexpr std::size_t kBatch = 1000;
  pipelined.add("ring between two threads", 100 * kBatch, [&](std::size_t n) {
    spinner.start();
    for (std::size_t i = 0; i < n; i += kBatch) {
      for (std::size_t j = 0; j < kBatch; ++j)
        spinner.issue();
      spinner.wait();
    }
    spinner.stop();
  });
  pipelined.add(
      "host tasks, and one synchronise", 100 * kBatch,
      [&](std::size_t n) {
        for (std::size_t i = 0; i < n; i += kBatch) {
          for (std::size_t j = 0; j < kBatch; ++j)
            launch(stream);
          synchronize(stream);
        }
      },
      "ring between two threads");
  pipelined.run();

  must(aclrtFree(memory), "aclrtFree");
  must(aclrtDestroyStream(stream), "aclrtDestroyStream");
  must(aclrtResetDevice(0), "aclrtResetDevice");
  return 0;
}
