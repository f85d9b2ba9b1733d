#pragma once

// What each thread remembers of its errors: the texts that nobody has read yet, and the last code.
//
// Made with a thread's first error and freed with the thread; a destructor that runs after that and
// makes an error of its own gets a new one. It allocates nothing but itself and keeps the oldest
// texts when it is full: they are nearest to the cause.

#include <string_view>

#include "acl/acl_base.h"

namespace hufu::capi {

// Codes of the 100000 family are the caller's own mistakes and are not a last error.
void remember(aclError code, std::string_view id, const char* function, std::string_view text);

// The texts since the last call, null if there are none. Valid until the thread's next call.
const char* take_recent_text();

enum class LastError : bool { kPeek, kClear };
aclError last_error(LastError what);

// Keeps a text for the thread until the next keep_text() or take_recent_text().
const char* keep_text(std::string_view text);

}  // namespace hufu::capi
