#include "capi/ability.h"

#include "runtime/device_choice.h"

namespace hufu::capi {

Result<void> require(Ability ability) {
  const auto& model = runtime::chosen_device_model();
  if (!model) return model.error();
  if (model->has.has(ability)) return {};
  return fail_without(ability, *model);
}

}  // namespace hufu::capi
