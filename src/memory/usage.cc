#include "memory/usage.h"

#include <algorithm>
#include <utility>

namespace hufu::memory {

void Usage::change(int device, std::initializer_list<Change> changes) {
  const auto index = static_cast<std::size_t>(device);
  const std::lock_guard lock(mutex_);
  for (const Change& change : changes) {
    devices_[index][change.count] += static_cast<std::uint64_t>(change.by);
    write(index, change.count);
  }
  raise_peaks(index);
}

void Usage::raise_peaks(std::size_t device) {
  const Counts& counts = devices_[device];
  const auto raise = [](Level& level, std::uint64_t now) {
    level = {.now = now, .peak = std::max(level.peak, now)};
  };
  raise(levels_[device].in_use, counts[kReserved] + counts[kChunks]);
  raise(levels_[device].ready, counts[kWarm] + counts[kSpare]);
}

Usage::Levels Usage::levels(int device) const {
  const std::lock_guard lock(mutex_);
  return levels_[static_cast<std::size_t>(device)];
}

Usage::Counts Usage::of(int device) const {
  const std::lock_guard lock(mutex_);
  return devices_[static_cast<std::size_t>(device)];
}

void Usage::report_to(std::shared_ptr<os::ReportedMemory> memory) {
  const std::lock_guard lock(mutex_);
  reported_ = std::move(memory);
  for (std::size_t device = 0; device < devices_.size(); ++device) {
    for (std::size_t count = 0; count < kCounts; ++count)
      write(device, count);
  }
}

void Usage::write(std::size_t device, std::size_t count) const {
  const std::size_t word = device * kCounts + count;
  if (reported_ == nullptr || word >= reported_->words()) return;
  reported_->word(word).store(devices_[device][count], std::memory_order_relaxed);
}

}  // namespace hufu::memory
