#include "base/device_model.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <string>

namespace hufu {
namespace {

constexpr std::array kAbilities = {
    AbilityRow{Ability::kExbus, "exbus", "way to import memory by its key",
               "aclrtIpcMemImportByKey, hufuIpcMemImportBatch", Errc::kRefused},
    AbilityRow{Ability::kP2p, "p2p", "access to other devices' memory",
               "aclrtMemP2PMap, aclrtIpcMemImportByKey with flag 1", Errc::kNotSupported},
    AbilityRow{Ability::kVmm, "vmm", "virtual memory management",
               "aclrtReserveMemAddress, aclrtMallocPhysical, aclrtMapMem and all that go with them",
               Errc::kNotSupported},
    AbilityRow{Ability::kPool, "pool", "stream-ordered memory pools", "aclrtMemPool*",
               Errc::kNotSupported},
    AbilityRow{Ability::kManaged, "uvm", "memory of host and devices alike",
               "aclrtMemAllocManaged, aclrtMemManaged*", Errc::kNotSupported},
    AbilityRow{Ability::kHostReg, "hostreg", "access to memory that the program made",
               "aclrtHostRegister, aclrtHostRegisterV2, aclrtHostMemMapCapabilities",
               Errc::kNotSupported},
    AbilityRow{Ability::kGiantPages, "1g", "pages of 1 GiB",
               "ACL_MEM_MALLOC_HUGE1G_ONLY and HUGE1G physical memory", Errc::kNotSupported},
    AbilityRow{Ability::kGiantP2p, "1g_p2p", "pages of 1 GiB for other devices",
               "ACL_MEM_MALLOC_HUGE1G_ONLY_P2P", Errc::kNotSupported},
    AbilityRow{Ability::kFabric, "fabric", "fabric handles",
               "aclrtMemExportToShareableHandleV2 of type ACL_MEM_SHARE_HANDLE_TYPE_FABRIC",
               Errc::kNotSupported},
    AbilityRow{Ability::kSuperPod, "superpod", "super-pod", "aclrtIpcMemImportPidInterServer",
               Errc::kNotSupported},
    AbilityRow{Ability::kNoUcRanges, "nouc", "address ranges without uncached memory",
               "aclrtReserveMemAddressNoUCMemory", Errc::kNotSupported},
};
static_assert([] {
  for (std::size_t i = 0; i < kAbilities.size(); ++i) {
    if (kAbilities[i].ability != static_cast<Ability>(i)) return false;
  }
  return true;
}());

constexpr std::array kNoSuperPod = {Ability::kSuperPod, Ability::kGiantP2p};
constexpr std::array kNoGiantPages = {Ability::kSuperPod, Ability::kGiantPages, Ability::kGiantP2p};

constexpr std::array kProfiles = {
    Profile{"A2", "Ascend910B3", 32, 1 * kMiB, kNoSuperPod},
    Profile{"A3", "Ascend910_9391", 32, 1 * kMiB, {}},
    Profile{"950", "Ascend950PR_9579", 0, 1 * kMiB, kNoGiantPages},
    Profile{"310P", "Ascend310P3", 32, 1 * kMiB, kNoGiantPages},
};

template <class Rows>
std::string names_of(const Rows& rows, std::string_view before) {
  std::string names;
  for (const auto& row : rows) {
    if (!names.empty()) names += ", ";
    names += before;
    names += row.name;
  }
  return names;
}

}  // namespace

std::span<const AbilityRow> abilities() { return kAbilities; }
std::span<const Profile> profiles() { return kProfiles; }
const AbilityRow& row_of(Ability ability) { return kAbilities[static_cast<std::size_t>(ability)]; }

Abilities Abilities::all() { return Abilities((std::uint32_t{1} << kAbilities.size()) - 1); }

Result<DeviceModel> parse_device_model(std::string_view profile, std::string_view sim_caps) {
  const auto* chosen =
      profile.empty() ? kProfiles.begin() : std::ranges::find(kProfiles, profile, &Profile::name);
  if (chosen == kProfiles.end()) {
    return fail(Errc::kInvalidValue, Reason::kNone, "HUFU_PROFILE={:.40}: write one of {}", profile,
                names_of(kProfiles, ""));
  }
  DeviceModel model{.profile = chosen, .has = Abilities::all(), .taken_away = {}};
  for (const Ability ability : chosen->lacks)
    model.has = model.has.without(ability);
  while (!sim_caps.empty()) {
    const auto comma = std::min(sim_caps.find(','), sim_caps.size());
    const std::string_view word = sim_caps.substr(0, comma);
    sim_caps.remove_prefix(std::min(comma + 1, sim_caps.size()));
    const auto* row = word.starts_with("no_")
                          ? std::ranges::find(kAbilities, word.substr(3), &AbilityRow::name)
                          : kAbilities.end();
    if (row == kAbilities.end()) {
      return fail(Errc::kInvalidValue, Reason::kNone,
                  "HUFU_SIM_CAPS: '{:.40}' is none of {}; write some of them with commas between, "
                  "without spaces",
                  word, names_of(kAbilities, "no_"));
    }
    model.has = model.has.without(row->ability);
    model.taken_away = model.taken_away.with(row->ability);
  }
  return model;
}

Error fail_without(Ability ability, const DeviceModel& model) {
  const AbilityRow& row = row_of(ability);
  if (model.taken_away.has(ability)) {
    return fail(row.code, Reason::kNone,
                "this device has no {}: HUFU_SIM_CAPS=no_{} pretends so; take the way for devices "
                "without it, or unset HUFU_SIM_CAPS",
                row.what, row.name);
  }
  return fail(row.code, Reason::kNone,
              "this device has no {}: HUFU_PROFILE={} is one without; take another way, or another "
              "profile",
              row.what, model.profile->name);
}

}  // namespace hufu
