#pragma once

// The door at which a missing ability of the device is noticed (base/device_model.h), and the only
// one: what lies below does not know what a device lacks.

#include "base/device_model.h"
#include "base/result.h"

namespace hufu::capi {

// A function that needs an ability asks for it after its own arguments' null checks, which CANN's
// acl layer makes first:
//
//   if (auto able = require(Ability::kVmm); !able) return able;
Result<void> require(Ability ability);

}  // namespace hufu::capi
