// Streams, and what is queued on them besides copies.

#include "acl/acl.h"
#include "capi/deadline.h"
#include "capi/error_code.h"
#include "hufu/hufu.h"
#include "runtime/runtime.h"

using hufu::Errc;
using hufu::fail;
using hufu::Reason;
using hufu::Result;
using hufu::capi::answer;
using hufu::capi::deadline_in;
using hufu::capi::null_argument;
using hufu::runtime::Deadline;
using hufu::runtime::Destroy;
using hufu::runtime::Here;
using hufu::runtime::HostTask;
using hufu::runtime::Stream;
using hufu::runtime::Task;
using hufu::runtime::Where;

namespace {

Result<void> destroy(aclrtStream stream, Destroy how) {
  if (stream == nullptr) return null_argument("stream");
  const auto here = Here::get();
  if (!here) return here.error();
  return here->runtime->destroy_stream(stream, here->context, how);
}

Result<void> synchronize(aclrtStream stream, Deadline deadline) {
  const auto here = Here::get();
  if (!here) return here.error();
  return here->runtime->synchronize(stream, here->context, deadline);
}

}  // namespace

aclError aclrtCreateStream(aclrtStream* stream) {
  return answer([&]() -> Result<void> {
    if (stream == nullptr) return null_argument("stream");
    const auto here = Here::get();
    if (!here) return here.error();
    const auto made = here->runtime->streams().create(here->context);
    if (!made) return made.error();
    *stream = *made;
    return {};
  });
}

aclError aclrtDestroyStream(aclrtStream stream) {
  return answer([&] { return destroy(stream, Destroy::kAfterItsWork); });
}

aclError aclrtDestroyStreamForce(aclrtStream stream) {
  return answer([&] { return destroy(stream, Destroy::kByForce); });
}

aclError aclrtSynchronizeStream(aclrtStream stream) {
  return answer([&] { return synchronize(stream, {}); });
}

aclError aclrtSynchronizeStreamWithTimeout(aclrtStream stream, int32_t timeout) {
  return answer([&]() -> Result<void> {
    const auto deadline = deadline_in(timeout);
    if (!deadline) return deadline.error();
    return synchronize(stream, *deadline);
  });
}

aclError aclrtStreamQuery(aclrtStream stream, aclrtStreamStatus* status) {
  return answer([&]() -> Result<void> {
    if (status == nullptr) return null_argument("status");
    const auto here = Here::get();
    if (!here) return here.error();
    const auto idle = here->runtime->streams().idle(stream, here->context);
    if (!idle) return idle.error();
    *status = *idle ? ACL_STREAM_STATUS_COMPLETE : ACL_STREAM_STATUS_NOT_READY;
    return {};
  });
}

aclError aclrtCtxGetCurrentDefaultStream(aclrtStream* stream) {
  return answer([&]() -> Result<void> {
    if (stream == nullptr) return null_argument("stream");
    const auto here = Here::get();
    if (!here) return here.error();
    const auto standard = here->runtime->streams().default_of(here->context);
    if (!standard) return standard.error();
    *stream = *standard;
    return {};
  });
}

aclError hufuLaunchHostTask(aclrtStream stream, hufuHostTask fn, void* arg) {
  return answer([&]() -> Result<void> {
    if (fn == nullptr) {  // 107000, as aclrtLaunchHostFunc has it.
      return fail(Errc::kInvalidValue, Reason::kNone, "fn is null; pass a function");
    }
    const auto here = Here::get();
    if (!here) return here.error();
    return here->runtime->streams().issue(
        stream, here->context, Where::kQueued,
        [&](Stream&) -> Result<Task> { return Task(HostTask{.run = fn, .argument = arg}); });
  });
}
