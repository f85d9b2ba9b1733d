#include "runtime/contexts.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <numeric>
#include <system_error>
#include <utility>

namespace hufu::runtime {

[[gnu::tls_model("initial-exec")]] constinit thread_local CurrentContext current_context{};

Contexts::Contexts(int devices, std::vector<int> visible)
    : primary_(static_cast<std::size_t>(devices)), visible_(std::move(visible)) {}

Contexts::Contexts(int devices) : Contexts(devices, parse_visible_devices(nullptr, devices)) {}

Result<int> Contexts::device_of(std::int64_t id, std::string_view argument) const {
  if (id >= 0 && id < visible_devices()) return visible_[static_cast<std::size_t>(id)];
  if (visible_.size() == primary_.size()) {
    return fail(Errc::kInvalidDevice, Reason::kNoDevice,
                "{} is {}, and that device does not exist; there are {}, numbered from 0 "
                "(HUFU_DEVICES)",
                argument, id, primary_.size());
  }
  return fail(Errc::kInvalidDevice, Reason::kNoDevice,
              "{} is {}, but of {} devices this process sees {}, numbered from 0 "
              "(ASCEND_RT_VISIBLE_DEVICES lists them, ascending, without spaces)",
              argument, id, primary_.size(), visible_.size());
}

std::optional<std::uint32_t> Contexts::id_of(int device) const {
  const auto found = std::ranges::lower_bound(visible_, device);
  if (found == visible_.end() || *found != device) return std::nullopt;
  return static_cast<std::uint32_t>(found - visible_.begin());
}

Result<ContextId> Contexts::set_device(int id) {
  const auto device = device_of(id, "deviceId");
  if (!device) return device.error();
  const std::lock_guard lock(mutex_);
  Primary& primary = primary_[static_cast<std::size_t>(*device)];
  if (primary.references++ == 0) primary.life = ++lives_;
  const ContextId context{.device = *device, .life = primary.life};
  current_context = {.owner = this, .context = context};
  return context;
}

Result<std::optional<ContextId>> Contexts::reset_device(int id, Reset reset) {
  const auto device = device_of(id, "deviceId");
  if (!device) return device.error();
  const std::lock_guard lock(mutex_);
  Primary& primary = primary_[static_cast<std::size_t>(*device)];
  if (primary.references == 0) {
    return fail(Errc::kWrongOrder, Reason::kNone,
                "device {} is not set in this process, or is reset already; call "
                "aclrtSetDevice({}) first",
                id, id);
  }
  primary.references = reset == Reset::kAllReferences ? 0 : primary.references - 1;
  if (primary.references != 0) return std::optional<ContextId>{};
  return std::optional(ContextId{.device = *device, .life = primary.life.exchange(0)});
}

std::vector<ContextId> Contexts::reset_all() {
  const std::lock_guard lock(mutex_);
  std::vector<ContextId> ended;
  for (std::size_t device = 0; device < primary_.size(); ++device) {
    Primary& primary = primary_[device];
    if (primary.references == 0) continue;
    primary.references = 0;
    ended.push_back({.device = static_cast<int>(device), .life = primary.life.exchange(0)});
  }
  default_id_.reset();
  return ended;
}

Result<ContextId> Contexts::current() {
  if (const ContextId mine = current_if_any(); mine.life != 0) return mine;
  const auto wanted = [this] {
    const std::lock_guard lock(mutex_);
    return default_id_;
  }();
  if (wanted) return set_device(*wanted);
  return fail(Errc::kNoContext, Reason::kNone,
              "this thread has no current context; call aclrtSetDevice(0) in it first");
}

Result<void> Contexts::set_default_device(int id) {
  if (const auto device = device_of(id, "default_device"); !device) return device.error();
  const std::lock_guard lock(mutex_);
  default_id_ = id;
  return {};
}

std::vector<int> parse_visible_devices(const char* text, int devices) {
  std::vector<int> visible;
  if (text == nullptr) {
    visible.resize(static_cast<std::size_t>(devices));
    std::iota(visible.begin(), visible.end(), 0);
    return visible;
  }
  const char* const end = text + std::strlen(text);
  for (const char* at = text;;) {
    int device = -1;
    const auto parsed = std::from_chars(at, end, device);
    const bool whole = parsed.ec == std::errc() && (parsed.ptr == end || *parsed.ptr == ',');
    if (!whole || device < 0 || device >= devices) return visible;
    if (!visible.empty() && device <= visible.back()) return visible;
    visible.push_back(device);
    if (parsed.ptr == end) return visible;
    at = parsed.ptr + 1;
  }
}

}  // namespace hufu::runtime
