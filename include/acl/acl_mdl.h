#ifndef HUFU_ACL_ACL_MDL_H_
#define HUFU_ACL_ACL_MDL_H_

// Models. Hufu runs none; the captured-graph functions (aclmdlRI*) are in acl_rt.h.

#include "acl/acl_base.h"
#include "acl/acl_rt.h"

#endif  // HUFU_ACL_ACL_MDL_H_
