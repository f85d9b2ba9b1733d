// Errors: what the calling thread remembers of them.

#include "acl/acl.h"
#include "capi/error_code.h"
#include "capi/recent_error.h"

using hufu::Errc;
using hufu::fail;
using hufu::Reason;
using hufu::Result;
using hufu::capi::answer;
using hufu::capi::LastError;

namespace {

Result<void> check(aclrtLastErrLevel level) {
  if (level == ACL_RT_THREAD_LEVEL) return {};
  return fail(Errc::kInvalidArgument, Reason::kNone, "level is {}; pass ACL_RT_THREAD_LEVEL (0)",
              static_cast<int>(level));
}

}  // namespace

const char* aclGetRecentErrMsg(void) { return hufu::capi::take_recent_text(); }

aclError aclrtGetLastError(aclrtLastErrLevel level) {
  if (level != ACL_RT_THREAD_LEVEL) return answer([&] { return check(level); });
  return hufu::capi::last_error(LastError::kClear);
}

aclError aclrtPeekAtLastError(aclrtLastErrLevel level) {
  if (level != ACL_RT_THREAD_LEVEL) return answer([&] { return check(level); });
  return hufu::capi::last_error(LastError::kPeek);
}
