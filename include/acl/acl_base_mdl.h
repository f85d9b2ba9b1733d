#ifndef HUFU_ACL_ACL_BASE_MDL_H_
#define HUFU_ACL_ACL_BASE_MDL_H_

// Base types of models. Hufu runs none: the header exists because acl_base.h includes it.

#include "acl/acl_base_rt.h"

#endif  // HUFU_ACL_ACL_BASE_MDL_H_
