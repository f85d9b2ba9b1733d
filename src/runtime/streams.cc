#include "runtime/streams.h"

#include <algorithm>

namespace hufu::runtime {
namespace {

// "ST", above what x86-64 and aarch64 can address from user space; the low bits keep the alignment
// that a pointer to an object would have.
constexpr std::uintptr_t kTag = std::uintptr_t{0x5354} << 48U;
constexpr std::uintptr_t kStep = 64;

std::uintptr_t number_of(StreamHandle handle) { return reinterpret_cast<std::uintptr_t>(handle); }

Error fail_handle(StreamHandle handle) {
  return fail(Errc::kInvalidHandle, Reason::kNone,
              "stream {} is not a stream of this process, or was destroyed; pass a handle that "
              "aclrtCreateStream returned",
              handle);
}

Error fail_context(StreamHandle handle, const ContextId& owner, const ContextId& context) {
  return fail(Errc::kForeignStream, Reason::kNone,
              "stream {} belongs to another context (device {}) than the thread's current one "
              "(device {}); make its context current first",
              handle, owner.device, context.device);
}

}  // namespace

StreamHandle Streams::add(const Stream& stream) {
  const std::uintptr_t number = kTag + ++count_ * kStep;
  streams_.emplace(number, stream);
  return reinterpret_cast<StreamHandle>(number);
}

StreamHandle Streams::create(const ContextId& context) {
  const std::lock_guard lock(mutex_);
  return add({.context = context});
}

StreamHandle Streams::default_of(const ContextId& context) {
  const std::lock_guard lock(mutex_);
  const auto found = std::find_if(streams_.begin(), streams_.end(), [&](const auto& entry) {
    return entry.second.is_default && entry.second.context == context;
  });
  if (found != streams_.end()) return reinterpret_cast<StreamHandle>(found->first);
  return add({.context = context, .is_default = true});
}

Result<void> Streams::check(StreamHandle handle, const ContextId& context) const {
  if (handle == nullptr) return {};
  const std::lock_guard lock(mutex_);
  const auto found = streams_.find(number_of(handle));
  if (found == streams_.end()) return fail_handle(handle);
  if (found->second.context != context) return fail_context(handle, found->second.context, context);
  return {};
}

Result<void> Streams::destroy(StreamHandle handle, const ContextId& context) {
  const std::lock_guard lock(mutex_);
  const auto found = streams_.find(number_of(handle));
  if (found == streams_.end()) return fail_handle(handle);
  if (found->second.context != context) return fail_context(handle, found->second.context, context);
  if (found->second.is_default) {
    return fail(Errc::kInvalidValue, Reason::kNone,
                "stream {} is the context's default stream; it ends with the context and cannot "
                "be destroyed",
                handle);
  }
  streams_.erase(found);
  return {};
}

void Streams::end(const ContextId& context) {
  const std::lock_guard lock(mutex_);
  std::erase_if(streams_, [&](const auto& entry) { return entry.second.context == context; });
}

}  // namespace hufu::runtime
