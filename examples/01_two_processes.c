// Two processes, one memory. The parent makes it and allows one process, the child, to map it; what
// one writes the other reads, and nothing is copied.

#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

#include <string.h>

enum { kSize = 1 << 20, kKeySize = 65 };

static const char kQuestion[] = "the order is given";
static const char kAnswer[] = "the halves fit";

static void must(int good, const char* what) {
  if (good) return;
  perror(what);
  exit(1);
}

static void child(int from_parent, int to_parent) {
  CHECK(aclrtSetDevice(0));
  // The parent lists us by the pid under which the broker knows us.
  int32_t pid = 0;
  CHECK(aclrtDeviceGetBareTgid(&pid));
  must(write(to_parent, &pid, sizeof pid) == sizeof pid, "write");

  char key[kKeySize];
  must(read(from_parent, key, sizeof key) == sizeof key, "read");
  void* memory = NULL;
  CHECK(aclrtIpcMemImportByKey(&memory, key, ACL_RT_IPC_MEM_IMPORT_FLAG_DEFAULT));
  printf("child reads:  %s\n", (const char*)memory);
  must(strcmp(memory, kQuestion) == 0, "compare");
  strcpy(memory, kAnswer);
  CHECK(aclrtIpcMemClose(key));
  exit(0);
}

int main(void) {
  setvbuf(stdout, NULL, _IOLBF, 0);  // Two processes write to it.
  int down[2];
  int up[2];
  must(pipe(down) == 0 && pipe(up) == 0, "pipe");
  // Fork first: a child cannot use what its parent has opened, so neither has opened anything.
  const pid_t forked = fork();
  must(forked >= 0, "fork");
  if (forked == 0) child(down[0], up[1]);
  close(up[1]);  // So that the end of the child is the end of the pipe.

  CHECK(aclrtSetDevice(0));
  void* memory = NULL;
  CHECK(aclrtMalloc(&memory, kSize, ACL_MEM_MALLOC_HUGE_FIRST));
  strcpy(memory, kQuestion);
  char key[kKeySize];
  CHECK(
      aclrtIpcMemGetExportKey(memory, kSize, key, sizeof key, ACL_RT_IPC_MEM_EXPORT_FLAG_DEFAULT));

  int32_t pid = 0;
  must(read(up[0], &pid, sizeof pid) == sizeof pid, "the child has ended");
  CHECK(aclrtIpcMemSetImportPid(key, &pid, 1));
  must(write(down[1], key, sizeof key) == sizeof key, "write");

  int status = 0;
  must(waitpid(forked, &status, 0) == forked, "waitpid");
  must(status == 0, "the child failed");
  printf("parent reads: %s\n", (const char*)memory);
  must(strcmp(memory, kAnswer) == 0, "compare");
  CHECK(aclrtIpcMemClose(key));
  CHECK(aclrtFree(memory));
  CHECK(aclrtResetDevice(0));
  return 0;
}
