#ifndef HUFU_EXAMPLES_CHECK_H_
#define HUFU_EXAMPLES_CHECK_H_

// What every example does with an error: print the code and the library's text for it, and end.

#include "acl/acl.h"

#include <stdio.h>
#include <stdlib.h>

#define CHECK(call)                                                                     \
  do {                                                                                  \
    const aclError check_code = (call);                                                 \
    if (check_code != ACL_SUCCESS) {                                                    \
      const char* check_text = aclGetRecentErrMsg();                                    \
      printf("%s: %d: %s\n", #call, check_code, check_text == NULL ? "?" : check_text); \
      exit(1);                                                                          \
    }                                                                                   \
  } while (0)

#endif  // HUFU_EXAMPLES_CHECK_H_
