#pragma once

// Block: a minted file, mapped and committed. The unit of capacity and of protection: what is
// handed to another process is always a block's file, so nothing else may ever lie in it.
//
// Making one is minting (the source charges the device), mapping at the page's alignment, and
// committing every page. Any step that fails gives everything back. Huge pages come from where
// there are some: those the machine has reserved; else what the kernel can make huge; else, unless
// they are required, small ones do the work, at addresses as if they were huge.

#include <cstddef>
#include <cstdint>

#include "base/result.h"
#include "base/units.h"
#include "memory/source.h"
#include "os/commit.h"
#include "os/mapping.h"

namespace hufu::memory {

class Block {
 public:
  // `source` outlives the block.
  static Result<Block> make(PageSource& source, const BlockSpec& spec);

  // First the source, so that no key of it can be imported any more, then the mapping.
  ~Block() { give_back(); }
  Block(Block&& other) noexcept;
  Block& operator=(Block&&) = delete;
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;

  std::uint64_t id() const { return id_; }
  std::uintptr_t base() const { return reinterpret_cast<std::uintptr_t>(mapping_.base()); }
  std::uint64_t length() const { return mapping_.length(); }
  const BlockSpec& spec() const { return spec_; }
  os::Pages pages() const { return pages_; }          // What it is made of, whatever was wished.
  std::uint64_t session() const { return session_; }  // The source's, when it was minted.

  // The first half of its end. What remains is memory of nobody's, to be unmapped at leisure.
  void give_back();

  // It is committed, and this process may from now on only read it. Such a block is not used again.
  Result<void> make_read_only() { return mapping_.protect(Access::kReadOnly); }

  // It served an earlier allocation, whose bytes are in it.
  void mark_reused() { reused_ = true; }

  // Before the first key is asked for. An importer gets whole pages: what lies there behind the
  // `used` bytes is of an earlier allocation, which nobody means to share. Sticky: a file that left
  // this process once is never used for anything else.
  void mark_exported(std::uint64_t used);
  Lent lent() const { return lent_; }
  void end_keys() { source_->end_keys(id_); }

 private:
  Block(PageSource* source, const BlockSpec& spec, std::uint64_t id, os::GuardedMapping mapping);

  static Result<Block> make_once(PageSource& source, const BlockSpec& spec, os::Backing* backing);

  PageSource* source_;
  BlockSpec spec_;
  std::uint64_t session_;
  std::uint64_t id_;
  Lent lent_ = Lent::kNever;
  bool reused_ = false;
  os::Pages pages_ = os::Pages::kSmall;
  os::GuardedMapping mapping_;
};

}  // namespace hufu::memory
