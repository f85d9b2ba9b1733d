// What Hufu adds: who shares what, why a range cannot be exported, the broker.

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>

#include "acl/acl.h"
#include "capi/error_code.h"
#include "capi/recent_error.h"
#include "hufu/hufu.h"
#include "runtime/runtime.h"
#include "share/public_id.h"

using hufu::Errc;
using hufu::fail;
using hufu::Reason;
using hufu::Result;
using hufu::capi::answer;
using hufu::capi::null_argument;
using hufu::runtime::Runtime;
using hufu::share::IdText;
using hufu::share::PublicId;
using hufu::wire::EventKind;
using hufu::wire::ShareState;
using hufu::wire::WatchMode;

namespace {

// An out-struct begins with the size its caller was compiled with, and gets no more than that.
template <class Struct>
Result<void> check_size(const Struct& out) {
  if (out.structSize > sizeof(size_t)) return {};
  return fail(Errc::kInvalidArgument, Reason::kNone,
              "structSize is {}; set it to the struct's sizeof before the call", out.structSize);
}

template <class Struct>
void give(Struct* out, size_t size, Struct answer) {
  answer.structSize = size;
  std::memcpy(out, &answer, std::min(size, sizeof(Struct)));
}

// An array whose element grew since its caller was compiled has that caller's stride.
template <class Struct, class Ask, class Fill>
Result<void> give_list(Struct* out, size_t capacity, size_t* count, Ask ask, Fill fill) {
  if (count == nullptr) return null_argument("count");
  if (out == nullptr && capacity != 0) return null_argument("out");
  size_t size = 0;
  if (capacity != 0) {
    if (auto good = check_size(*out); !good) return good;
    size = out->structSize;
  }
  const auto runtime = Runtime::get();
  if (!runtime) return runtime.error();
  const auto found = ask(**runtime);
  if (!found) return found.error();
  auto* place = reinterpret_cast<char*>(out);
  for (size_t i = 0; i < std::min(capacity, found->size()); ++i, place += size) {
    give(reinterpret_cast<Struct*>(place), size, fill((*found)[i]));
  }
  *count = found->size();
  return {};
}

template <size_t N>
void set_text(char (&out)[N], std::string_view text) {
  const size_t size = std::min(text.size(), N - 1);
  std::memcpy(out, text.data(), size);
  out[size] = '\0';
}

hufuShareInfo info_of(const hufu::wire::ListReply& share) {
  hufuShareInfo info{};
  set_text(info.publicId, IdText(PublicId{share.public_id}).view());
  info.ownerPid = share.owner_pid;
  info.ownerUid = share.owner_uid;
  set_text(info.ownerName,
           std::string_view(share.owner_name.data(),
                            ::strnlen(share.owner_name.data(), share.owner_name.size())));
  info.size = share.size;
  info.offset = share.offset;
  info.pageSize = share.page;
  info.access = share.access;
  info.pidValidation = (share.flags & hufu::wire::kAnyProcess) == 0 ? 1 : 0;
  info.listedPids = share.listed;
  info.importers = share.importers;
  info.ageNs = share.age_ns;
  info.imports = share.imports;
  return info;
}

std::optional<hufuIpcMemEvent> event_of(EventKind what) {
  switch (what) {
    case EventKind::kExporterGone:
      return HUFU_IPC_MEM_EXPORTER_GONE;
    case EventKind::kRevoked:
      return HUFU_IPC_MEM_REVOKED;
    case EventKind::kLastImporterLeft:
      return HUFU_IPC_MEM_LAST_IMPORTER_LEFT;
    case EventKind::kImported:
      return HUFU_IPC_MEM_IMPORTED;
    case EventKind::kExportEnded:
      return HUFU_IPC_MEM_EXPORT_ENDED;
    case EventKind::kReturn:
      return std::nullopt;
  }
  return std::nullopt;
}

hufuUsageInfo usage_of(const hufu::wire::UsageReply& reply) {
  hufuUsageInfo info{};
  info.pid = reply.pid;
  info.uid = reply.uid;
  set_text(info.name,
           std::string_view(reply.name.data(), ::strnlen(reply.name.data(), reply.name.size())));
  info.device = reply.device;
  info.charged = reply.charged;
  info.requested = reply.counts.requested;
  info.reserved = reply.counts.reserved;
  info.blocks = reply.counts.blocks;
  info.pieces = reply.counts.pieces;
  info.chunks = reply.counts.chunks;
  info.warm = reply.counts.warm;
  info.spare = reply.counts.spare;
  info.hugeFallbacks = reply.counts.fallbacks;
  return info;
}

hufu::Error fail_key() {
  return fail(Errc::kInvalidValue, Reason::kKeyMalformed,
              "key is not {} characters of base64url; pass the text that aclrtIpcMemGetExportKey "
              "wrote, whole and ended by a NUL",
              hufu::share::kKeyTextSize);
}

}  // namespace

aclError hufuIpcMemGetPublicId(const char* key, char publicId[HUFU_PUBLIC_ID_SIZE]) {
  return answer([&]() -> Result<void> {
    if (key == nullptr) return null_argument("key");
    if (publicId == nullptr) return null_argument("publicId");
    const auto id = hufu::share::public_id_of(key);
    if (!id) return fail_key();
    const IdText text(*id);
    *std::copy(text.view().begin(), text.view().end(), publicId) = '\0';
    return {};
  });
}

