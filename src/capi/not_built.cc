#include "capi/not_built.h"

#include "capi/error_code.h"

namespace hufu::capi {

void report_not_built(const char* function) {
  report(
      ACL_ERROR_RT_FEATURE_NOT_SUPPORT, "EE1005",
      "this build of Hufu declares the function but does not have it; docs/api_coverage.md lists "
      "what is built",
      function);
}

}  // namespace hufu::capi
