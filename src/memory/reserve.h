#pragma once

// Reserve: freed blocks that stay mapped and committed, for the next allocation of their kind.
//
// Making a block costs a call to the broker and the kernel's clearing of every page; taking one
// from here costs neither, nor any system call. What may be kept follows from one rule: a file that
// was ever lent is never used again, since whoever had it may have it still. So a block from here
// was this process's alone, and its old bytes are this process's own. They are not cleared: device
// memory has no promised content. (What of them no allocation covers is, before a first export.)
//
//   obtain ── a block of the same size, page and device is here ──▶ that one, the newest
//        └─── else ──▶ a new one
//   keep   ── what is too much goes, the one that was used longest ago first
//
// Kept blocks count against their device at the broker and as free in this process. So they are
// given back when anybody lacks memory: this heap, before it says so, or the broker, by asking.
//
// Thread-safe.

#include <cstddef>
#include <cstdint>
#include <list>
#include <mutex>
#include <optional>

#include "base/result.h"
#include "memory/block.h"
#include "memory/source.h"
#include "memory/usage.h"

namespace hufu::memory {

class Reserve {
 public:
  static constexpr std::uint64_t kMaxBytes = 64 * kMiB;
  // Each is a descriptor of the broker's and some entries of this process's map.
  static constexpr std::size_t kMaxBlocks = 512;

  // Both outlive this.
  Reserve(PageSource& source, Usage& usage) : source_(source), usage_(usage) {}

  Result<Block> obtain(const BlockSpec& spec);

  // The block's program is done with it.
  void keep(Block block);

  // Ends all of them; how many bytes that were.
  std::uint64_t give_back();

  // Kept for a device.
  std::uint64_t bytes(int device) const;

 private:
  using Blocks = std::list<Block>;

  std::optional<Block> take(const BlockSpec& spec);
  void count(const Block& block, std::int64_t sign) const;
  bool is_stale(const Block& block) const { return block.session() != source_.session(); }

  PageSource& source_;
  Usage& usage_;
  mutable std::mutex mutex_;
  Blocks blocks_;  // The newest first.
  std::uint64_t bytes_ = 0;
};

}  // namespace hufu::memory
