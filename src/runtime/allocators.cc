#include "runtime/allocators.h"

#include <string_view>

#include "runtime/streams.h"

namespace hufu::runtime {
namespace {

// At addresses that no program has, and where no stream's handle is.
constexpr std::uintptr_t kTag = std::uintptr_t{0xa110} << 48U;

std::string_view missing_in(const AllocatorDescription& description) {
  if (description.object == nullptr) return "object (aclrtAllocatorSetObjToDesc)";
  if (description.alloc == nullptr) return "alloc function (aclrtAllocatorSetAllocFuncToDesc)";
  if (description.free == nullptr) return "free function (aclrtAllocatorSetFreeFuncToDesc)";
  if (description.address_of_block == nullptr) {
    return "address function (aclrtAllocatorSetGetAddrFromBlockFuncToDesc)";
  }
  return {};
}

}  // namespace

Allocators::Handle Allocators::make_entry(const Entry& entry) {
  auto* handle = reinterpret_cast<Handle>(kTag | (++last_ << 4U));
  entries_.emplace(handle, entry);
  return handle;
}

Allocators::Handle Allocators::create() {
  const std::lock_guard lock(mutex_);
  return make_entry({});
}

Result<Allocators::Entry*> Allocators::find(Handle handle) {
  const auto found = entries_.find(handle);
  if (found != entries_.end()) return &found->second;
  return fail(Errc::kInvalidHandle, Reason::kNone,
              "allocatorDesc {:#x} is no description that exists: it was destroyed, or never made "
              "by aclrtAllocatorCreateDesc",
              reinterpret_cast<std::uintptr_t>(handle));
}

Result<void> Allocators::destroy(Handle handle) {
  const std::lock_guard lock(mutex_);
  const auto entry = find(handle);
  if (!entry) return entry.error();
  if ((*entry)->of_stream) {
    return fail(Errc::kInvalidHandle, Reason::kNone,
                "allocatorDesc {:#x} is a stream's copy and ends with aclrtAllocatorUnregister; "
                "destroy what aclrtAllocatorCreateDesc returned",
                reinterpret_cast<std::uintptr_t>(handle));
  }
  entries_.erase(handle);
  return {};
}

Result<void> Allocators::add(void* stream, Handle handle) {
  if (!streams_.exists(stream)) return fail_stream(stream);
  const std::lock_guard lock(mutex_);
  const auto entry = find(handle);
  if (!entry) return entry.error();
  const AllocatorDescription description = (*entry)->description;
  if (const std::string_view missing = missing_in(description); !missing.empty()) {
    return fail(Errc::kInvalidArgument, Reason::kNone, "allocatorDesc has no {}; set it first",
                missing);
  }
  forget_ended_streams();
  Handle& of_stream = by_stream_[stream];
  if (of_stream != nullptr) entries_.erase(of_stream);
  of_stream = make_entry({.description = description, .of_stream = true});
  return {};
}

void Allocators::remove(void* stream) {
  const std::lock_guard lock(mutex_);
  const auto found = by_stream_.find(stream);
  if (found == by_stream_.end()) return;
  entries_.erase(found->second);
  by_stream_.erase(found);
}

Result<Allocators::Found> Allocators::of(void* stream) {
  const std::lock_guard lock(mutex_);
  forget_ended_streams();
  const auto found = by_stream_.find(stream);
  if (found == by_stream_.end()) {
    return fail(Errc::kInvalidArgument, Reason::kNone,
                "stream {:#x} has no allocator; register one with aclrtAllocatorRegister",
                reinterpret_cast<std::uintptr_t>(stream));
  }
  return Found{.handle = found->second, .description = entries_.at(found->second).description};
}

// A stream's handle is never used again, so this may come as late as the next question.
void Allocators::forget_ended_streams() {
  for (auto at = by_stream_.begin(); at != by_stream_.end();) {
    if (streams_.exists(at->first)) {
      ++at;
    } else {
      entries_.erase(at->second);
      at = by_stream_.erase(at);
    }
  }
}

}  // namespace hufu::runtime
