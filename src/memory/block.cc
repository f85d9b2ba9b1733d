#include "memory/block.h"

#include <utility>

#include "os/commit.h"

namespace hufu::memory {

Result<Block> Block::make(PageSource& source, const BlockSpec& spec) {
  auto minted = source.mint(spec);
  if (!minted) return minted.error();
  auto mapping =
      os::GuardedMapping::map(minted->fd.get(), {.length = spec.size, .alignment = spec.page});
  if (!mapping) {
    source.give_back(minted->id, Lent::kNever);
    return mapping.error();
  }
  Block block(&source, spec, minted->id, std::move(*mapping));
  const os::GuardedMapping& mapped = block.mapping_;
  if (auto committed = os::commit_pages(mapped.base(), mapped.length(), spec.page); !committed) {
    return committed.error();
  }
  return block;
}

Block::Block(PageSource* source, const BlockSpec& spec, std::uint64_t id,
             os::GuardedMapping mapping)
    : source_(source),
      spec_(spec),
      session_(source->session()),
      id_(id),
      mapping_(std::move(mapping)) {}

Block::Block(Block&& other) noexcept
    : source_(std::exchange(other.source_, nullptr)),
      spec_(other.spec_),
      session_(other.session_),
      id_(other.id_),
      lent_(other.lent_),
      mapping_(std::move(other.mapping_)) {}

void Block::end() {
  if (source_ == nullptr) return;
  source_->give_back(id_, lent_);
  mapping_.unmap();
}

}  // namespace hufu::memory
