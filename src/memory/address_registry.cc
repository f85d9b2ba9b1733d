#include "memory/address_registry.h"

#include <algorithm>
#include <cassert>
#include <mutex>

namespace hufu::memory {

void AddressRegistry::add(const Region& region) {
  const std::unique_lock lock(mutex_);
  const bool added = regions_.emplace(region.base, region).second;
  assert(added);
  static_cast<void>(added);
}

bool AddressRegistry::remove(std::uintptr_t base) {
  const std::unique_lock lock(mutex_);
  const auto found = regions_.find(base);
  if (found == regions_.end()) return false;
  const Region& region = found->second;
  tombstones_.push_front({.base = region.base, .end = region.end(), .kind = region.kind});
  if (tombstones_.size() > kTombstones) tombstones_.pop_back();
  regions_.erase(found);
  return true;
}

std::optional<Region> AddressRegistry::find(std::uintptr_t address) const {
  const std::shared_lock lock(mutex_);
  const auto found = regions_.lower_bound(address);  // The greatest base <= address.
  if (found == regions_.end() || address >= found->second.end()) return std::nullopt;
  return found->second;
}

std::optional<Tombstone> AddressRegistry::once_had(std::uintptr_t address) const {
  const std::shared_lock lock(mutex_);
  const auto found = std::find_if(tombstones_.begin(), tombstones_.end(), [&](const Tombstone& t) {
    return t.base <= address && address < t.end;
  });
  if (found == tombstones_.end()) return std::nullopt;
  return *found;
}

std::vector<Region> AddressRegistry::list() const {
  const std::shared_lock lock(mutex_);
  std::vector<Region> regions;
  regions.reserve(regions_.size());
  for (auto it = regions_.rbegin(); it != regions_.rend(); ++it)
    regions.push_back(it->second);
  return regions;
}

}  // namespace hufu::memory
