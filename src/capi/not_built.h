#pragma once

// What a declared function that this build does not have does before it answers 207000: it leaves
// a text for aclGetRecentErrMsg, so that the caller learns which function it was. The stubs that
// call this are generated (tools/generate_abi.py).

namespace hufu::capi {

void report_not_built(const char* function);

}  // namespace hufu::capi
