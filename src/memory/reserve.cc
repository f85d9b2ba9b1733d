#include "memory/reserve.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace hufu::memory {

Result<Block> Reserve::obtain(const BlockSpec& spec) {
  if (auto warm = take(spec)) return std::move(*warm);
  return Block::make(source_, spec);
}

std::optional<Block> Reserve::take(const BlockSpec& spec) {
  Blocks taken;
  {
    const std::lock_guard lock(mutex_);
    const auto found = std::find_if(blocks_.begin(), blocks_.end(), [&](const Block& block) {
      return block.spec() == spec && !is_stale(block);
    });
    if (found == blocks_.end()) return std::nullopt;
    bytes_ -= found->length();
    taken.splice(taken.begin(), blocks_, found);
    count(taken.front(), -1);
  }
  taken.front().mark_reused();
  return std::move(taken.front());
}

void Reserve::keep(Block block) {
  if (block.lent() == Lent::kOnce || block.length() > kMaxBytes || is_stale(block)) return;
  Blocks kept;
  kept.push_back(std::move(block));
  Blocks ending;  // Outlives the lock: an end asks the broker, and unmaps.
  bool begins = false;
  {
    const std::lock_guard lock(mutex_);
    begins = blocks_.empty() || is_stale(blocks_.front());
    if (begins) {  // All of them are older still.
      ending.swap(blocks_);
      bytes_ = 0;
      for (const Block& old : ending)
        count(old, -1);
    }
    bytes_ += kept.front().length();
    count(kept.front(), 1);
    blocks_.splice(blocks_.begin(), kept);
    while (bytes_ > kMaxBytes || blocks_.size() > kMaxBlocks) {
      bytes_ -= blocks_.back().length();
      count(blocks_.back(), -1);
      ending.splice(ending.begin(), blocks_, std::prev(blocks_.end()));
    }
  }
  if (begins && !source_.reserve_begins()) give_back();
}

std::uint64_t Reserve::give_back() {
  Blocks ending;
  std::uint64_t bytes = 0;
  {
    const std::lock_guard lock(mutex_);
    ending.swap(blocks_);
    bytes = std::exchange(bytes_, 0);
    for (const Block& block : ending)
      count(block, -1);
  }
  // Whoever waits for the capacity waits for this, and not for unmapping.
  for (Block& block : ending)
    block.give_back();
  return bytes;
}

void Reserve::count(const Block& block, std::int64_t sign) const {
  usage_.change(block.spec().device,
                {{Usage::kWarm, sign * static_cast<std::int64_t>(block.length())}});
}

std::uint64_t Reserve::bytes(int device) const {
  const std::lock_guard lock(mutex_);
  std::uint64_t bytes = 0;
  for (const Block& block : blocks_) {
    if (block.spec().device == device && !is_stale(block)) bytes += block.length();
  }
  return bytes;
}

}  // namespace hufu::memory
