// A client in the common subset of C11 and C++11, built against an installed tree in each of the
// ways clients are. It must run, find the library, and meet one consistent state: what SetDevice
// answers decides what GetDevice answers. 207000 from both is what an unfinished build may say.

#include <acl/acl.h>
#include <stdio.h>

#ifndef ACL_ERROR_RT_FEATURE_NOT_SUPPORT
#error "acl.h brings the error codes"
#endif

int main(void) {
  uint32_t count = 12345;
  aclError code = aclrtGetDeviceCount(&count);
  if (code == ACL_SUCCESS ? count == 12345 || count == 0
                          : code != ACL_ERROR_RT_FEATURE_NOT_SUPPORT || count != 12345) {
    printf("aclrtGetDeviceCount: %d, count %u\n", code, count);
    return 1;
  }

  int32_t device = -7;
  aclError set = aclrtSetDevice(0);
  aclError get = aclrtGetDevice(&device);
  if (set != get || (set == ACL_SUCCESS && device != 0) ||
      (set != ACL_SUCCESS && (set != ACL_ERROR_RT_FEATURE_NOT_SUPPORT || device != -7))) {
    const char* text = aclGetRecentErrMsg();
    printf("SetDevice %d, GetDevice %d, device %d: %s\n", set, get, device, text ? text : "");
    return 1;
  }
  if (set == ACL_SUCCESS) aclrtResetDevice(0);
  printf("count: code %d; set and get: code %d\n", code, set);
  return 0;
}
