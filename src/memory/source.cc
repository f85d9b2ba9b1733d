#include "memory/source.h"

#include <utility>

namespace hufu::memory {
namespace {

Error fail_device(int device, std::size_t devices) {
  return fail(Errc::kInvalidDevice, Reason::kNoDevice, "device {} of {}: ids start at 0", device,
              devices);
}

}  // namespace

LocalSource::LocalSource(const LocalDevices& devices)
    : capacity_per_device_(devices.capacity), used_(static_cast<std::size_t>(devices.count), 0) {}

Result<Minted> LocalSource::mint(const BlockSpec& spec) {
  const auto [device, size, page, hugetlb, charging] = spec;
  const std::lock_guard lock(mutex_);
  if (device < 0 || static_cast<std::size_t>(device) >= used_.size()) {
    return fail_device(device, used_.size());
  }
  std::uint64_t& used = used_[static_cast<std::size_t>(device)];
  const bool sparse = charging == Charging::kByUse;
  if (size > capacity_per_device_ - (sparse ? 0 : used)) return fail_capacity(device, size);
  auto file = os::make_block_file("hufu-local", size, page, hugetlb != Hugetlb::kNever);
  if (!file) return file.error();
  const std::uint64_t id = ++last_id_;
  const std::uint64_t charged = sparse ? 0 : size;
  live_.emplace(id, Charge{.device = device, .bytes = charged, .most = sparse ? size : 0});
  used += charged;
  return Minted{.id = id, .fd = std::move(file->fd), .backing = file->backing};
}

Result<void> LocalSource::charge(std::uint64_t id, std::uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  const auto found = live_.find(id);
  const std::uint64_t most = found == live_.end() ? 0 : found->second.most;
  if (most == 0 || bytes > most || !is_aligned(bytes, kChargeUnit)) {
    return fail(Errc::kRefused, Reason::kBadCharge, "block {} cannot be charged {} bytes by use",
                id, bytes);
  }
  Charge& charge = found->second;
  std::uint64_t& used = used_[static_cast<std::size_t>(charge.device)];
  if (bytes > charge.bytes && bytes - charge.bytes > capacity_per_device_ - used) {
    return fail_capacity(charge.device, bytes - charge.bytes);
  }
  used += bytes - charge.bytes;
  charge.bytes = bytes;
  return {};
}

Error LocalSource::fail_capacity(int device, std::uint64_t bytes) const {
  return fail(Errc::kOutOfMemory, Reason::kCapacity,
              "{} bytes do not fit on device {}: {} of its {} bytes are free", bytes, device,
              capacity_per_device_ - used_[static_cast<std::size_t>(device)], capacity_per_device_);
}

void LocalSource::give_back(std::uint64_t id, Lent /*lent*/) {
  const std::lock_guard lock(mutex_);
  const auto found = live_.find(id);
  if (found == live_.end()) return;
  used_[static_cast<std::size_t>(found->second.device)] -= found->second.bytes;
  live_.erase(found);
}

Result<Capacity> LocalSource::capacity(int device) {
  const std::lock_guard lock(mutex_);
  if (device < 0 || static_cast<std::size_t>(device) >= used_.size()) {
    return fail_device(device, used_.size());
  }
  return Capacity{.total = capacity_per_device_,
                  .free = capacity_per_device_ - used_[static_cast<std::size_t>(device)]};
}

}  // namespace hufu::memory
