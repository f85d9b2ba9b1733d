// A program that tidies up where programs do: in the destructor of a global, and in an exit handler
// that was registered before the library was ever called. With work queued on what it frees.

#include <cstdlib>

#include "hufu/hufu.h"
#include "program.h"

namespace {

void* of_global = nullptr;
void* of_handler = nullptr;

struct Tidy {
  Tidy() { MUST_BE(of_global == nullptr); }
  ~Tidy() {
    MUST(aclrtFree(of_global));
    MUST_BE(aclFinalize() == ACL_ERROR_REPEAT_FINALIZE);
    std::puts("tidied");
  }
} tidy;

void at_exit() {
  MUST(aclrtSetDevice(0));
  MUST(aclrtFree(of_handler));
  MUST(aclFinalize());
  std::puts("left");
}

int32_t wait_forever(void*) {
  while (true)
    pause();
}

}  // namespace

int main(int, char** arguments) {
  std::atexit(at_exit);
  MUST(aclInit(nullptr));
  MUST(aclrtSetDevice(0));
  MUST(aclrtMalloc(&of_global, 1 << 20, ACL_MEM_MALLOC_HUGE_FIRST));
  MUST(aclrtMalloc(&of_handler, 100, ACL_MEM_MALLOC_HUGE_FIRST));
  if (arguments[1] != nullptr && std::strcmp(arguments[1], "stuck") == 0) {
    MUST(hufuLaunchHostTask(nullptr, wait_forever, nullptr));
  }
  MUST(aclrtMemcpyAsync(of_global, 1 << 20, static_cast<char*>(of_global) + (1 << 19), 1 << 19,
                        ACL_MEMCPY_DEVICE_TO_DEVICE, nullptr));
  return 0;
}
