#pragma once

// A process that loads the library twice, from two files, would have two of everything: sessions,
// registries, devices that do not know each other's memory. Only the copy that was loaded first
// works; each other one says where the first one is.

#include "base/result.h"

namespace hufu::runtime {

// An error in every copy but the first.
Result<void> check_only_copy();

}  // namespace hufu::runtime
