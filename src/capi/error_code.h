#pragma once

// The one place where an Error becomes what a C caller sees: a code, a text with CANN's message id
// for aclGetRecentErrMsg, and the thread's last error.
//
// A public function is one call of answer(), whose body returns a Result and writes its outputs
// only when it succeeds. Nothing is thrown out of it.

#include <new>
#include <string_view>

#include "acl/acl_base.h"
#include "base/result.h"

namespace hufu::capi {

// The code for each, whatever the call.
aclError code_of(Errc code);

// What an unregistered address gets in this call when HUFU_STRICT=cann restores the contract's
// code.
struct StrictCode {
  aclError code = ACL_ERROR_RT_PARAM_INVALID;
};

// The code that `error` has in a call whose contract says `strict`.
aclError code_of(const Error& error, StrictCode strict);

// Records the error for the calling thread and returns its code.
aclError report(const Error& error, StrictCode strict, const char* function);

// For the few codes that no Errc stands for. `id` is CANN's id of the message.
aclError report(aclError code, std::string_view id, std::string_view text,
                const char* function = __builtin_FUNCTION());

// `argument` must not be null.
Error null_argument(const char* argument);

template <class Body>
aclError answer(Body&& body, StrictCode strict = {}, const char* function = __builtin_FUNCTION()) {
  try {
    const Result<void> result = body();
    return result ? ACL_SUCCESS : report(result.error(), strict, function);
  } catch (const std::bad_alloc&) {
    return report(fail(Errc::kOutOfMemory, Reason::kMemory,
                       "the process has no memory for its own books (malloc); free some, or raise "
                       "`ulimit -v` or the limit of map entries, `sysctl vm.max_map_count`"),
                  strict, function);
  }
}

}  // namespace hufu::capi
