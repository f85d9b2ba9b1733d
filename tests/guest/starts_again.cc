// A program that becomes itself: `starts_again ROUNDS KEY`. Each round forks a child that imports
// the key afresh, and then executes itself, with its own memory allocated and shared and never
// given back: the end of a program is enough.

#include <sys/prctl.h>
#include <sys/wait.h>

#include <csignal>
#include <cstdlib>
#include <string>

#include "program.h"

int main(int, char** arguments) {
  const int rounds = std::atoi(arguments[1]);
  if (rounds == 0) return 0;
  MUST(aclrtSetDevice(0));
  void* mine = nullptr;
  char key[65];
  MUST(aclrtMalloc(&mine, 4 << 20, ACL_MEM_MALLOC_HUGE_FIRST));
  MUST(aclrtIpcMemGetExportKey(mine, 4 << 20, key, sizeof(key), 1));
  void* held = nullptr;
  MUST(aclrtIpcMemImportByKey(&held, arguments[2], 0));
  MUST_BE(*static_cast<char*>(held) == 42);

  const pid_t child = fork();
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    MUST(aclrtSetDevice(0));
    void* imported = nullptr;
    MUST(aclrtIpcMemImportByKey(&imported, arguments[2], 0));
    MUST_BE(*static_cast<char*>(imported) == 42);
    _exit(0);
  }
  int status = -1;
  MUST_BE(waitpid(child, &status, 0) == child && status == 0);

  const std::string left = std::to_string(rounds - 1);
  execl("/proc/self/exe", arguments[0], left.c_str(), arguments[2], nullptr);
  return 1;
}
