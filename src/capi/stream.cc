// Streams: so far only those that run what they are given at once.

#include "acl/acl.h"
#include "capi/error_code.h"
#include "runtime/runtime.h"

using hufu::Errc;
using hufu::fail;
using hufu::Reason;
using hufu::Result;
using hufu::capi::answer;
using hufu::capi::null_argument;
using hufu::runtime::Here;

namespace {

Result<void> destroy(aclrtStream stream) {
  if (stream == nullptr) return null_argument("stream");
  const auto here = Here::get();
  if (!here) return here.error();
  return here->runtime->streams().destroy(stream, here->context);
}

// What was issued has run: to have a usable stream is to be in step with it.
Result<void> synchronize(aclrtStream stream) {
  const auto here = Here::get();
  if (!here) return here.error();
  return here->runtime->streams().check(stream, here->context);
}

}  // namespace

aclError aclrtCreateStream(aclrtStream* stream) {
  return answer([&]() -> Result<void> {
    if (stream == nullptr) return null_argument("stream");
    const auto here = Here::get();
    if (!here) return here.error();
    *stream = here->runtime->streams().create(here->context);
    return {};
  });
}

aclError aclrtDestroyStream(aclrtStream stream) {
  return answer([&] { return destroy(stream); });
}

aclError aclrtDestroyStreamForce(aclrtStream stream) {
  return answer([&] { return destroy(stream); });
}

aclError aclrtSynchronizeStream(aclrtStream stream) {
  return answer([&] { return synchronize(stream); });
}

aclError aclrtSynchronizeStreamWithTimeout(aclrtStream stream, int32_t timeout) {
  return answer([&]() -> Result<void> {
    if (timeout < -1 || timeout == 0) {
      return fail(Errc::kInvalidValue, Reason::kNone,
                  "timeout is {}; pass -1 for ever, or milliseconds above 0", timeout);
    }
    return synchronize(stream);
  });
}

aclError aclrtCtxGetCurrentDefaultStream(aclrtStream* stream) {
  return answer([&]() -> Result<void> {
    if (stream == nullptr) return null_argument("stream");
    const auto here = Here::get();
    if (!here) return here.error();
    *stream = here->runtime->streams().default_of(here->context);
    return {};
  });
}
