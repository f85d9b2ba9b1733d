// Sharing memory by key.

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "acl/acl.h"
#include "capi/ability.h"
#include "capi/error_code.h"
#include "hufu/hufu.h"
#include "runtime/runtime.h"

using hufu::Ability;
using hufu::Errc;
using hufu::fail;
using hufu::Reason;
using hufu::Result;
using hufu::capi::answer;
using hufu::capi::null_argument;
using hufu::capi::require;
using hufu::capi::StrictCode;
using hufu::runtime::Here;
using hufu::runtime::Key;

namespace {

constexpr size_t kKeyBuffer = Key{}.text.size();
static_assert(kKeyBuffer == 65, "what every client's buffer holds");

constexpr StrictCode kDriverRefuses{ACL_ERROR_RT_DRV_INTERNAL_ERROR};

hufu::Error fail_empty_range() {
  return fail(Errc::kInvalidValue, Reason::kEmptyRange, "size is 0; export at least one byte");
}

Result<uint32_t> export_flags(uint64_t flags) {
  constexpr uint64_t kAnyProcess = ACL_RT_IPC_MEM_EXPORT_FLAG_DISABLE_PID_VALIDATION;
  constexpr uint64_t kReadOnly = HUFU_IPC_MEM_EXPORT_FLAG_READ_ONLY;
  if ((flags & ~(kAnyProcess | kReadOnly)) != 0) {
    return fail(Errc::kInvalidValue, Reason::kBadFlags,
                "flags is {:#x}; pass 0 for a whitelist or {:#x} for none, with {:#x} added for "
                "read-only importers",
                flags, kAnyProcess, kReadOnly);
  }
  uint32_t wire_flags = 0;
  if ((flags & kAnyProcess) != 0) wire_flags |= hufu::wire::kAnyProcess;
  if ((flags & kReadOnly) != 0) wire_flags |= hufu::wire::kReadOnly;
  return wire_flags;
}

Result<void> check_import_flags(uint64_t flags) {
  if (flags == ACL_RT_IPC_MEM_IMPORT_FLAG_DEFAULT) return {};
  // Peer access between devices needs no enabling here; the flag is taken and changes nothing.
  if (flags == ACL_RT_IPC_MEM_IMPORT_FLAG_ENABLE_PEER_ACCESS) return require(Ability::kP2p);
  return fail(Errc::kInvalidValue, Reason::kBadFlags, "flags is {:#x}; pass 0 or {:#x}", flags,
              ACL_RT_IPC_MEM_IMPORT_FLAG_ENABLE_PEER_ACCESS);
}

// The outcomes of a batch: each one's code where the caller wants it, and the first error.
class Outcomes {
 public:
  Outcomes(aclError* codes, StrictCode strict) : codes_(codes), strict_(strict) {}

  void add(size_t index, const Result<void>& result) {
    if (codes_ != nullptr) {
      codes_[index] = result ? ACL_SUCCESS : hufu::capi::code_of(result.error(), strict_);
    }
    if (result || index >= first_) return;
    first_ = index;
    error_ = result.error();
  }
  Result<void> result() const { return first_ == SIZE_MAX ? Result<void>() : error_; }

 private:
  aclError* codes_;
  StrictCode strict_;
  size_t first_ = SIZE_MAX;
  hufu::Error error_;
};

}  // namespace

