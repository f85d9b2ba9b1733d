#include "capi/not_built.h"

namespace hufu::capi {

// There is no store of error texts yet for this to write to.
void report_not_built(const char* /*function*/) {}

}  // namespace hufu::capi
