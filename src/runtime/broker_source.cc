#include "runtime/broker_source.h"

#include <algorithm>
#include <utility>

namespace hufu::runtime {
namespace {

memory::Minted minted_of(share::Client::Minted minted) {
  const bool hugetlb = minted.backing == wire::Backing::kHugetlb;
  return {.id = minted.block,
          .fd = std::move(minted.fd),
          .backing = hugetlb ? os::Backing::kHugetlb : os::Backing::kShmem};
}

}  // namespace

Result<memory::Minted> BrokerSource::mint(const memory::BlockSpec& spec) {
  std::size_t batch = 0;
  {
    const std::lock_guard lock(mutex_);
    forget_stale();
    const auto found = std::find_if(spares_.rbegin(), spares_.rend(),
                                    [&](const Spare& spare) { return spare.spec == spec; });
    if (found != spares_.rend()) {
      memory::Minted minted = std::move(found->minted);
      spares_.erase(std::next(found).base());
      spare_bytes_ -= spec.size;
      count(spec, -1);
      return minted;
    }
    batch = batch_for(spec);
  }
  const bool hugetlb = spec.hugetlb != memory::Hugetlb::kNever;
  const bool sparse = spec.charging == memory::Charging::kByUse;
  const wire::MintSpec one{.size = spec.size,
                           .page = static_cast<std::uint32_t>(spec.page),
                           .flags = (hugetlb ? std::uint32_t{wire::kWantHugetlb} : 0U) |
                                    (sparse ? std::uint32_t{wire::kSparse} : 0U)};
  const auto device = static_cast<std::uint32_t>(spec.device);
  if (batch > 1 && !agent_.listen()) batch = 1;
  // Without the lock: the broker may have to ask for the spares before it can answer.
  auto minted = client_.mint(device, std::vector(batch, one));
  if (!minted && batch > 1) minted = client_.mint(device, std::vector(1, one));
  if (!minted) return minted.error();

  const std::lock_guard lock(mutex_);
  const std::uint64_t session = client_.generation();
  for (std::size_t i = 1; i < minted->size(); ++i) {
    share::Client::Minted& spare = (*minted)[i];
    spares_.push_back({.spec = spec, .session = session, .minted = minted_of(std::move(spare))});
    spare_bytes_ += spec.size;
    count(spec, 1);
  }
  return minted_of(std::move(minted->front()));
}

std::size_t BrokerSource::batch_for(const memory::BlockSpec& spec) {
  last_batch_ = spec == last_spec_ ? std::max(std::size_t{1}, last_batch_ * 2) : 1;
  last_spec_ = spec;
  const bool sparse = spec.charging == memory::Charging::kByUse;
  if (spec.size > kMaxSpareSize || sparse) last_batch_ = 1;
  const std::uint64_t room = (kMaxSpareBytes - std::min(spare_bytes_, kMaxSpareBytes)) / spec.size;
  last_batch_ = std::min({last_batch_, 1 + static_cast<std::size_t>(room),
                          1 + kMaxSpares - std::min(spares_.size(), kMaxSpares),
                          std::size_t{wire::kMaxMint}});
  return last_batch_;
}

void BrokerSource::forget_stale() {
  const std::uint64_t session = client_.generation();
  std::erase_if(spares_, [&](const Spare& spare) {
    if (spare.session == session) return false;
    spare_bytes_ -= spare.spec.size;
    count(spare.spec, -1);
    return true;
  });
}

void BrokerSource::count_in(memory::Usage* usage) {
  const std::lock_guard lock(mutex_);
  usage_ = usage;
}

void BrokerSource::count(const memory::BlockSpec& spec, std::int64_t sign) const {
  if (usage_ == nullptr) return;
  usage_->change(spec.device,
                 {{memory::Usage::kSpare, sign * static_cast<std::int64_t>(spec.size)}});
}

static_assert(memory::kChargeUnit == wire::kChargeUnit);

Result<void> BrokerSource::charge(std::uint64_t id, std::uint64_t bytes) {
  const auto charged = client_.charge(id, bytes);
  if (!charged) return charged.error();
  return {};
}

void BrokerSource::give_back(std::uint64_t id, memory::Lent lent) {
  // A broker that is gone took its books, and with them the block's charge and its keys, along.
  static_cast<void>(client_.free(id, lent == memory::Lent::kOnce).has_value());
}

void BrokerSource::end_keys(std::uint64_t id) {
  static_cast<void>(client_.end_all(id).has_value());  // As above.
}

void BrokerSource::end_keys(std::uint64_t id, std::uint64_t offset, std::uint64_t size) {
  static_cast<void>(client_.end_range(id, offset, size).has_value());  // As above.
}

std::uint64_t BrokerSource::give_back_spares() {
  std::vector<Spare> ending;
  std::uint64_t bytes = 0;
  {
    const std::lock_guard lock(mutex_);
    forget_stale();
    ending.swap(spares_);
    for (const Spare& spare : ending)
      count(spare.spec, -1);
    bytes = std::exchange(spare_bytes_, 0);
    last_batch_ = 0;
  }
  for (const Spare& spare : ending)
    give_back(spare.minted.id, memory::Lent::kNever);
  return bytes;
}

Result<memory::Capacity> BrokerSource::capacity(int device) {
  const auto stat = client_.stat(static_cast<std::uint32_t>(device));
  if (!stat) return stat.error();
  // More than there is, when books were rebuilt or stray writes counted.
  memory::Capacity capacity{.total = stat->capacity,
                            .free = stat->capacity - std::min(stat->used, stat->capacity)};
  const std::lock_guard lock(mutex_);
  forget_stale();
  for (const Spare& spare : spares_) {
    if (spare.spec.device == device) capacity.free += spare.spec.size;
  }
  return capacity;
}

}  // namespace hufu::runtime
