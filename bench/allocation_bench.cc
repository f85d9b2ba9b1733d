// What does device memory cost, against the kernel and against a good malloc?
//
//   small pieces   aclrtMalloc(64) and (1024) against malloc of the same size, and against mimalloc
//                  where it is installed (libmimalloc2.0): both account for nothing, notice no
//                  double free, and keep their books in memory that the program can write
//   warm blocks    aclrtMalloc of the size that was just freed: what a program does that allocates
//                  and frees in turn. It comes out of the reserve, with no call to anybody.
//   cold blocks    sizes in turn, more of them than the reserve holds, so that each is a new file:
//                  minted by the broker, mapped, committed, given back
//
// The floor of a block, warm or cold, is the life of a memfd of that size: create, map, populate,
// unmap, close. Nobody decides and nobody counts there.
//
// Run: make bench, or build/release/bin/allocation_bench

#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "acl/acl.h"
#include "bench/harness.h"

#include <dlfcn.h>

namespace {

using hufu::bench::give_up;
using hufu::bench::keep;

void raw_block(std::size_t size) {
  const int memory = ::memfd_create("floor", MFD_CLOEXEC);
  if (memory < 0 || ::ftruncate(memory, static_cast<off_t>(size)) != 0) give_up("memfd");
  void* pages = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, memory, 0);
  if (pages == MAP_FAILED) give_up("mmap");
  keep(pages);
  ::munmap(pages, size);
  ::close(memory);
}

void device_block(std::size_t size) {
  void* memory = nullptr;
  if (aclrtMalloc(&memory, size, ACL_MEM_MALLOC_NORMAL_ONLY) != ACL_SUCCESS) give_up("aclrtMalloc");
  keep(memory);
  if (aclrtFree(memory) != ACL_SUCCESS) give_up("aclrtFree");
}

struct Mimalloc {
  void* (*allocate)(std::size_t) = nullptr;
  void (*free)(void*) = nullptr;

  // Looked for when it is needed, so that nobody needs it to build. Its malloc stays its own.
  static const Mimalloc& get() {
    static const Mimalloc found = [] {
      Mimalloc rival;
      void* library = ::dlopen("libmimalloc.so.2", RTLD_NOW | RTLD_LOCAL);
      if (library == nullptr) library = ::dlopen("libmimalloc.so.2.0", RTLD_NOW | RTLD_LOCAL);
      if (library == nullptr) return rival;
      rival.allocate = reinterpret_cast<void* (*)(std::size_t)>(::dlsym(library, "mi_malloc"));
      rival.free = reinterpret_cast<void (*)(void*)>(::dlsym(library, "mi_free"));
      return rival;
    }();
    return found;
  }
  bool there() const { return allocate != nullptr && free != nullptr; }
};

void small_pieces(hufu::bench::Suite& suite, std::size_t size) {
  const std::string floor = "malloc+free of " + std::to_string(size) + " bytes";
  suite.add(floor, 200'000, [size](std::size_t n) {
    for (std::size_t i = 0; i < n; ++i) {
      void* memory = std::malloc(size);
      keep(memory);
      std::free(memory);
    }
  });
  if (Mimalloc::get().there()) {
    suite.add(
        "mimalloc of " + std::to_string(size) + " bytes", 200'000,
        [size](std::size_t n) {
          const Mimalloc rival = Mimalloc::get();
          for (std::size_t i = 0; i < n; ++i) {
            void* memory = rival.allocate(size);
            keep(memory);
            rival.free(memory);
          }
        },
        floor);
  }
  suite.add(
      "aclrtMalloc+aclrtFree of " + std::to_string(size) + " bytes", 100'000,
      [size](std::size_t n) {
        for (std::size_t i = 0; i < n; ++i)
          device_block(size);
      },
      floor);
}

void warm_blocks(hufu::bench::Suite& suite, std::size_t size) {
  const std::string floor = "memfd life of " + std::to_string(size) + " bytes";
  suite.add(floor, 50, [size](std::size_t n) {
    for (std::size_t i = 0; i < n; ++i)
      raw_block(size);
  });
  suite.add(
      "aclrtMalloc+aclrtFree of " + std::to_string(size) + " bytes", 5'000,
      [size](std::size_t n) {
        for (std::size_t i = 0; i < n; ++i)
          device_block(size);
      },
      floor);
}

// `count` sizes in steps of a page, `first` the smallest. Their sum is above the reserve's 64 MiB,
// and what was freed longest ago leaves the reserve first: so none is there when its turn comes.
void cold_blocks(hufu::bench::Suite& suite, std::size_t first, std::size_t count) {
  constexpr std::size_t kPage = 4096;
  if ((first + count / 2 * kPage) * count < std::size_t{70} << 20) give_up("a size that is cold");
  const std::string range =
      std::to_string(first) + " to " + std::to_string(first + (count - 1) * kPage);
  const auto each = [=](void (*one)(std::size_t)) {
    return [=](std::size_t n) {
      for (std::size_t i = 0; i < n; ++i)
        one(first + i % count * kPage);
    };
  };
  const std::string floor = "memfd life of " + range + " bytes";
  suite.add(floor, count, each(raw_block));
  suite.add("aclrtMalloc+aclrtFree of " + range + " bytes", count, each(device_block), floor);
}

}  // namespace

int main() {
  char directory[] = "/tmp/hufu-bench-XXXXXX";
  if (::mkdtemp(directory) == nullptr) give_up("mkdtemp");
  const std::string base = directory;
  ::setenv("HUFU_BROKER", ("unix:" + base + "/broker.sock").c_str(), 1);
  ::setenv("HUFU_AUDIT_DIR", (base + "/audit").c_str(), 1);
  ::setenv("HUFU_IDLE_MS", "100", 1);

  hufu::bench::pin(0, 0);
  if (aclrtSetDevice(0) != ACL_SUCCESS) give_up("aclrtSetDevice");
  hufu::bench::Suite small("Small pieces");
  small_pieces(small, 64);
  small_pieces(small, 1024);
  small.run();
  hufu::bench::Suite warm("Warm blocks");
  warm_blocks(warm, 4096);
  warm_blocks(warm, 1 << 20);
  warm.run();
  hufu::bench::Suite cold("Cold blocks");
  cold_blocks(cold, 4096, 200);
  cold_blocks(cold, 1 << 20, 80);
  cold.run();
  (void)aclrtResetDevice(0);
  std::filesystem::remove_all(base);
  return 0;
}
