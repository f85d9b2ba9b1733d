// What does pool memory cost, and a pointer into a shared pool?
//
//   churn     64 allocations are held; each operation frees one and allocates one of the same size,
//             not the last one freed: what a program does that keeps objects for a while. Against
//             mimalloc where it is installed, else malloc
//   threads   the same by two threads on one pool, against one thread
//   pointer   aclrtMemPoolImportPointer and aclrtFree in the importer; the floor is checking and
//             copying 64 bytes and adding a base. Beside it, aclrtMemPoolExportPointer
//
// mimalloc gives a thread memory of its own and needs no order of streams; the pool is one for all
// threads and streams, and its books lie beside the memory.
//
// Run: make bench, or build/release/bin/pool_bench

#include <unistd.h>

#include <array>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "acl/acl.h"
#include "acl/acl_rt_memory_soma.h"
#include "bench/harness.h"
#include "hufu/hufu.h"

#ifdef HUFU_BENCH_MIMALLOC
#include <mimalloc.h>
#endif

namespace {

using hufu::bench::give_up;
using hufu::bench::keep;

constexpr std::size_t kHeld = 64;
constexpr std::size_t kStep = 29;  // So that what is freed is not what was allocated last.

#ifdef HUFU_BENCH_MIMALLOC
constexpr const char* kRival = "mi_malloc+mi_free";
void* rival_malloc(std::size_t size) { return mi_malloc(size); }
void rival_free(void* memory) { mi_free(memory); }
#else
constexpr const char* kRival = "malloc+free";
void* rival_malloc(std::size_t size) { return std::malloc(size); }
void rival_free(void* memory) { std::free(memory); }
#endif

struct Pool {
  aclrtMemPool pool = nullptr;
  aclrtStream stream = nullptr;

  void* allocate(std::size_t size) const {
    void* memory = nullptr;
    if (aclrtMemPoolMallocAsync(&memory, size, pool, stream) != ACL_SUCCESS) give_up("MallocAsync");
    return memory;
  }
  void free(void* memory) const {
    if (aclrtMemPoolFreeAsync(memory, stream) != ACL_SUCCESS) give_up("FreeAsync");
  }
};

Pool make_pool(std::size_t size) {
  Pool made;
  aclrtMemPoolProps props{};
  props.location.type = ACL_MEM_LOCATION_TYPE_DEVICE;
  props.maxSize = size;
  if (aclrtMemPoolCreate(&made.pool, &props) != ACL_SUCCESS ||
      aclrtCreateStream(&made.stream) != ACL_SUCCESS) {
    give_up("aclrtMemPoolCreate");
  }
  return made;
}

template <class Allocate, class Free>
void churn(std::size_t n, std::size_t size, const Allocate& allocate, const Free& free) {
  std::array<void*, kHeld> held{};
  for (void*& one : held)
    one = allocate(size);
  std::size_t at = 0;
  for (std::size_t i = 0; i < n; ++i) {
    free(held[at]);
    held[at] = allocate(size);
    keep(held[at]);
    at = (at + kStep) % kHeld;
  }
  for (void* one : held)
    free(one);
}

void churn_pool(const Pool& pool, std::size_t n, std::size_t size) {
  churn(
      n, size, [&](std::size_t bytes) { return pool.allocate(bytes); },
      [&](void* memory) { pool.free(memory); });
}

}  // namespace

