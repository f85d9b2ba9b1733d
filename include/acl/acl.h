#ifndef HUFU_ACL_ACL_H_
#define HUFU_ACL_ACL_H_

// The usual include. Not in it, as in CANN: memory pools (acl_rt_memory_soma.h), the C++ overloads
// (acl_rt_api.h), queues and channels (acl_tdt*.h), dump, profiling, and hufu/hufu.h.

#include "acl/acl_mdl.h"
#include "acl/acl_op.h"
#include "acl/acl_rt.h"

#endif  // HUFU_ACL_ACL_H_
