#include "runtime/contexts.h"

namespace hufu::runtime {
namespace {

// Trivial, so that it works while a thread's destructors run, and small: static TLS is scarce in a
// library that is loaded late.
struct Current {
  const Contexts* owner;  // Another owner's, a parent's for one, is nobody's.
  ContextId context;
};
[[gnu::tls_model("initial-exec")]] constinit thread_local Current current_of_thread{};

}  // namespace

Contexts::Contexts(int devices) : primary_(static_cast<std::size_t>(devices)) {}

Result<void> Contexts::check(int device) const {
  if (device >= 0 && static_cast<std::size_t>(device) < primary_.size()) return {};
  return fail(Errc::kInvalidDevice, Reason::kNoDevice,
              "device {} does not exist; there are {}, numbered from 0 (HUFU_DEVICES)", device,
              primary_.size());
}

Result<ContextId> Contexts::set_device(int device) {
  if (auto valid = check(device); !valid) return valid.error();
  const std::lock_guard lock(mutex_);
  Primary& primary = primary_[static_cast<std::size_t>(device)];
  if (primary.references++ == 0) primary.life = ++lives_;
  const ContextId context{.device = device, .life = primary.life};
  current_of_thread = {.owner = this, .context = context};
  return context;
}

Result<std::optional<ContextId>> Contexts::reset_device(int device, Reset reset) {
  if (auto valid = check(device); !valid) return valid.error();
  const std::lock_guard lock(mutex_);
  Primary& primary = primary_[static_cast<std::size_t>(device)];
  if (primary.references == 0) {
    return fail(Errc::kWrongOrder, Reason::kNone,
                "device {} is not set in this process, or is reset already; call "
                "aclrtSetDevice({}) first",
                device, device);
  }
  primary.references = reset == Reset::kAllReferences ? 0 : primary.references - 1;
  if (primary.references != 0) return std::optional<ContextId>{};
  return std::optional(ContextId{.device = device, .life = primary.life.exchange(0)});
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
  default_device_.reset();
  return ended;
}

ContextId Contexts::current_if_any() const {
  const Current& mine = current_of_thread;
  if (mine.owner != this) return {};
  const Primary& primary = primary_[static_cast<std::size_t>(mine.context.device)];
  if (primary.life.load(std::memory_order_acquire) != mine.context.life) return {};
  return mine.context;
}

Result<ContextId> Contexts::current() {
  if (const ContextId mine = current_if_any(); mine.life != 0) return mine;
  const auto wanted = [this] {
    const std::lock_guard lock(mutex_);
    return default_device_;
  }();
  if (wanted) return set_device(*wanted);
  return fail(Errc::kNoContext, Reason::kNone,
              "this thread has no current context; call aclrtSetDevice(0) in it first");
}

Result<void> Contexts::set_default_device(int device) {
  if (auto valid = check(device); !valid) return valid.error();
  const std::lock_guard lock(mutex_);
  default_device_ = device;
  return {};
}

}  // namespace hufu::runtime
