#ifndef HUFU_ACL_ACL_DUMP_H_
#define HUFU_ACL_ACL_DUMP_H_

// Dumping the data of failed device programs. Hufu runs none.

#include "acl/acl_base.h"

#ifdef __cplusplus
extern "C" {
#endif

// The contract names these two types without their contents.
typedef int acldumpType;
typedef struct acldumpTensorInfo acldumpTensorInfo;

// Contract appendix A.
ACL_FUNC_VISIBILITY const char* acldumpGetPath(acldumpType dumpType);
ACL_FUNC_VISIBILITY aclError acldumpSaveExceptionInfo(const char* fileName, const char* userTag,
                                                      const acldumpTensorInfo* tensors,
                                                      size_t tensorCount);
ACL_FUNC_VISIBILITY aclError acldumpGetExceptionInfoPath(char* path, size_t maxLen);

#ifdef __cplusplus
}
#endif

#endif  // HUFU_ACL_ACL_DUMP_H_
