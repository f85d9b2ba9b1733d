// Initialising, finalising, versions. Nothing else needs aclInit; it counts, and reads the
// configuration for a default device.

#include <cstdint>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>

#include "acl/acl.h"
#include "capi/error_code.h"
#include "runtime/device_choice.h"
#include "runtime/runtime.h"

#include <nlohmann/json.hpp>

using hufu::Result;
using hufu::capi::answer;
using hufu::capi::null_argument;
using hufu::capi::report;
using hufu::runtime::chosen_device_model;
using hufu::runtime::init_state;
using hufu::runtime::Runtime;

namespace {

constexpr std::string_view kWrongFile = "EH0004";
constexpr std::string_view kWrongOrder = "EE1018";

std::uint64_t hash_of(std::string_view text) {  // FNV-1a; tells texts apart, guards nothing.
  std::uint64_t hash = 0xcbf29ce484222325U;
  for (const char c : text)
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3U;
  return hash;
}

// {"defaultDevice": {"default_device": "0"}}; -1 when it is not there.
int default_device_of(const nlohmann::json& configuration) {
  const auto section = configuration.find("defaultDevice");
  if (section == configuration.end() || !section->is_object()) return -1;
  const auto device = section->find("default_device");
  if (device == section->end() || !device->is_string()) return -1;
  const auto text = device->get<std::string>();
  if (text.empty() || text.size() > 4) return -1;
  if (text.find_first_not_of("0123456789") != std::string::npos) return -1;
  return std::stoi(text);
}

aclError release_everything() {
  if (Runtime* runtime = Runtime::get_if_any()) runtime->reset_all_devices();
  return ACL_SUCCESS;
}

aclError already_finalised(const char* function) {
  return report(ACL_ERROR_REPEAT_FINALIZE, kWrongOrder,
                "the process is not initialised, or finalised already; call aclInit first",
                function);
}

}  // namespace

aclError aclInit(const char* configPath) {
  // A wish that cannot be meant is said here, where programs look first.
  if (const auto& model = chosen_device_model(); !model) {
    return answer([&]() -> Result<void> { return model.error(); });
  }
  std::string text;
  if (configPath != nullptr && configPath[0] != '\0') {
    std::ifstream file(configPath);
    if (!file) {
      return report(ACL_ERROR_INVALID_FILE, kWrongFile,
                    "configPath names a file that cannot be read; pass a readable JSON file, or "
                    "null for none");
    }
    text.assign(std::istreambuf_iterator<char>(file), {});
  }
  int device = -1;
  if (text.find_first_not_of(" \t\r\n") != std::string::npos) {
    const auto configuration = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
    if (!configuration.is_object()) {
      return report(ACL_ERROR_PARSE_FILE, kWrongFile,
                    "configPath names a file that is not a JSON object");
    }
    device = default_device_of(configuration);
  }

  auto& state = init_state();
  const bool again = state.references.load() != 0;
  if (again && state.configuration.load() != hash_of(text)) {
    return report(ACL_ERROR_INVALID_PARAM, kWrongFile,
                  "configPath has other contents than at the first aclInit; finalise first");
  }
  state.configuration = hash_of(text);
  if (state.references.fetch_add(1) != 0) {
    return report(ACL_ERROR_REPEAT_INITIALIZE, kWrongOrder,
                  "the process is initialised already; it counts, and needs one "
                  "aclFinalizeReference more");
  }
  if (device < 0) return ACL_SUCCESS;
  return answer([&]() -> Result<void> {
    const auto runtime = Runtime::get();
    if (!runtime) return runtime.error();
    return (*runtime)->contexts().set_default_device(device);
  });
}

aclError aclFinalize(void) {
  if (init_state().references.exchange(0) == 0) return already_finalised(__func__);
  return release_everything();
}

aclError aclFinalizeReference(uint64_t* refCount) {
  auto& references = init_state().references;
  std::uint64_t count = references.load();
  do {
    if (count == 0) return already_finalised(__func__);
  } while (!references.compare_exchange_weak(count, count - 1));
  if (refCount != nullptr) *refCount = count - 1;
  return count == 1 ? release_everything() : ACL_SUCCESS;
}

aclError aclrtGetVersion(int32_t* majorVersion, int32_t* minorVersion, int32_t* patchVersion) {
  return answer([&]() -> Result<void> {
    if (majorVersion == nullptr) return null_argument("majorVersion");
    if (minorVersion == nullptr) return null_argument("minorVersion");
    if (patchVersion == nullptr) return null_argument("patchVersion");
    *majorVersion = ACL_MAJOR_VERSION;
    *minorVersion = ACL_MINOR_VERSION;
    *patchVersion = ACL_PATCH_VERSION;
    return {};
  });
}

// Clients choose their paths by this name; it is that of the generation whose rules Hufu follows.
const char* aclrtGetSocName(void) {
  const auto& model = chosen_device_model();
  return model ? model->profile->soc_name : nullptr;
}

aclError aclrtGetRunMode(aclrtRunMode* runMode) {
  return answer([&]() -> Result<void> {
    if (runMode == nullptr) return null_argument("runMode");
    *runMode = ACL_HOST;
    return {};
  });
}

size_t aclDataTypeSize(aclDataType dataType) {
  switch (dataType) {
    case ACL_DT_UNDEFINED:
    case ACL_STRING:
      return 0;
    case ACL_UINT1:
    case ACL_INT4:
    case ACL_BOOL:
    case ACL_INT8:
    case ACL_UINT8:
    case ACL_HIFLOAT8:
    case ACL_FLOAT8_E5M2:
    case ACL_FLOAT8_E4M3FN:
    case ACL_FLOAT8_E8M0:
      return 1;
    case ACL_FLOAT16:
    case ACL_INT16:
    case ACL_UINT16:
    case ACL_BF16:
      return 2;
    case ACL_FLOAT:
    case ACL_INT32:
    case ACL_UINT32:
    case ACL_COMPLEX32:
      return 4;
    case ACL_COMPLEX128:
      return 16;
    case ACL_INT64:
    case ACL_UINT64:
    case ACL_DOUBLE:
    case ACL_COMPLEX64:
    case ACL_FLOAT6_E3M2:  // CANN answers 8 for the sub-byte floats, and so do we.
    case ACL_FLOAT6_E2M3:
    case ACL_FLOAT4_E2M1:
    case ACL_FLOAT4_E1M2:
      return 8;
  }
  return 8;
}
