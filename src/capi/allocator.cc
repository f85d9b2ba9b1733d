// A program's own allocators, registered for its streams.

#include "acl/acl.h"
#include "acl/acl_rt_allocator.h"
#include "capi/error_code.h"
#include "runtime/runtime.h"

using hufu::Result;
using hufu::capi::answer;
using hufu::capi::null_argument;
using hufu::runtime::AllocatorDescription;
using hufu::runtime::Runtime;

namespace {

// `argument` is what the caller's declaration calls the value.
template <class Value>
aclError set(aclrtAllocatorDesc desc, Value AllocatorDescription::*piece, Value value,
             const char* argument, const char* function = __builtin_FUNCTION()) {
  return answer(
      [&]() -> Result<void> {
        if (desc == nullptr) return null_argument("allocatorDesc");
        if (value == nullptr) return null_argument(argument);
        const auto runtime = Runtime::get();
        if (!runtime) return runtime.error();
        return (*runtime)->allocators().set(desc, piece, value);
      },
      {}, function);
}

// Of the outputs all but one may be null.
template <class Value>
void give(Value* out, Value value) {
  if (out != nullptr) *out = value;
}

}  // namespace

aclrtAllocatorDesc aclrtAllocatorCreateDesc(void) {
  aclrtAllocatorDesc made = nullptr;
  (void)answer([&]() -> Result<void> {
    const auto runtime = Runtime::get();
    if (!runtime) return runtime.error();
    made = (*runtime)->allocators().create();
    return {};
  });
  return made;
}

aclError aclrtAllocatorDestroyDesc(aclrtAllocatorDesc allocatorDesc) {
  return answer([&]() -> Result<void> {
    if (allocatorDesc == nullptr) return null_argument("allocatorDesc");
    const auto runtime = Runtime::get();
    if (!runtime) return runtime.error();
    return (*runtime)->allocators().destroy(allocatorDesc);
  });
}

aclError aclrtAllocatorSetObjToDesc(aclrtAllocatorDesc allocatorDesc, aclrtAllocator allocator) {
  return set(allocatorDesc, &AllocatorDescription::object, allocator, "allocator");
}

aclError aclrtAllocatorSetAllocFuncToDesc(aclrtAllocatorDesc allocatorDesc,
                                          aclrtAllocatorAllocFunc func) {
  return set(allocatorDesc, &AllocatorDescription::alloc, func, "func");
}

aclError aclrtAllocatorSetFreeFuncToDesc(aclrtAllocatorDesc allocatorDesc,
                                         aclrtAllocatorFreeFunc func) {
  return set(allocatorDesc, &AllocatorDescription::free, func, "func");
}

aclError aclrtAllocatorSetAllocAdviseFuncToDesc(aclrtAllocatorDesc allocatorDesc,
                                                aclrtAllocatorAllocAdviseFunc func) {
  return set(allocatorDesc, &AllocatorDescription::alloc_advise, func, "func");
}

aclError aclrtAllocatorSetGetAddrFromBlockFuncToDesc(aclrtAllocatorDesc allocatorDesc,
                                                     aclrtAllocatorGetAddrFromBlockFunc func) {
  return set(allocatorDesc, &AllocatorDescription::address_of_block, func, "func");
}

aclError aclrtAllocatorRegister(aclrtStream stream, aclrtAllocatorDesc allocatorDesc) {
  return answer([&]() -> Result<void> {
    if (stream == nullptr) return null_argument("stream");
    if (allocatorDesc == nullptr) return null_argument("allocatorDesc");
    const auto runtime = Runtime::get();
    if (!runtime) return runtime.error();
    return (*runtime)->allocators().add(stream, allocatorDesc);
  });
}

aclError aclrtAllocatorGetByStream(aclrtStream stream, aclrtAllocatorDesc* allocatorDesc,
                                   aclrtAllocator* allocator, aclrtAllocatorAllocFunc* allocFunc,
                                   aclrtAllocatorFreeFunc* freeFunc,
                                   aclrtAllocatorAllocAdviseFunc* allocAdviseFunc,
                                   aclrtAllocatorGetAddrFromBlockFunc* getAddrFromBlockFunc) {
  return answer([&]() -> Result<void> {
    if (stream == nullptr) return null_argument("stream");
    if (allocatorDesc == nullptr) return null_argument("allocatorDesc");
    const auto runtime = Runtime::get();
    if (!runtime) return runtime.error();
    const auto found = (*runtime)->allocators().of(stream);
    if (!found) return found.error();
    const AllocatorDescription& description = found->description;
    *allocatorDesc = found->handle;
    give(allocator, description.object);
    give(allocFunc, description.alloc);
    give(freeFunc, description.free);
    give(allocAdviseFunc, description.alloc_advise);
    give(getAddrFromBlockFunc, description.address_of_block);
    return {};
  });
}

aclError aclrtAllocatorUnregister(aclrtStream stream) {
  return answer([&]() -> Result<void> {
    if (stream == nullptr) return null_argument("stream");
    // Where nothing was registered there is nothing to do, and no broker to be met for it.
    if (Runtime* runtime = Runtime::get_if_any()) runtime->allocators().remove(stream);
    return {};
  });
}
