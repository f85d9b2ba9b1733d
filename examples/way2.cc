// Way 2: huge pages only, and a multiple of their size. The block starts on a huge page.

#include <cstdint>
#include <cstdio>

#include "check.h"

int main() {
  constexpr std::size_t kHugePage = std::size_t{2} << 20;
  CHECK(aclrtSetDevice(0));
  void* memory = nullptr;
  CHECK(aclrtMalloc(&memory, kHugePage, ACL_MEM_MALLOC_HUGE_ONLY));
  char key[65];
  CHECK(aclrtIpcMemGetExportKey(memory, kHugePage, key, sizeof key,
                                ACL_RT_IPC_MEM_EXPORT_FLAG_DISABLE_PID_VALIDATION));
  const bool aligned = reinterpret_cast<std::uintptr_t>(memory) % kHugePage == 0;
  std::printf("way 2: 2 MiB exported, address %p\n", memory);
  CHECK(aclrtIpcMemClose(key));
  CHECK(aclrtFree(memory));
  return aligned ? 0 : 1;
}
