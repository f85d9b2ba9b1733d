#ifndef HUFU_ACL_ACL_PLATFORM_H_
#define HUFU_ACL_ACL_PLATFORM_H_

// Platform queries of device compilers: the header exists because clients include it.

#include "acl/acl_base.h"

#endif  // HUFU_ACL_ACL_PLATFORM_H_
