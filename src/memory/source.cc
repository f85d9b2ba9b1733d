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
  const auto [device, size, page, hugetlb] = spec;
  const std::lock_guard lock(mutex_);
  if (device < 0 || static_cast<std::size_t>(device) >= used_.size()) {
    return fail_device(device, used_.size());
  }
  std::uint64_t& used = used_[static_cast<std::size_t>(device)];
  const std::uint64_t available = capacity_per_device_ - used;
  if (size > available) {
    return fail(Errc::kOutOfMemory, Reason::kCapacity,
                "{} bytes do not fit on device {}: {} of its {} bytes are free", size, device,
                available, capacity_per_device_);
  }
  auto file = os::make_block_file("hufu-local", size, page, hugetlb != Hugetlb::kNever);
  if (!file) return file.error();
  const std::uint64_t id = ++last_id_;
  live_.emplace(id, Charge{.device = device, .bytes = size});
  used += size;
  return Minted{.id = id, .fd = std::move(file->fd), .backing = file->backing};
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
