#include "runtime/broker_source.h"

#include <array>
#include <utility>

namespace hufu::runtime {

Result<memory::Minted> BrokerSource::mint(const memory::BlockSpec& spec) {
  const std::array specs = {wire::MintSpec{
      .size = spec.size, .page = static_cast<std::uint32_t>(spec.page), .reserved = 0}};
  auto minted = client_.mint(static_cast<std::uint32_t>(spec.device), specs);
  if (!minted) return minted.error();
  share::Client::Minted& block = minted->front();
  return memory::Minted{.id = block.block, .fd = std::move(block.fd)};
}

void BrokerSource::give_back(std::uint64_t id, memory::Lent lent) {
  // A broker that is gone took its books, and with them the block's charge and its keys, along.
  static_cast<void>(client_.free(id, lent == memory::Lent::kOnce).has_value());
}

Result<memory::Capacity> BrokerSource::capacity(int device) {
  const auto stat = client_.stat(static_cast<std::uint32_t>(device));
  if (!stat) return stat.error();
  return memory::Capacity{.total = stat->capacity, .free = stat->capacity - stat->used};
}

}  // namespace hufu::runtime
