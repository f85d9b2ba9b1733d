// What does device memory cost, against the kernel and against a good malloc?
//
//   small pieces   aclrtMalloc(64) and (1024) against malloc of the same size
//   blocks         aclrtMalloc(1 MiB) against the life of a memfd of that size (create, map,
//                  populate, unmap, close)
//
// Run: make bench, or build/release/bin/allocation_bench

#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "acl/acl.h"
#include "bench/harness.h"

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

void small_pieces(hufu::bench::Suite& suite, std::size_t size) {
  const std::string floor = "malloc+free of " + std::to_string(size) + " bytes";
  suite.add(floor, 200'000, [size](std::size_t n) {
    for (std::size_t i = 0; i < n; ++i) {
      void* memory = std::malloc(size);
      keep(memory);
      std::free(memory);
    }
  });
  suite.add(
      "aclrtMalloc+aclrtFree of " + std::to_string(size) + " bytes", 100'000,
      [size](std::size_t n) {
        for (std::size_t i = 0; i < n; ++i)
          device_block(size);
      },
      floor);
}

void blocks(hufu::bench::Suite& suite, std::size_t size) {
  const std::string floor = "memfd life of " + std::to_string(size) + " bytes";
  suite.add(floor, 50, [size](std::size_t n) {
    for (std::size_t i = 0; i < n; ++i)
      raw_block(size);
  });
  suite.add(
      "aclrtMalloc+aclrtFree of " + std::to_string(size) + " bytes", 50,
      [size](std::size_t n) {
        for (std::size_t i = 0; i < n; ++i)
          device_block(size);
      },
      floor);
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
  hufu::bench::Suite large("Blocks");
  blocks(large, 4096);
  blocks(large, 1 << 20);
  large.run();
  (void)aclrtResetDevice(0);
  std::filesystem::remove_all(base);
  return 0;
}
