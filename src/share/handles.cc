#include "share/handles.h"

#include <algorithm>
#include <vector>

namespace hufu::share {

Handles::Hold::~Hold() {
  if (of_ != nullptr) of_->let_go(held_);
}

Handles::Hold::Hold(Hold&& other) noexcept
    : of_(std::exchange(other.of_, nullptr)), held_(other.held_) {}

Handles::Hold& Handles::Hold::operator=(Hold&& other) noexcept {
  std::swap(of_, other.of_);
  std::swap(held_, other.held_);
  return *this;
}

// Under the mutex also while the broker is asked: a last close that overtook an import would end
// what that one was just granted.
Result<Handles::Import> Handles::import(const HandleName& name, std::uint32_t access) {
  const std::lock_guard lock(mutex_);
  auto grant = client_.import(name, access);
  if (!grant) return grant.error();
  const wire::ImportReply& reply = grant->reply;
  const Client::Held held{.share = reply.share, .generation = grant->generation};
  ++open_[{held.generation, held.share}];
  return Import{.hold = Hold(this, held),
                .fd = std::move(grant->fd),
                .size = reply.size,
                .page = *page_size_of(reply.page),  // The codec lets no other pass.
                .access = static_cast<Access>(reply.access),
                .device = reply.device,
                .backing = reply.backing,
                .exporter_pid = reply.exporter_pid,
                .share = reply.share,
                .public_id = {reply.public_id},
                .status = grant->status,
                .grant = {.status = grant->status.get(), .slot = reply.slot, .live = reply.status}};
}

void Handles::let_go(const Client::Held& held) {
  const std::lock_guard lock(mutex_);
  const auto found = open_.find({held.generation, held.share});
  if (--found->second != 0) return;
  open_.erase(found);
  client_.close(held);
}

Result<void> Handles::list_pids(const HandleName& name, std::span<const std::int32_t> pids) {
  std::vector<std::int32_t> wanted(pids.begin(), pids.end());
  std::erase(wanted, 0);
  // With none left the broker is asked all the same, by the caller's own number, which it skips:
  // whether the handle lives and whose it is matters more than that nobody was named.
  const bool nobody = wanted.empty();
  if (nobody) {
    const auto session = client_.session();
    if (!session) return session.error();
    wanted.push_back(session->peer_pid);
  }
  for (std::size_t from = 0; from < wanted.size(); from += wire::kMaxListPids) {
    const auto some =
        std::span(wanted).subspan(from, std::min(wire::kMaxListPids, wanted.size() - from));
    if (const auto listed = client_.list_pids(name, some); !listed) return listed.error();
  }
  if (nobody) {
    return fail(Errc::kRefused, Reason::kNoSuchProcess,
                "the list of {} processes names none, all are 0; pass what "
                "aclrtDeviceGetBareTgid returned in each importer",
                pids.size());
  }
  return {};
}

}  // namespace hufu::share
