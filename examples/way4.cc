// Way 4: look before you export. A block that does not start on a page takes way 3.
//   way4 SIZE

#include <cstdio>
#include <cstdlib>

#include "share_by_mapping.h"

int main(int argc, char** argv) {
  const std::size_t size = argc > 1 ? std::strtoul(argv[1], nullptr, 10) : 4096;
  CHECK(aclrtSetDevice(0));
  void* memory = nullptr;
  CHECK(aclrtMalloc(&memory, size, ACL_MEM_MALLOC_HUGE_FIRST));
  if (reinterpret_cast<std::uintptr_t>(memory) % 4096 != 0) {
    std::printf("way 4: %p does not start a page; taking way 3\n", memory);
    CHECK(aclrtFree(memory));
    share_by_mapping(size);
    return 0;
  }
  char key[65];
  CHECK(aclrtIpcMemGetExportKey(memory, size, key, sizeof key,
                                ACL_RT_IPC_MEM_EXPORT_FLAG_DISABLE_PID_VALIDATION));
  std::printf("way 4: %zu bytes exported\n", size);
  CHECK(aclrtIpcMemClose(key));
  CHECK(aclrtFree(memory));
  return 0;
}
