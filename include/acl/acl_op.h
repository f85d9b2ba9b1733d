#ifndef HUFU_ACL_ACL_OP_H_
#define HUFU_ACL_ACL_OP_H_

// Operators. Hufu runs none.

#include "acl/acl_base.h"

#ifdef __cplusplus
extern "C" {
#endif

// Dumping the arguments of operators. Contract appendix A.
ACL_FUNC_VISIBILITY aclError aclopStartDumpArgs(uint32_t dumpType, const char* path);
ACL_FUNC_VISIBILITY aclError aclopStopDumpArgs(uint32_t dumpType);

#ifdef __cplusplus
}
#endif

#endif  // HUFU_ACL_ACL_OP_H_
