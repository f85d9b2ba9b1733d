// What does a copy cost through the C API, against the C library's memcpy and memset of the same
// bytes between the same addresses?
//
//   short    the price of the call: looking up both sides, and saying that a copy is under way
//   long     what the caches cannot hold; per copy, so a ratio of 0.67 is 1.5 times the bandwidth
//   pieces   4096 short copies in one call, against a loop
//
// Run: make bench, or build/release/bin/copy_bench

#include <array>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "acl/acl.h"
#include "bench/harness.h"

namespace {

using hufu::bench::give_up;
using hufu::bench::keep;

constexpr std::size_t kMost = std::size_t{256} << 20U;

void must(aclError code, const char* what) {
  if (code != ACL_SUCCESS) give_up(what);
}

char* allocate(std::size_t size) {
  void* memory = nullptr;
  must(aclrtMalloc(&memory, size, ACL_MEM_MALLOC_HUGE_FIRST), "aclrtMalloc");
  std::memset(memory, 1, size);
  return static_cast<char*>(memory);
}

std::string name_of(std::size_t size) {
  if (size >= 1U << 20U) return std::to_string(size >> 20U) + " MiB";
  if (size >= 1U << 10U) return std::to_string(size >> 10U) + " KiB";
  return std::to_string(size) + " bytes";
}

void copies(hufu::bench::Suite& suite, char* to, const char* from, std::size_t size) {
  const std::size_t times = std::min<std::size_t>(100'000, (std::size_t{128} << 20U) / size + 1);
  const std::string floor = "memcpy of " + name_of(size);
  suite.add(floor, times, [=](std::size_t n) {
    for (std::size_t i = 0; i < n; ++i) {
      std::memcpy(to, from, size);
      keep(to);
    }
  });
  suite.add(
      "aclrtMemcpy of " + name_of(size), times,
      [=](std::size_t n) {
        for (std::size_t i = 0; i < n; ++i)
          must(aclrtMemcpy(to, size, from, size, ACL_MEMCPY_DEVICE_TO_DEVICE), "aclrtMemcpy");
      },
      floor);
}

void sets(hufu::bench::Suite& suite, char* to, std::size_t size) {
  const std::string floor = "memset of " + name_of(size);
  suite.add(floor, 1, [=](std::size_t) {
    std::memset(to, 2, size);
    keep(to);
  });
  suite.add(
      "aclrtMemset of " + name_of(size), 1,
      [=](std::size_t) { must(aclrtMemset(to, size, 2, size), "aclrtMemset"); }, floor);
}

// The columns of 4096 pieces of 256 bytes, every other 256 bytes.
struct Pieces {
  static constexpr std::size_t kCount = 4096;
  static constexpr std::size_t kSize = 256;

  Pieces(char* target, char* source) {
    for (std::size_t i = 0; i < kCount; ++i) {
      to.push_back(target + 2 * i * kSize);
      from.push_back(source + 2 * i * kSize);
    }
  }
  std::vector<void*> to;
  std::vector<void*> from;
  std::vector<std::size_t> sizes = std::vector<std::size_t>(kCount, kSize);
  aclrtMemcpyBatchAttr attribute{.dstLoc = {.id = 0, .type = ACL_MEM_LOCATION_TYPE_DEVICE},
                                 .srcLoc = {.id = 0, .type = ACL_MEM_LOCATION_TYPE_DEVICE},
                                 .rsv = {}};
};

}  // namespace

int main() {
  ::setenv("HUFU_BROKER", "none", 1);
  hufu::bench::pin(0, 0);
  must(aclrtSetDevice(0), "aclrtSetDevice");
  char* const to = allocate(kMost);
  char* const from = allocate(kMost);

  hufu::bench::Suite shorts("Short copies");
  for (const std::size_t size :
       {std::size_t{64}, std::size_t{4} << 10U, std::size_t{64} << 10U, std::size_t{1} << 20U})
    copies(shorts, to, from, size);
  shorts.run();

  hufu::bench::Suite longs("Long copies");
  for (const std::size_t size : {std::size_t{16} << 20U, std::size_t{64} << 20U, kMost})
    copies(longs, to, from, size);
  sets(longs, to, kMost);
  longs.run();

  hufu::bench::Suite many("Pieces");
  Pieces pieces(to, from);
  many.add("4096 times memcpy of 256 bytes", 20, [&](std::size_t n) {
    for (std::size_t i = 0; i < n; ++i) {
      for (std::size_t j = 0; j < Pieces::kCount; ++j)
        std::memcpy(pieces.to[j], pieces.from[j], Pieces::kSize);
      keep(to);
    }
  });
  many.add(
      "aclrtMemcpyBatch of 4096 times 256 bytes", 20,
      [&](std::size_t n) {
        for (std::size_t i = 0; i < n; ++i) {
          std::size_t first = 0;
          std::size_t fail = 0;
          must(aclrtMemcpyBatch(pieces.to.data(), pieces.sizes.data(), pieces.from.data(),
                                pieces.sizes.data(), Pieces::kCount, &pieces.attribute, &first, 1,
                                &fail),
               "aclrtMemcpyBatch");
        }
      },
      "4096 times memcpy of 256 bytes");
  many.add(
      "4096 times aclrtMemcpy of 256 bytes", 20,
      [&](std::size_t n) {
        for (std::size_t i = 0; i < n; ++i) {
          for (std::size_t j = 0; j < Pieces::kCount; ++j) {
            must(aclrtMemcpy(pieces.to[j], Pieces::kSize, pieces.from[j], Pieces::kSize,
                             ACL_MEMCPY_DEVICE_TO_DEVICE),
                 "aclrtMemcpy");
          }
        }
      },
      "4096 times memcpy of 256 bytes");
  many.run();

  must(aclrtFree(to), "aclrtFree");
  must(aclrtFree(from), "aclrtFree");
  must(aclrtResetDevice(0), "aclrtResetDevice");
  return 0;
}
