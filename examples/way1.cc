// Way 1: allocate a page or more. Such a block starts on a page of its own and can be exported.

#include <cstdio>

#include "check.h"

int main() {
  CHECK(aclrtSetDevice(0));
  void* memory = nullptr;
  CHECK(aclrtMalloc(&memory, 4096, ACL_MEM_MALLOC_HUGE_FIRST));
  char key[65];
  CHECK(aclrtIpcMemGetExportKey(memory, 4096, key, sizeof key,
                                ACL_RT_IPC_MEM_EXPORT_FLAG_DISABLE_PID_VALIDATION));
  std::printf("way 1: 4096 bytes exported\n");
  CHECK(aclrtIpcMemClose(key));
  CHECK(aclrtFree(memory));
  return 0;
}
