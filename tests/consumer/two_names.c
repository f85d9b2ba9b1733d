// usage: two_names LIB64 < names
//
// A process that was linked with libascendcl AND libacl_rt, and opens both again by their full
// paths as plug-ins do, has one copy of the library: every name is the same address through all of
// them, that address lies in libhufu, and what one name does the other sees.

#define _GNU_SOURCE
#include <acl/acl.h>
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

static void* open_in(const char* directory, const char* name) {
  char path[4096];
  snprintf(path, sizeof path, "%s/%s", directory, name);
  void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!library) printf("%s\n", dlerror());
  return library;
}

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  const char* files[] = {"libascendcl.so",        "libacl_rt.so",           "libascendcl.so.1",
                         "libacl_rt.so.1",        "libacl_tdt_queue.so",    "libacl_tdt_channel.so",
                         "libacl_tdt_queue.so.1", "libacl_tdt_channel.so.1"};
  enum { kLibraries = sizeof files / sizeof *files };
  void* libraries[kLibraries];
  for (int i = 0; i < kLibraries; ++i) {
    libraries[i] = open_in(argv[1], files[i]);
    if (!libraries[i]) return 1;
  }

  int names = 0;
  char name[128];
  while (scanf("%127s", name) == 1) {
    ++names;
    void* first = dlsym(libraries[0], name);
    for (int i = 1; i < kLibraries; ++i) {
      if (!first || dlsym(libraries[i], name) != first) {
        printf("%s differs between %s and %s\n", name, files[0], files[i]);
        return 1;
      }
    }
    Dl_info info;
    if (!dladdr(first, &info) || !strstr(info.dli_fname, "/libhufu.so.0")) {
      printf("%s is in %s\n", name, info.dli_fname);
      return 1;
    }
  }
  if (names < 400) {
    printf("only %d names on stdin\n", names);
    return 1;
  }

  aclError (*set)(int32_t) = (aclError(*)(int32_t))dlsym(libraries[0], "aclrtSetDevice");
  aclError (*get)(int32_t*) = (aclError(*)(int32_t*))dlsym(libraries[1], "aclrtGetDevice");
  int32_t through_name = -7, linked = -7;
  aclError set_code = set(0);
  aclError get_code = get(&through_name);
  aclError linked_code = aclrtGetDevice(&linked);
  if (set_code != get_code || set_code != linked_code || through_name != linked ||
      (set_code == ACL_SUCCESS && linked != 0)) {
    printf("set %d; get %d -> %d; linked %d -> %d\n", set_code, get_code, through_name, linked_code,
           linked);
    return 1;
  }
  printf("%d names, one address each; set and get agree on %d\n", names, set_code);
  return 0;
}