int main() {
  // NOLINTBEGIN(concurrency-mt-unsafe): before any thread.
  std::string directory = "/tmp/hufu-bench-XXXXXX";
  if (::mkdtemp(directory.data()) == nullptr) give_up("mkdtemp");
  ::setenv("HUFU_BROKER", ("unix:" + directory + "/broker.sock").c_str(), 1);
  ::setenv("HUFU_AUDIT_DIR", (directory + "/audit").c_str(), 1);
  ::setenv("HUFU_IDLE_MS", "1000", 0);
  // NOLINTEND(concurrency-mt-unsafe)
  hufu::bench::pin(0, 0);
  if (aclrtSetDevice(0) != ACL_SUCCESS) give_up("aclrtSetDevice");
  const Pool pool = make_pool(std::size_t{256} << 20U);

  hufu::bench::Suite sizes("churn of pool memory");
  for (const std::size_t size : {64U, 256U, 1024U, 4096U, 65536U, 1048576U}) {
    const std::string rival = std::string(kRival) + " of " + std::to_string(size) + " bytes";
    const std::size_t often = size > 100'000 ? 20'000 : 100'000;
    sizes.add(rival, often, [size](std::size_t n) { churn(n, size, rival_malloc, rival_free); });
    sizes.add(
        "MallocAsync+FreeAsync of " + std::to_string(size) + " bytes", often,
        [size, &pool](std::size_t n) { churn_pool(pool, n, size); }, rival);
  }
  sizes.run();

  hufu::bench::Suite threads("threads on one pool, 256 bytes");
  threads.add("one thread", 100'000, [&](std::size_t n) { churn_pool(pool, n, 256); });
  threads.add(
      "two threads, operations of both", 200'000,
      [&](std::size_t n) {
        const auto work = [&](int cpu) {
          hufu::bench::pin(0, cpu);
          if (aclrtSetDevice(0) != ACL_SUCCESS) give_up("aclrtSetDevice");
          Pool own = pool;
          if (aclrtCreateStream(&own.stream) != ACL_SUCCESS) give_up("aclrtCreateStream");
          churn_pool(own, n / 2, 256);
          if (aclrtDestroyStream(own.stream) != ACL_SUCCESS) give_up("aclrtDestroyStream");
        };
        std::thread other(work, 1);
        std::thread one(work, 0);
        one.join();
        other.join();
      },
      "one thread");
  threads.run();

  std::uint64_t token = 0;
  aclrtMemPool imported = nullptr;
  if (aclrtMemPoolExportToShareableHandle(pool.pool, ACL_MEM_HANDLE_TYPE_NONE,
                                          ACL_RT_VMM_EXPORT_FLAG_DISABLE_PID_VALIDATION,
                                          &token) != ACL_SUCCESS ||
      aclrtMemPoolImportFromShareableHandle(token, 0, &imported) != ACL_SUCCESS) {
    give_up("sharing the pool");
  }
  void* const memory = pool.allocate(4096);
  aclrtMemPoolPtrExportData data{};
  if (aclrtMemPoolExportPointer(memory, &data) != ACL_SUCCESS) give_up("ExportPointer");
  hufu::bench::Suite pointers("a pointer into a shared pool");
  const std::string floor = "64 bytes copied, compared, and a base added";
  pointers.add(floor, 1'000'000, [&](std::size_t n) {
    std::array<std::uint64_t, 8> mine{};
    for (std::size_t i = 0; i < n; ++i) {
      std::memcpy(mine.data(), data.reserved, sizeof(mine));
      const bool same = std::memcmp(mine.data(), data.reserved, 24) == 0;
      keep(static_cast<char*>(memory) + (same ? mine[3] : 0));
    }
  });
  pointers.add(
      "ImportPointer+Free", 200'000,
      [&](std::size_t n) {
        for (std::size_t i = 0; i < n; ++i) {
          void* there = nullptr;
          if (aclrtMemPoolImportPointer(imported, &data, &there) != ACL_SUCCESS ||
              aclrtFree(there) != ACL_SUCCESS) {
            give_up("ImportPointer");
          }
        }
      },
      floor);
  pointers.add(
      "ExportPointer", 200'000,
      [&](std::size_t n) {
        for (std::size_t i = 0; i < n; ++i) {
          if (aclrtMemPoolExportPointer(memory, &data) != ACL_SUCCESS) give_up("ExportPointer");
        }
      },
      floor);
  pointers.run();
  std::error_code ignored;
  std::filesystem::remove_all(directory, ignored);
  return EXIT_SUCCESS;
}
