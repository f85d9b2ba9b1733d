#pragma once

// What the guest programs have in common: they say which call failed, with its text, and exit
// with 1.

#include <unistd.h>

#include <cstdio>
#include <cstring>

#include "acl/acl.h"

inline void must(bool good, const char* what, int line) {
  if (good) return;
  const char* text = aclGetRecentErrMsg();
  std::fprintf(stderr, "line %d: %s: %s\n", line, what, text == nullptr ? "" : text);
  std::fflush(stderr);
  _exit(1);  // Also from an exit handler.
}

#define MUST(call) must((call) == ACL_SUCCESS, #call, __LINE__)
#define MUST_BE(condition) must((condition), #condition, __LINE__)
