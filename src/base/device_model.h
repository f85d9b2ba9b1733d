#pragma once

// What kind of device a process has: the rules that differ between generations, and the abilities
// that one device has and another lacks.
//
// Two tables, each in device_model.cc: the profiles (HUFU_PROFILE chooses one) and the abilities
// (HUFU_SIM_CAPS takes some away, so that a program's way around a missing one can be tested where
// nothing is missing). An ability is looked at in one place, the C API's door (capi/ability.h); a
// rule where it applies (memory/size_rules.h). This pair only knows and parses them.

#include <cstdint>
#include <span>
#include <string_view>

#include "base/result.h"
#include "base/units.h"

namespace hufu {

// In the order of abilities().
enum class Ability : std::uint8_t {
  kExbus,       // Importing memory by its key.
  kP2p,         // Devices that reach each other's memory.
  kVmm,         // Address ranges and physical memory apart.
  kPool,        // Stream-ordered pools.
  kManaged,     // Memory of host and devices alike.
  kHostReg,     // The program's own memory for the device.
  kGiantPages,  // Pages of 1 GiB.
  kGiantP2p,    // The same for other devices.
  kFabric,      // Shareable handles of 128 bytes.
  kSuperPod,    // Whitelists that name processes of other servers.
  kNoUcRanges,  // Address ranges whose memory is never uncached.
};

struct AbilityRow {
  Ability ability;
  std::string_view name;   // In HUFU_SIM_CAPS, after "no_".
  std::string_view what;   // Finishes "the device has no ...".
  std::string_view calls;  // That look at it.
  Errc code;               // What they answer without it.
};
std::span<const AbilityRow> abilities();

class Abilities {
 public:
  constexpr Abilities() = default;
  static Abilities all();
  constexpr bool has(Ability ability) const { return (bits_ & bit(ability)) != 0; }
  [[nodiscard]] constexpr Abilities with(Ability ability) const {
    return Abilities(bits_ | bit(ability));
  }
  [[nodiscard]] constexpr Abilities without(Ability ability) const {
    return Abilities(bits_ & ~bit(ability));
  }

  bool operator==(const Abilities&) const = default;

 private:
  explicit constexpr Abilities(std::uint32_t bits) : bits_(bits) {}
  static constexpr std::uint32_t bit(Ability ability) {
    return std::uint32_t{1} << static_cast<unsigned>(ability);
  }

  std::uint32_t bits_ = 0;
};

// What a generation of devices does its own way.
struct Profile {
  std::string_view name;
  const char* soc_name;            // aclrtGetSocName's answer.
  std::uint64_t over_read;         // Bytes that aclrtMalloc adds behind the end.
  std::uint64_t huge_above;        // HUGE_FIRST takes huge pages for more than this, padded.
  std::span<const Ability> lacks;  // Whatever HUFU_SIM_CAPS says.
};
std::span<const Profile> profiles();  // The first one is the default.

struct DeviceModel {
  const Profile* profile = nullptr;
  Abilities has;
  Abilities taken_away;  // By HUFU_SIM_CAPS.
};

// From the values of HUFU_PROFILE and HUFU_SIM_CAPS (empty: unset). A name that is not in the table
// is an error that lists those that are.
Result<DeviceModel> parse_device_model(std::string_view profile, std::string_view sim_caps);

const AbilityRow& row_of(Ability ability);

// The error of a call that needs what the device lacks.
Error fail_without(Ability ability, const DeviceModel& model);

}  // namespace hufu
