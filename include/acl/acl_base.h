#ifndef HUFU_ACL_ACL_BASE_H_
#define HUFU_ACL_ACL_BASE_H_

// Base types and all error codes in one include.

#include "acl/acl_base_mdl.h"
#include "acl/acl_base_rt.h"
#include "error_codes/ge_error_codes.h"
#include "error_codes/rt_error_codes.h"

#endif  // HUFU_ACL_ACL_BASE_H_
