#include "runtime/physical_sharing.h"

#include <cstring>
#include <memory>
#include <utility>

namespace hufu::runtime {
namespace {

bool same(const share::HandleName& one, const share::HandleName& other) {
  return std::memcmp(&one.text(), &other.text(), sizeof(wire::KeyText)) == 0;
}

}  // namespace

Result<wire::ExportHandleReply> PhysicalSharing::export_handle(memory::PhysicalHandle handle,
                                                               std::uint32_t flags) {
  const std::lock_guard lock(mutex_);
  const auto physical = memory_.find(handle);
  if (!physical) return physical.error();
  if ((*physical)->is_foreign()) {
    client_.report_imported((*physical)->block(), (*physical)->spec().size);
    return fail(Errc::kRefused, Reason::kImportedMemory,
                "handle {} is memory that another process owns; ask its owner to share it", handle);
  }
  if (client_.address().mode == share::BrokerMode::kNone) return client_.session().error();
  // Already now: when the broker's answer gets lost, a handle may be out all the same.
  (*physical)->mark_exported();
  const std::uint64_t block = (*physical)->block();
  const auto reply = client_.export_handle(block, flags);
  if (!reply) return reply.error();
  exported_.insert_or_assign(
      block, Exported{.token = share::HandleName::of_token(reply->token),
                      .fabric = share::HandleName::of_fabric(share::fabric_handle_of(*reply)),
                      .device = (*physical)->spec().device});
  return *reply;
}

Result<memory::PhysicalHandle> PhysicalSharing::import(const share::HandleName& name, int device,
                                                       Properties properties) {
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [block, exported] : exported_) {
      if (exported.device != device || !(same(name, exported.token) || same(name, exported.fabric)))
        continue;
      return fail(
          Errc::kRefused, Reason::kNone,
          "the shareable handle is this process's own, of memory of device {}; map the handle "
          "that it was made of, as often as it is needed",
          device);
    }
  }
  auto imported = handles_.import(name, static_cast<std::uint32_t>(Access::kReadWrite));
  if (!imported) return imported.error();
  return memory_.adopt(
      {.file = std::move(imported->fd),
       .backing = imported->backing == wire::Backing::kHugetlb ? os::Backing::kHugetlb
                                                               : os::Backing::kShmem,
       .right = std::make_shared<share::Handles::Hold>(std::move(imported->hold)),
       .share = imported->share,
       .without_properties = properties == Properties::kUnknown},
      {.device = device, .size = imported->size, .page = imported->page});
}

Result<void> PhysicalSharing::free(memory::PhysicalHandle handle) {
  std::shared_ptr<memory::Physical>
      last;  // Outlives the lock: its end asks the broker, and unmaps.
  const std::lock_guard lock(mutex_);
  auto freed = memory_.free(handle);
  if (!freed) return freed.error();
  last = std::move(*freed);
  if (last == nullptr) return {};
  // Queued work may keep it longer than anybody who could still mean its keys.
  if (last->unused() && last.use_count() > 1) last->end_keys();
  const auto found = exported_.find(last->block());
  if (last->is_foreign() || found == exported_.end()) return {};
  // A broker that is gone took the shareable handle along.
  static_cast<void>(client_.withdraw(found->second.token).has_value());
  exported_.erase(found);
  return {};
}

}  // namespace hufu::runtime
