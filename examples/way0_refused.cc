// What does not work, and what the library says about it. 1024 bytes are cut from a page that also
// holds other allocations; exporting the page would export those too, so it is refused.

#include <cstdio>

#include "acl/acl_rt_api.h"
#include "check.h"

int main() {
  CHECK(aclrtSetDevice(0));
  void* memory = nullptr;
  CHECK(aclrtMalloc(&memory, 1024));
  char key[65];
  const aclError code = aclrtIpcMemGetExportKey(memory, 1024, key, sizeof key,
                                                ACL_RT_IPC_MEM_EXPORT_FLAG_DISABLE_PID_VALIDATION);
  const char* text = aclGetRecentErrMsg();
  std::printf("exporting 1024 bytes: %d: %s\n", code, text == nullptr ? "no text" : text);
  CHECK(aclrtFree(memory));
  return code != ACL_SUCCESS && text != nullptr ? 0 : 1;
}