aclError hufuShareList(hufuShareInfo* out, size_t capacity, size_t* count) {
  return answer([&]() -> Result<void> {
    const auto live = [](Runtime& runtime) {
      auto shares = runtime.client().list();
      if (shares)
        std::erase_if(*shares, [](const auto& share) { return share.state != ShareState::kLive; });
      return shares;
    };
    return give_list(out, capacity, count, live, info_of);
  });
}

aclError hufuUsageList(hufuUsageInfo* out, size_t capacity, size_t* count) {
  return answer([&]() -> Result<void> {
    return give_list(
        out, capacity, count, [](Runtime& runtime) { return runtime.client().usage(); }, usage_of);
  });
}

aclError hufuIpcMemQuery(const char* key, hufuIpcMemInfo* info) {
  return answer([&]() -> Result<void> {
    if (key == nullptr) return null_argument("key");
    if (info == nullptr) return null_argument("info");
    if (auto good = check_size(*info); !good) return good;
    if (!hufu::share::public_id_of(key)) return fail_key();
    const auto runtime = Runtime::get();
    if (!runtime) return runtime.error();
    const auto found = (*runtime)->client().watch(key, WatchMode::kAsk);
    if (!found) return found.error();
    const bool pending = (*runtime)->sharing().closing(key);
    hufuIpcMemInfo answered{};
    answered.size = found->size;
    answered.pageSize = found->page;
    answered.access = found->access;
    answered.live = found->state == ShareState::kLive ? 1 : 0;
    answered.importers = found->importers;
    answered.ownerPid = found->owner_pid;
    answered.pending = pending ? 1 : 0;
    give(info, info->structSize, answered);
    return {};
  });
}

aclError hufuIpcMemWaitReleased(const char* key, int32_t timeout) {
  return answer([&]() -> Result<void> {
    if (key == nullptr) return null_argument("key");
    if (timeout < -1) {
      return fail(Errc::kInvalidArgument, Reason::kNone,
                  "timeout is {}; pass milliseconds, or -1 to wait for ever", timeout);
    }
    const auto id = hufu::share::public_id_of(key);
    if (!id) return fail_key();
    const auto runtime = Runtime::get();
    if (!runtime) return runtime.error();
    const auto released = (*runtime)->agent().wait_released(key, timeout);
    if (!released) return released.error();
    if (*released) return {};
    return fail(Errc::kTimeout, Reason::kNone,
                "key {} is still imported after {} ms; `hufu ls` says how often",
                IdText(*id).view(), timeout);
  });
}

aclError hufuIpcMemSetCallback(const char* key, hufuIpcMemCallback fn, void* arg) {
  return answer([&]() -> Result<void> {
    if (key == nullptr) return null_argument("key");
    const auto id = hufu::share::public_id_of(key);
    if (!id) return fail_key();
    const auto runtime = Runtime::get();
    if (!runtime) return runtime.error();
    if (fn == nullptr) {
      (*runtime)->agent().clear_callback(*id);
      return {};
    }
    return (*runtime)->agent().set_callback(key, [fn, arg, id](EventKind what) {
      std::array<char, HUFU_PUBLIC_ID_SIZE> text{};
      const IdText digits(*id);
      std::copy(digits.view().begin(), digits.view().end(), text.begin());
      if (const auto event = event_of(what)) fn(text.data(), *event, arg);
    });
  });
}

aclError hufuMemQueryExportable(const void* ptr, size_t size, hufuExportability* out) {
  return answer([&]() -> Result<void> {
    if (ptr == nullptr) return null_argument("ptr");
    if (out == nullptr) return null_argument("out");
    if (auto good = check_size(*out); !good) return good;
    const auto runtime = Runtime::get();
    if (!runtime) return runtime.error();
    const hufu::memory::Heap& heap = (*runtime)->heap();
    hufuExportability answered{};
    if (const auto region = heap.describe(ptr)) {
      answered.blockBase = reinterpret_cast<void*>(region->base);
      answered.blockSize = region->reported;
      answered.page = hufu::bytes_of(region->page);
    }
    const auto range = (*runtime)->sharing().exportable(ptr, size);
    answered.exportable = range ? 1 : 0;
    if (!range) {
      answered.wouldReturn = hufu::capi::code_of(range.error(), {ACL_ERROR_RT_DRV_INTERNAL_ERROR});
      answered.reason = hufu::capi::keep_text(range.error().what());
    }
    give(out, out->structSize, answered);
    return {};
  });
}

aclError hufuGetBrokerInfo(hufuBrokerInfo* info) {
  return answer([&]() -> Result<void> {
    if (info == nullptr) return null_argument("info");
    if (auto good = check_size(*info); !good) return good;
    const auto runtime = Runtime::get();
    if (!runtime) return runtime.error();
    hufuBrokerInfo answered{};
    auto& client = (*runtime)->client();
    answered.devices = static_cast<uint32_t>((*runtime)->contexts().devices());
    if (client.address().mode == hufu::share::BrokerMode::kNone) {
      const auto capacity = (*runtime)->heap().capacity(0);
      if (!capacity) return capacity.error();
      answered.deviceCapacity = capacity->total;
    } else {
      const auto session = client.session();
      if (!session) return session.error();
      set_text(answered.address, client.address().path);
      answered.pid = session->broker_pid;
      answered.uid = session->broker_uid;
      answered.mode = session->mode;
      answered.deviceCapacity = session->device_capacity;
      // Where the broker's log lies is the broker's business; this is what it was started with, if
      // it was started from here.
      // NOLINTNEXTLINE(concurrency-mt-unsafe): nothing here changes the environment.
      if (const char* chosen = std::getenv("HUFU_AUDIT_DIR")) set_text(answered.auditDir, chosen);
    }
    give(info, info->structSize, answered);
    return {};
  });
}
