#ifndef HUFU_ACL_ACL_PROF_H_
#define HUFU_ACL_ACL_PROF_H_

// Profiling of device programs. Hufu runs none: the header exists because clients include it.

#include "acl/acl_base.h"

#endif  // HUFU_ACL_ACL_PROF_H_
