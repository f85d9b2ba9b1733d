#include "runtime/sharing.h"

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "os/file.h"
#include "os/process.h"

namespace hufu::runtime {
namespace {

Error fail_key_text() {
  return fail(Errc::kInvalidValue, Reason::kKeyMalformed,
              "the key is not {} characters of base64url; pass the text that "
              "aclrtIpcMemGetExportKey wrote, whole and ended by a NUL",
              share::kKeyTextSize);
}

}  // namespace

Sharing::Sharing(memory::Heap& heap, share::Client& client)
    : heap_(heap),
      client_(client),
      imports_(client,
               [this](const share::Import& import) {
                 heap_.registry().add({.base = reinterpret_cast<std::uintptr_t>(import.base),
                                       .mapped = import.size,
                                       .reported = import.reported_size,
                                       .id = import.share,
                                       .page = import.page,
                                       .device = static_cast<int>(import.device),
                                       .kind = memory::RegionKind::kImported,
                                       .access = import.access});
               }),
      strict_(os::env("HUFU_STRICT") == "cann") {}

Result<Lender*> Sharing::lender_of(const memory::Region& region, const void* pointer) const {
  const auto found = lenders_.find(region.kind);
  if (found == lenders_.end()) return static_cast<Lender*>(nullptr);
  if (!strict_) return found->second;
  const bool pool = region.kind == memory::RegionKind::kPool;
  return fail(Errc::kRefused, Reason::kBadFlags,
              "address {} lies in memory {}, which has no key under HUFU_STRICT=cann; {}", pointer,
              pool ? "of a pool" : "that was mapped with aclrtMapMem",
              pool ? "allocate with aclrtMalloc what is to be shared"
                   : "share its handle with aclrtMemExportToShareableHandle");
}

Result<memory::ExportRange> Sharing::exportable(const void* pointer, std::uint64_t size) const {
  const auto region = heap_.describe(pointer);
  const auto lender = region ? lender_of(*region, pointer) : Result<Lender*>(nullptr);
  if (!lender) return lender.error();
  if (*lender != nullptr) return (*lender)->may_lend(*region, pointer, size);
  return heap_.exportable(pointer, size);
}

Result<Sharing::Shared> Sharing::begin_export(const void* pointer, std::uint64_t size,
                                              std::uint32_t flags) {
  const auto region = heap_.describe(pointer);
  const auto lender = region ? lender_of(*region, pointer) : Result<Lender*>(nullptr);
  if (!lender) return lender.error();
  if (*lender != nullptr) {
    const bool read_only = (flags & wire::kReadOnly) != 0;
    auto loan =
        (*lender)->lend(*region, pointer, size, read_only ? Access::kReadOnly : Access::kReadWrite);
    if (!loan) return loan.error();
    return Shared{.range = loan->range, .hold = std::move(loan->hold)};
  }
  auto hold = heap_.begin_export(pointer, size);
  if (!hold) return hold.error();
  const memory::ExportRange range = hold->range();
  return Shared{.range = range, .hold = std::move(*hold)};
}

Result<Key> Sharing::export_key(const void* pointer, std::uint64_t size, std::uint32_t flags) {
  const auto hold = begin_export(pointer, size, flags);
  if (!hold) {
    report_refused_export(pointer, size, flags, hold.error().reason);
    return hold.error();
  }
  if (client_.address().mode == share::BrokerMode::kNone) return client_.session().error();
  const memory::ExportRange& range = hold->range;
  const auto reply = client_.export_range({.block = range.block,
                                           .offset = range.offset,
                                           .size = range.size,
                                           .reported_size = range.reported_size,
                                           .flags = flags});
  if (!reply) return reply.error();
  Key key;
  std::copy(reply->key.begin(), reply->key.end(), key.text.begin());
  return key;
}

std::vector<Result<Key>> Sharing::export_batch(std::span<const Range> ranges, std::uint32_t flags) {
  std::vector<Result<Key>> results;
  results.reserve(ranges.size());
  for (std::size_t from = 0; from < ranges.size(); from += wire::kMaxBatch) {
    const auto some = ranges.subspan(from, std::min(wire::kMaxBatch, ranges.size() - from));
    std::vector<Result<Shared>> holds;
    std::vector<share::Client::ExportRequest> requests;
    holds.reserve(some.size());
    for (const Range& range : some) {
      const auto& hold = holds.emplace_back(begin_export(range.pointer, range.size, flags));
      if (!hold) {
        report_refused_export(range.pointer, range.size, flags, hold.error().reason);
        continue;
      }
      requests.push_back({.block = hold->range.block,
                          .offset = hold->range.offset,
                          .size = hold->range.size,
                          .reported_size = hold->range.reported_size,
                          .flags = flags});
    }
    Result<std::vector<Result<wire::ExportReply>>> replies(
        std::vector<Result<wire::ExportReply>>{});
    if (!requests.empty()) replies = client_.export_batch(requests);
    std::size_t next = 0;
    for (const auto& hold : holds) {
      if (!hold) {
        results.emplace_back(hold.error());
      } else if (!replies) {
        results.emplace_back(replies.error());
      } else if (const auto& reply = (*replies)[next++]; !reply) {
        results.emplace_back(reply.error());
      } else {
        Key key;
        std::copy(reply->key.begin(), reply->key.end(), key.text.begin());
        results.emplace_back(key);
      }
    }
  }
  return results;
}

std::vector<Result<void*>> Sharing::import_batch(std::span<const char* const> keys) {
  std::vector<Result<void*>> results;
  results.reserve(keys.size());
  for (const auto& opened : imports_.open_batch(keys, 0)) {
    results.push_back(opened ? Result<void*>(static_cast<void*>(opened->base))
                             : Result<void*>(opened.error()));
  }
  return results;
}

void Sharing::report_refused_export(const void* pointer, std::uint64_t size, std::uint32_t flags,
                                    Reason reason) {
  const auto region = heap_.describe(pointer);
  if (region && reason == Reason::kImportedMemory) {
    client_.report_imported(region->id, size);
    return;
  }
  const bool of_block = region && (region->kind == memory::RegionKind::kBlock ||
                                   region->kind == memory::RegionKind::kMapped);
  if (!of_block || (reason != Reason::kNotAligned && reason != Reason::kOutOfRange)) {
    client_.report(reason, pointer, size);
    return;
  }
  // A range of a real block: asked for as it is, so that the broker's own judgement is the record.
  const auto offset = reinterpret_cast<std::uintptr_t>(pointer) - region->base;
  const auto reply = client_.export_range({.block = region->id,
                                           .offset = offset,
                                           .size = size,
                                           .reported_size = region->reported,
                                           .flags = flags});
  if (!reply) return;
  // The two sides disagree about a rule; the stricter one holds.
  Key key;
  std::copy(reply->key.begin(), reply->key.end(), key.text.begin());
  static_cast<void>(client_.withdraw(key.text.data()).has_value());
}

Result<void> Sharing::list_pids(const char* key, std::span<const std::int32_t> pids) {
  std::vector<std::int32_t> wanted(pids.begin(), pids.end());
  std::erase(wanted, 0);
  if (wanted.empty()) return {};
  const auto reply = client_.list_pids(key, wanted);
  if (!reply) return reply.error();
  return {};
}

Result<void> Sharing::list_pidfd(const char* key, int pidfd) {
  const std::string self = os::read_small_file(fmt::format("/proc/self/fdinfo/{}", pidfd));
  if (self.find("\nPid:") == std::string::npos) {
    return fail(Errc::kInvalidValue, Reason::kNone,
                "descriptor {} is no pidfd; pass what pidfd_open() or clone3() gave", pidfd);
  }
  const std::uint64_t inode = os::pidfs_inode_of(pidfd);
  if (inode == 0) {
    return fail(Errc::kNotSupported, Reason::kNone,
                "this kernel has no pidfs (Linux 6.9), so a pidfd names no process to the broker; "
                "pass what aclrtDeviceGetBareTgid returns there to aclrtIpcMemSetImportPid");
  }
  const auto reply = client_.list_process(key, inode);
  if (!reply) return reply.error();
  return {};
}

Result<void*> Sharing::import(const char* key) {
  if (std::byte* base = imports_.open_again(key)) return static_cast<void*>(base);
  const auto opened = imports_.open(key, 0);
  if (!opened) return opened.error();
  return static_cast<void*>(opened->base);
}

Result<std::optional<share::ClosingImport>> Sharing::close(const char* key) {
  if (imports_.close_one_of_many(key)) return std::optional<share::ClosingImport>();
  std::unique_lock lock(mutex_);
  auto closing = imports_.close(key);
  if (closing) {
    if (*closing) {
      heap_.registry().remove(reinterpret_cast<std::uintptr_t>((*closing)->import().base));
    }
    return closing;
  }
  if (closing.error().reason != Reason::kNotImported) return closing.error();

  const auto id = share::public_id_of(key);
  if (id && advised_.erase(id->bytes) != 0) return std::optional<share::ClosingImport>();
  lock.unlock();
  if (auto withdrawn = client_.withdraw(key); !withdrawn) return withdrawn.error();
  return std::optional<share::ClosingImport>();
}

Result<void> Sharing::advise_link(const char* key) {
  const auto id = share::public_id_of(key);
  if (!id) return fail_key_text();
  const std::lock_guard lock(mutex_);
  advised_.insert(id->bytes);
  return {};
}

}  // namespace hufu::runtime
