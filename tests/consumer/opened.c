// usage: opened FILE...
//
// A program that was not linked with anything opens each library by its path, RTLD_LOCAL, finds the
// plain names, calls them, and closes it again; the code must survive the close (-z nodelete).

#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>

int main(int argc, char** argv) {
  typedef int (*GetCount)(uint32_t*);
  GetCount first = NULL;
  for (int i = 1; i < argc; ++i) {
    void* library = dlopen(argv[i], RTLD_NOW | RTLD_LOCAL);
    GetCount get_count = library ? (GetCount)dlsym(library, "aclrtGetDeviceCount") : NULL;
    if (!get_count) {
      printf("%s: %s\n", argv[i], dlerror());
      return 1;
    }
    if (first && get_count != first) {
      printf("%s brings another copy\n", argv[i]);
      return 1;
    }
    first = get_count;
    if (dlsym(RTLD_DEFAULT, "aclrtGetDeviceCount")) {
      printf("%s leaked its names into the global scope\n", argv[i]);
      return 1;
    }
    uint32_t count = 0;
    const int before = get_count(&count);
    dlclose(library);
    if (get_count(&count) != before) return 1;
    printf("%s answers %d\n", argv[i], before);
  }
  return first == NULL;
}