aclError aclrtIpcMemGetExportKey(void* devPtr, size_t size, char* key, size_t len, uint64_t flags) {
  return answer(
      [&]() -> Result<void> {
        if (devPtr == nullptr) return null_argument("devPtr");
        if (key == nullptr) return null_argument("key");
        if (size == 0) return fail_empty_range();
        const auto wire_flags = export_flags(flags);
        if (!wire_flags) return wire_flags.error();
        const auto here = Here::get();
        if (!here) return here.error();
        if (len < kKeyBuffer) {
          return fail(Errc::kInvalidValue, Reason::kNone,
                      "len is {}; a key takes {} bytes with its NUL", len, kKeyBuffer);
        }
        const auto made = here->runtime->sharing().export_key(devPtr, size, *wire_flags);
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

// One machine is one server of a super-pod, and its devices' numbers are their sdids.
aclError aclrtIpcMemImportPidInterServer(const char* key, aclrtServerPid* serverPids, size_t num) {
  return answer([&]() -> Result<void> {
    if (key == nullptr || serverPids == nullptr || num == 0) {  // 107000 for nulls, too.
      return fail(Errc::kInvalidValue, Reason::kNone,
                  "key is {}, serverPids is {} and num is {}; pass a key and at least one server's "
                  "processes",
                  key == nullptr ? "null" : "given", static_cast<const void*>(serverPids), num);
    }
    if (auto able = require(Ability::kSuperPod); !able) return able;
    const auto here = Here::get();
    if (!here) return here.error();
    const std::span<const aclrtServerPid> servers(serverPids, num);
    const auto devices = static_cast<uint32_t>(here->runtime->contexts().devices());
    for (const aclrtServerPid& server : servers) {
      if (server.pid == nullptr || server.num == 0 || server.num > hufu::wire::kMaxListPids) {
        return fail(Errc::kInvalidValue, Reason::kNone,
                    "the entry of sdid {} has {} pids at {}; pass 1 to {}", server.sdid, server.num,
                    static_cast<const void*>(server.pid), hufu::wire::kMaxListPids);
      }
      if (server.sdid >= devices) {
        return fail(Errc::kInvalidValue, Reason::kNone,
                    "sdid {} is no device of this machine, whose {} have the sdids from 0, and "
                    "memory is not shared with another",
                    server.sdid, devices);
      }
    }
    for (const aclrtServerPid& server : servers) {
      auto listed = here->runtime->sharing().list_pids(key, {server.pid, server.num});
      if (!listed) return listed;
    }
    return {};
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
    if (auto good = check_import_flags(flags); !good) return good;
    if (auto able = require(Ability::kExbus); !able) return able;
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

aclError hufuIpcMemExportBatch(void* const* ptrs, const size_t* sizes, char (*keys)[65],
                               aclError* codes, size_t count, uint64_t flags) {
  return answer(
      [&]() -> Result<void> {
        if (count == 0) return {};
        if (ptrs == nullptr) return null_argument("ptrs");
        if (sizes == nullptr) return null_argument("sizes");
        if (keys == nullptr) return null_argument("keys");
        const auto wire_flags = export_flags(flags);
        if (!wire_flags) return wire_flags.error();
        const auto here = Here::get();
        if (!here) return here.error();
        Outcomes outcomes(codes, kDriverRefuses);
        std::vector<hufu::runtime::Sharing::Range> ranges;
        std::vector<size_t> index;
        for (size_t i = 0; i < count; ++i) {
          if (ptrs[i] == nullptr) {
            outcomes.add(i, null_argument("ptrs[i]"));
          } else if (sizes[i] == 0) {
            outcomes.add(i, fail_empty_range());
          } else {
            ranges.push_back({.pointer = ptrs[i], .size = sizes[i]});
            index.push_back(i);
          }
        }
        const auto made = here->runtime->sharing().export_batch(ranges, *wire_flags);
        for (size_t i = 0; i < made.size(); ++i) {
          outcomes.add(index[i], made[i] ? Result<void>() : Result<void>(made[i].error()));
          if (made[i]) std::copy(made[i]->text.begin(), made[i]->text.end(), keys[index[i]]);
        }
        return outcomes.result();
      },
      kDriverRefuses);
}

aclError hufuIpcMemImportBatch(void** ptrs, const char* const* keys, aclError* codes, size_t count,
                               uint64_t flags) {
  return answer([&]() -> Result<void> {
    if (count == 0) return {};
    if (ptrs == nullptr) return null_argument("ptrs");
    if (keys == nullptr) return null_argument("keys");
    if (auto good = check_import_flags(flags); !good) return good;
    if (auto able = require(Ability::kExbus); !able) return able;
    const auto here = Here::get();
    if (!here) return here.error();
    Outcomes outcomes(codes, {});
    std::vector<const char*> texts;
    std::vector<size_t> index;
    for (size_t i = 0; i < count; ++i) {
      if (keys[i] == nullptr) {
        outcomes.add(i, null_argument("keys[i]"));
      } else {
        texts.push_back(keys[i]);
        index.push_back(i);
      }
    }
    const auto imported = here->runtime->sharing().import_batch(texts);
    for (size_t i = 0; i < imported.size(); ++i) {
      outcomes.add(index[i], imported[i] ? Result<void>() : Result<void>(imported[i].error()));
      if (imported[i]) ptrs[index[i]] = *imported[i];
    }
    return outcomes.result();
  });
}

aclError hufuIpcMemCloseBatch(const char* const* keys, aclError* codes, size_t count) {
  return answer([&]() -> Result<void> {
    if (count == 0) return {};
    if (keys == nullptr) return null_argument("keys");
    const auto here = Here::get();
    if (!here) return here.error();
    Outcomes outcomes(codes, {});
    const hufu::share::Client::ClosesTogether together(here->runtime->client());
    for (size_t i = 0; i < count; ++i)
      outcomes.add(i, keys[i] == nullptr ? Result<void>(null_argument("keys[i]"))
                                         : here->runtime->close(keys[i]));
    return outcomes.result();
  });
}
