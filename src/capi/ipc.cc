// Sharing memory by key.

#include <algorithm>
#include <cstdint>

#include "acl/acl.h"
#include "capi/error_code.h"
#include "hufu/hufu.h"
#include "runtime/runtime.h"

using hufu::Errc;
using hufu::fail;
using hufu::Reason;
using hufu::Result;
using hufu::capi::answer;
using hufu::capi::null_argument;
using hufu::capi::StrictCode;
using hufu::runtime::Here;
using hufu::runtime::Key;

namespace {

constexpr size_t kKeyBuffer = Key{}.text.size();
static_assert(kKeyBuffer == 65, "what every client's buffer holds");

constexpr StrictCode kDriverRefuses{ACL_ERROR_RT_DRV_INTERNAL_ERROR};

}  // namespace

aclError aclrtIpcMemGetExportKey(void* devPtr, size_t size, char* key, size_t len, uint64_t flags) {
  return answer(
      [&]() -> Result<void> {
        if (devPtr == nullptr) return null_argument("devPtr");
        if (key == nullptr) return null_argument("key");
        if (size == 0) {
          return fail(Errc::kInvalidValue, Reason::kEmptyRange,
                      "size is 0; export at least one byte");
        }
        constexpr uint64_t kAnyProcess = ACL_RT_IPC_MEM_EXPORT_FLAG_DISABLE_PID_VALIDATION;
        constexpr uint64_t kReadOnly = HUFU_IPC_MEM_EXPORT_FLAG_READ_ONLY;
        if ((flags & ~(kAnyProcess | kReadOnly)) != 0) {
          return fail(Errc::kInvalidValue, Reason::kBadFlags,
                      "flags is {:#x}; pass 0 for a whitelist or {:#x} for none, with {:#x} added "
                      "for read-only importers",
                      flags, kAnyProcess, kReadOnly);
        }
        const auto here = Here::get();
        if (!here) return here.error();
        if (len < kKeyBuffer) {
          return fail(Errc::kInvalidValue, Reason::kNone,
                      "len is {}; a key takes {} bytes with its NUL", len, kKeyBuffer);
        }
        uint32_t wire_flags = 0;
        if ((flags & kAnyProcess) != 0) wire_flags |= hufu::wire::kAnyProcess;
        if ((flags & kReadOnly) != 0) wire_flags |= hufu::wire::kReadOnly;
        const auto made = here->runtime->sharing().export_key(devPtr, size, wire_flags);
        if (!made) return made.error();
        std::copy(made->text.begin(), made->text.end(), key);
        return {};
      },
      kDriverRefuses);
}

aclError aclrtIpcMemSetImportPid(const char* key, int32_t* pid, size_t num) {
  return answer([&]() -> Result<void> {
    if (key == nullptr) return null_argument("key");
    if (pid == nullptr) return null_argument("pid");
    constexpr size_t kMost = hufu::wire::kMaxListPids;
    if (num == 0 || num > kMost) {
      return fail(Errc::kInvalidValue, Reason::kNone,
                  "num is {}; pass 1 to {} pids in a call, and call again for more: the list grows",
                  num, kMost);
    }
    const auto here = Here::get();
    if (!here) return here.error();
    return here->runtime->sharing().list_pids(key, {pid, num});
  });
}

aclError hufuIpcMemSetImportPidfd(const char* key, int pidfd) {
  return answer([&]() -> Result<void> {
    if (key == nullptr) return null_argument("key");
    const auto here = Here::get();
    if (!here) return here.error();
    return here->runtime->sharing().list_pidfd(key, pidfd);
  });
}

aclError aclrtIpcMemImportByKey(void** devPtr, const char* key, uint64_t flags) {
  return answer([&]() -> Result<void> {
    if (devPtr == nullptr) return null_argument("devPtr");
    if (key == nullptr) return null_argument("key");
    // Peer access between devices needs no enabling here; the flag is taken and changes nothing.
    if (flags > ACL_RT_IPC_MEM_IMPORT_FLAG_ENABLE_PEER_ACCESS) {
      return fail(Errc::kInvalidValue, Reason::kBadFlags, "flags is {:#x}; pass 0 or {:#x}", flags,
                  ACL_RT_IPC_MEM_IMPORT_FLAG_ENABLE_PEER_ACCESS);
    }
    const auto here = Here::get();
    if (!here) return here.error();
    const auto imported = here->runtime->sharing().import(key);
    if (!imported) return imported.error();
    *devPtr = *imported;
    return {};
  });
}

aclError aclrtIpcMemClose(const char* key) {
  return answer([&]() -> Result<void> {
    if (key == nullptr) return null_argument("key");
    const auto here = Here::get();
    if (!here) return here.error();
    return here->runtime->close(key);
  });
}

aclError aclrtIpcMemSetAttr(const char* key, aclrtIpcMemAttrType type, uint64_t attr) {
  return answer([&]() -> Result<void> {
    if (key == nullptr) {  // 107000, unlike the other calls' nulls.
      return fail(Errc::kInvalidValue, Reason::kNone, "key is null; pass a key");
    }
    if (type != ACL_RT_IPC_MEM_ATTR_ACCESS_LINK) {
      return fail(Errc::kInvalidValue, Reason::kNone,
                  "type is {}; pass ACL_RT_IPC_MEM_ATTR_ACCESS_LINK (0)", static_cast<int>(type));
    }
    if (attr > ACL_RT_IPC_MEM_ATTR_ACCESS_LINK_UB_MULTI_PORT_PATH) {
      return fail(Errc::kInvalidValue, Reason::kNone, "attr is {}; pass a link, 0 to {}", attr,
                  ACL_RT_IPC_MEM_ATTR_ACCESS_LINK_UB_MULTI_PORT_PATH);
    }
    const auto here = Here::get();
    if (!here) return here.error();
    return here->runtime->sharing().advise_link(key);
  });
}
