#include "memory/host_memory.h"

#include <pthread.h>
#include <sys/mman.h>

#include <cerrno>

#include "base/units.h"
#include "os/commit.h"
#include "os/mapping.h"

namespace hufu::memory {
namespace {

constexpr std::uint64_t kGranule = 32;
constexpr std::uint64_t kPage = 4 * kKiB;
constexpr std::uint64_t kMaxSize = std::uint64_t{1} << 46U;  // Half of a user's address space.

Region region_of(std::uintptr_t base, std::uint64_t size) {
  return {.base = base, .mapped = size, .reported = size, .kind = RegionKind::kHost};
}

}  // namespace

HostMemory& HostMemory::of_process() {
  static HostMemory& memory = []() -> HostMemory& {
    auto* made = new HostMemory();
    // A child must not inherit books that another thread of the parent was just writing.
    ::pthread_atfork([] { of_process().mutex_.lock(); }, [] { of_process().mutex_.unlock(); },
                     [] {
                       of_process().registry_ = nullptr;  // The parent's, with its device memory.
                       of_process().mutex_.unlock();
                     });
    return *made;
  }();
  return memory;
}

void HostMemory::attach(AddressRegistry& registry) {
  const std::lock_guard lock(mutex_);
  registry_ = &registry;
  for (const auto& [base, range] : ranges_)
    registry.add(region_of(base, range.size));
}

Result<void*> HostMemory::allocate(std::uint64_t size) {
  if (size == 0) return fail(Errc::kInvalidArgument, Reason::kEmptyRange, "size is 0");
  if (size > kMaxSize) {
    return fail(Errc::kOutOfMemory, Reason::kSizeTooLarge,
                "{} bytes are more than the {} bytes of address space that an allocation may take",
                size, kMaxSize);
  }
  auto pages = Pages::map(*round_up(size, kPage));
  if (!pages) return pages.error();
  std::byte* base = pages->base();
  if (auto committed = os::commit_pages(base, pages->length(), PageSize::k4KiB); !committed) {
    return committed.error();
  }
  const auto address = reinterpret_cast<std::uintptr_t>(base);
  const std::uint64_t rounded = *round_up(size, kGranule);
  const std::lock_guard lock(mutex_);
  ranges_.try_emplace(address, Range{.pages = std::move(*pages), .size = rounded});
  if (registry_ != nullptr) registry_->add(region_of(address, rounded));
  return static_cast<void*>(base);
}

Result<HostMemory::Pages> HostMemory::retire(const void* pointer) {
  const auto address = reinterpret_cast<std::uintptr_t>(pointer);
  const std::lock_guard lock(mutex_);
  const auto found = ranges_.find(address);
  if (found == ranges_.end()) {
    return fail(Errc::kInvalidValue, Reason::kNone,
                "address {:#x} does not start an allocation of host memory that is in use; pass "
                "what aclrtMallocHost returned, once (device memory ends with aclrtFree)",
                address);
  }
  // Out of the registry before its addresses can be given to somebody else.
  if (registry_ != nullptr) registry_->remove(address);
  Pages pages = std::move(found->second.pages);
  ranges_.erase(found);
  return pages;
}

Result<HostMemory::Pages> HostMemory::Pages::map(std::uint64_t length) {
  void* base = ::mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (base == MAP_FAILED) return os::fail_mapping(errno, "mapping host memory", length);
  return Pages(static_cast<std::byte*>(base), length);
}

HostMemory::Pages::~Pages() {
  if (base_ != nullptr) ::munmap(base_, length_);
}

}  // namespace hufu::memory
