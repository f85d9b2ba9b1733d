#include "capi/error_code.h"

#include <cstdlib>
#include <cstring>

#include "capi/recent_error.h"
#include "hufu/hufu.h"

namespace hufu::capi {
namespace {

bool strict_mode() {
  static const bool strict = [] {
    // NOLINTNEXTLINE(concurrency-mt-unsafe): nothing here changes the environment.
    const char* value = std::getenv("HUFU_STRICT");
    return value != nullptr && std::strcmp(value, "cann") == 0;
  }();
  return strict;
}

// CANN's ids: EH is the acl layer's, EE the runtime's.
std::string_view message_id_of(Errc code) {
  switch (code) {
    case Errc::kInvalidArgument:
      return "EH0001";
    case Errc::kInvalidDevice:
    case Errc::kInvalidMemoryType:
      return "EE1001";
    case Errc::kNotSupported:
      return "EE1005";
    case Errc::kNoContext:
      return "EE1010";
    case Errc::kInvalidValue:
    case Errc::kRefused:
    case Errc::kUnregistered:
      return "EE1011";
    case Errc::kNotPermitted:
      return "EE1016";
    case Errc::kForeignStream:
    case Errc::kInvalidHandle:
      return "EE1017";
    case Errc::kWrongOrder:
    case Errc::kRegistered:
    case Errc::kNotRegistered:
      return "EE1018";
    case Errc::kOutOfMemory:
    case Errc::kTableFull:
    case Errc::kNoStream:
      return "EE1023";
    case Errc::kTimedOut:
      return "EE1002";
    case Errc::kTaskFailed:
      return "EE1019";
    case Errc::kPool:
    case Errc::kUnavailable:
    case Errc::kTimeout:
    case Errc::kSystem:
      return "EE9999";
  }
  return "EE9999";
}

}  // namespace

aclError code_of(Errc code) {
  switch (code) {
    case Errc::kInvalidArgument:
      return ACL_ERROR_INVALID_PARAM;
    case Errc::kInvalidValue:
      return ACL_ERROR_RT_PARAM_INVALID;
    case Errc::kInvalidDevice:
      return ACL_ERROR_RT_INVALID_DEVICEID;
    case Errc::kNoContext:
      return ACL_ERROR_RT_CONTEXT_NULL;
    case Errc::kForeignStream:
      return ACL_ERROR_RT_STREAM_CONTEXT;
    case Errc::kInvalidMemoryType:
      return ACL_ERROR_RT_INVALID_MEMORY_TYPE;
    case Errc::kInvalidHandle:
      return ACL_ERROR_RT_INVALID_HANDLE;
    case Errc::kWrongOrder:
      return ACL_ERROR_RT_CONTEXT_RELEASE_ERROR;
    case Errc::kNotSupported:
      return ACL_ERROR_RT_FEATURE_NOT_SUPPORT;
    case Errc::kOutOfMemory:
      return ACL_ERROR_RT_MEMORY_ALLOCATION;
    case Errc::kTableFull:
      return ACL_ERROR_RT_RESOURCE_ALLOC_FAIL;
    case Errc::kNoStream:
      return ACL_ERROR_RT_NO_STREAM_RESOURCE;
    case Errc::kTimedOut:
      return ACL_ERROR_RT_STREAM_SYNC_TIMEOUT;
    case Errc::kPool:
    case Errc::kTaskFailed:  // Its own code, see below.
      return ACL_ERROR_RT_INTERNAL_ERROR;
    case Errc::kNotPermitted:
      return ACL_ERROR_RT_NO_PERMISSION;
    case Errc::kUnregistered:
      return ACL_ERROR_MEMORY_ADDRESS_UNREGISTERED;
    case Errc::kTimeout:
      return ACL_ERROR_RT_REPORT_TIMEOUT;
    case Errc::kRegistered:
      return ACL_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
    case Errc::kNotRegistered:
      return ACL_ERROR_HOST_MEMORY_NOT_REGISTERED;
    case Errc::kRefused:
    case Errc::kUnavailable:
    case Errc::kSystem:
      return ACL_ERROR_RT_DRV_INTERNAL_ERROR;
  }
  return ACL_ERROR_RT_INTERNAL_ERROR;
}

aclError code_of(const Error& error, StrictCode strict) {
  if (error.code == Errc::kUnregistered && strict_mode()) return strict.code;
  if (error.code == Errc::kTaskFailed) return error.task_code;
  return code_of(error.code);
}

aclError report(const Error& error, StrictCode strict, const char* function) {
  return report(code_of(error, strict), message_id_of(error.code), error.what(), function);
}

aclError report(aclError code, std::string_view id, std::string_view text, const char* function) {
  remember(code, id, function, text);
  return code;
}

Error null_argument(const char* argument) {
  return fail(Errc::kInvalidArgument, Reason::kNone, "{} is null; pass the address of an object",
              argument);
}

}  // namespace hufu::capi
