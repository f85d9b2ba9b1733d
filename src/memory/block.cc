#include "memory/block.h"

#include <cstring>
#include <utility>

#include "os/huge_pages.h"

namespace hufu::memory {

Result<Block> Block::make(PageSource& source, const BlockSpec& spec) {
  auto backing = os::Backing::kShmem;
  auto block = make_once(source, spec, &backing);
  if (block || block.error().code != Errc::kOutOfMemory) return block;
  // Somebody else was faster, or a hugetlb cgroup allows fewer.
  if (backing != os::Backing::kHugetlb) return block;
  if (spec.hugetlb == Hugetlb::kRequired) return os::fail_huge_pages(spec.size, spec.page);
  BlockSpec other = spec;
  other.hugetlb = Hugetlb::kNever;
  auto emulated = make_once(source, other, &backing);
  if (emulated) emulated->spec_ = spec;  // It serves the same wishes.
  return emulated;
}

Result<Block> Block::make_once(PageSource& source, const BlockSpec& spec, os::Backing* backing) {
  auto minted = source.mint(spec);
  if (!minted) return minted.error();
  *backing = minted->backing;
  const bool hugetlb = minted->backing == os::Backing::kHugetlb;
  if (spec.hugetlb == Hugetlb::kRequired && !hugetlb) {
    source.give_back(minted->id, Lent::kNever);
    return os::fail_huge_pages(spec.size, spec.page);
  }
  auto mapping =
      os::GuardedMapping::map(minted->fd.get(), {.length = spec.size, .alignment = spec.page});
  if (!mapping) {
    source.give_back(minted->id, Lent::kNever);
    return mapping.error();
  }
  Block block(&source, spec, minted->id, std::move(*mapping));
  const os::GuardedMapping& mapped = block.mapping_;
  const auto pages = hugetlb ? os::commit_huge_pages(mapped.base(), mapped.length())
                             : os::commit_pages(mapped.base(), mapped.length(), spec.page);
  if (!pages) return pages.error();
  block.pages_ = *pages;
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
      reused_(other.reused_),
      pages_(other.pages_),
      mapping_(std::move(other.mapping_)) {}

void Block::mark_exported(std::uint64_t used) {
  if (lent_ == Lent::kNever && reused_ && used < length()) {
    std::memset(mapping_.base() + used, 0, length() - used);
  }
  lent_ = Lent::kOnce;
}

void Block::give_back() {
  if (source_ != nullptr) std::exchange(source_, nullptr)->give_back(id_, lent_);
}

}  // namespace hufu::memory
