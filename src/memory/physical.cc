#include "memory/physical.h"

#include <atomic>
#include <utility>

#include "os/huge_pages.h"

namespace hufu::memory {
namespace {

// "PM", above what x86-64 and aarch64 can address from user space; then a counter, then six zero
// bits: the alignment that a pointer to an object would have.
constexpr std::uintptr_t kTag = std::uintptr_t{0x504d} << 48U;
constexpr unsigned kCountShift = 6;

// The process's: a forked child has its parent's numbers behind it.
constinit std::atomic<std::uintptr_t> handles_made{0};

std::uintptr_t number_of(PhysicalHandle handle) { return reinterpret_cast<std::uintptr_t>(handle); }

Error fail_handle(PhysicalHandle handle) {
  return fail(Errc::kInvalidHandle, Reason::kNone,
              "handle {} is no physical memory of this process, or was freed; pass what "
              "aclrtMallocPhysical, an import or aclrtMemRetainAllocationHandle gave, until it is "
              "freed as often as it was given",
              handle);
}

}  // namespace

// --- Physical ------------------------------------------------------------------------------------

Result<std::shared_ptr<Physical>> Physical::make(PageSource& source, Hugetlb huge_pages,
                                                 const PhysicalSpec& spec) {
  auto backing = os::Backing::kShmem;
  auto made = make_once(source, huge_pages, spec, &backing);
  if (made || made.error().code != Errc::kOutOfMemory) return made;
  if (huge_pages == Hugetlb::kRequired) {
    if (spec.may_fall_back) return make_once(source, Hugetlb::kNever, spec, &backing);
    if (backing == os::Backing::kHugetlb) return os::fail_huge_pages(spec.size, spec.page);
    return made;
  }
  // Somebody else was faster, or a hugetlb cgroup allows fewer.
  if (backing != os::Backing::kHugetlb) return made;
  return make_once(source, Hugetlb::kNever, spec, &backing);
}

Result<std::shared_ptr<Physical>> Physical::make_once(PageSource& source, Hugetlb huge_pages,
                                                      const PhysicalSpec& spec,
                                                      os::Backing* backing) {
  auto minted = source.mint(
      {.device = spec.device, .size = spec.size, .page = spec.page, .hugetlb = huge_pages});
  if (!minted) return minted.error();
  std::shared_ptr<Physical> physical(new Physical(&source, spec, minted->id));
  *backing = minted->backing;
  const bool hugetlb = minted->backing == os::Backing::kHugetlb;
  if (huge_pages == Hugetlb::kRequired && !hugetlb) {
    return os::fail_huge_pages(spec.size, spec.page);
  }
  auto parked = os::ParkedPages::make(std::move(minted->fd), minted->backing, spec.size, spec.page);
  if (!parked) return parked.error();
  physical->pages_ = std::move(*parked);
  os::ParkedPages& pages = physical->pages_;
  const auto made_of = hugetlb ? os::commit_huge_pages(pages.base(), spec.size)
                               : os::commit_pages(pages.base(), spec.size, spec.page);
  if (!made_of) return made_of.error();
  physical->made_of_ = *made_of;
  if (auto hidden = pages.hide(); !hidden) return hidden.error();
  return physical;
}

Result<std::shared_ptr<Physical>> Physical::of(ForeignPages foreign, const PhysicalSpec& spec) {
  std::shared_ptr<Physical> physical(new Physical(nullptr, spec, foreign.share));
  physical->right_ = std::move(foreign.right);
  physical->has_properties_ = !foreign.without_properties;
  auto parked =
      os::ParkedPages::make(std::move(foreign.file), foreign.backing, spec.size, spec.page);
  if (!parked) return parked.error();
  physical->pages_ = std::move(*parked);
  if (auto kept = physical->pages_.keep_out_of_dumps(); !kept) return kept.error();
  if (auto hidden = physical->pages_.hide(); !hidden) return hidden.error();
  return physical;
}

void Physical::end_keys() {
  if (source_ != nullptr && lent_ == Lent::kOnce) source_->end_keys(block_);
}

Physical::~Physical() {
  // Then the pages: nobody may import what is being unmapped.
  if (source_ != nullptr) source_->give_back(block_, lent_);
  at_end_();
}

// --- PhysicalMemory ------------------------------------------------------------------------------

Result<PhysicalHandle> PhysicalMemory::allocate(const PhysicalSpec& spec) {
  auto made = Physical::make(source_, huge_pages_, spec);
  if (!made && made.error().code == Errc::kOutOfMemory && heap_.give_back_reserve() != 0) {
    made = Physical::make(source_, huge_pages_, spec);
  }
  if (!made) return made.error();
  Physical& physical = **made;
  const auto size = static_cast<std::int64_t>(spec.size);
  const bool fell_back = physical.made_of() == os::Pages::kSmall;
  heap_.usage().change(spec.device, {{Usage::kRequested, size},
                                     {Usage::kReserved, size},
                                     {Usage::kBlocks, 1},
                                     {Usage::kFallbacks, fell_back ? 1 : 0}});
  physical.at_end_ = [&usage = heap_.usage(), device = spec.device, size] {
    usage.change(device,
                 {{Usage::kRequested, -size}, {Usage::kReserved, -size}, {Usage::kBlocks, -1}});
  };
  return give_number(*made);
}

Result<PhysicalHandle> PhysicalMemory::adopt(ForeignPages foreign, const PhysicalSpec& spec) {
  const auto made = Physical::of(std::move(foreign), spec);
  if (!made) return made.error();
  return give_number(*made);
}

PhysicalHandle PhysicalMemory::give_number(const std::shared_ptr<Physical>& physical) {
  physical->number_ = kTag | (handles_made.fetch_add(1) + 1) << kCountShift;
  return retain(physical);
}

Result<std::shared_ptr<Physical>> PhysicalMemory::find(PhysicalHandle handle) const {
  const std::lock_guard lock(mutex_);
  const auto found = handles_.find(number_of(handle));
  if (found == handles_.end()) return fail_handle(handle);
  return found->second.physical;
}

PhysicalHandle PhysicalMemory::retain(const std::shared_ptr<Physical>& physical) {
  const std::lock_guard lock(mutex_);
  const auto [at, is_new] =
      handles_.try_emplace(physical->number_, Entry{.physical = physical, .references = 0});
  if (is_new) physical->begin_use();
  ++at->second.references;
  return reinterpret_cast<PhysicalHandle>(physical->number_);
}

Result<std::shared_ptr<Physical>> PhysicalMemory::free(PhysicalHandle handle) {
  const std::lock_guard lock(mutex_);
  const auto found = handles_.find(number_of(handle));
  if (found == handles_.end()) return fail_handle(handle);
  if (--found->second.references != 0) return std::shared_ptr<Physical>();
  auto last = std::move(found->second.physical);
  handles_.erase(found);
  last->end_use();
  return last;
}

std::size_t PhysicalMemory::count() const {
  const std::lock_guard lock(mutex_);
  return handles_.size();
}

}  // namespace hufu::memory
