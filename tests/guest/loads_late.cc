// A program that loads the library when it needs it, lets go of it and loads it again, as plugins
// are: what it had stays valid. Its second argument, if any, is another copy of the library, which
// it loads too; then the copies are told apart.

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "hufu/hufu.h"

#include <dlfcn.h>

namespace {

[[noreturn]] void give_up(const char* what) {
  std::fprintf(stderr, "%s: %s\n", what, dlerror());
  std::exit(1);
}

template <class Function>
Function* find(void* library, const char* name) {
  void* found = dlsym(library, name);
  if (found == nullptr) give_up(name);
  return reinterpret_cast<Function*>(found);
}

void* load(const char* path) {
  void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) give_up(path);
  return library;
}

}  // namespace

int main(int count, char** arguments) {
  void* library = load(arguments[1]);
  const auto code_of = [](const char* what, aclError code) {
    if (code == ACL_SUCCESS) return;
    std::fprintf(stderr, "%s: %d\n", what, code);
    std::exit(1);
  };
  void* memory = nullptr;
  aclrtStream stream = nullptr;
  code_of("set", find<decltype(aclrtSetDevice)>(library, "aclrtSetDevice")(0));
  code_of("malloc", find<decltype(aclrtMalloc)>(library, "aclrtMalloc")(&memory, 1 << 20,
                                                                        ACL_MEM_MALLOC_HUGE_FIRST));
  code_of("stream", find<decltype(aclrtCreateStream)>(library, "aclrtCreateStream")(&stream));
  code_of("set async", find<decltype(aclrtMemsetAsync)>(library, "aclrtMemsetAsync")(
                           memory, 1 << 20, 7, 1 << 20, stream));
  for (int i = 0; i < 10; ++i) {
    dlclose(library);
    library = load(arguments[1]);
  }
  code_of("synchronize",
          find<decltype(aclrtSynchronizeStream)>(library, "aclrtSynchronizeStream")(stream));
  if (static_cast<char*>(memory)[(1 << 20) - 1] != 7) return 2;

  if (count > 2) {
    void* copy = load(arguments[2]);
    if (find<decltype(aclrtSetDevice)>(copy, "aclrtSetDevice")(0) == ACL_SUCCESS) return 3;
    const std::string text = find<decltype(aclGetRecentErrMsg)>(copy, "aclGetRecentErrMsg")();
    for (const char* path : {arguments[1], arguments[2]}) {
      if (text.find(path) == std::string::npos) {
        std::fprintf(stderr, "%s is not in: %s\n", path, text.c_str());
        return 4;
      }
    }
  }
  code_of("free", find<decltype(aclrtFree)>(library, "aclrtFree")(memory));
  dlclose(library);
  return 0;
}
