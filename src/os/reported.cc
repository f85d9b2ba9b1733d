#include "os/reported.h"

#include <fcntl.h>
#include <sys/mman.h>

#include <cassert>
#include <cerrno>

#include "os/kernel_abi.h"
#include "os/memfd.h"

namespace hufu::os {

static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

Result<ReportedView> ReportedView::make(const char* name, std::size_t bytes) {
  auto fd = make_memfd(name, bytes, Backing::kShmem);
  if (!fd) return fd.error();
  if (auto sealed = add_seals(fd->get(), F_SEAL_SEAL); !sealed) return sealed.error();
  void* base = ::mmap(nullptr, bytes, PROT_READ, MAP_SHARED, fd->get(), 0);
  if (base == MAP_FAILED) return fail_errno("mmap(reported memory)", errno);
  return ReportedView(std::move(*fd), static_cast<const std::byte*>(base), bytes);
}

ReportedView::~ReportedView() {
  // const_cast: munmap() has no const form.
  if (base_ != nullptr) ::munmap(const_cast<std::byte*>(base_), bytes_);
}

std::uint64_t ReportedView::word(std::size_t index) const {
  assert((index + 1) * sizeof(std::uint64_t) <= bytes_);
  const auto* word =
      reinterpret_cast<const std::atomic<std::uint64_t>*>(base_ + index * sizeof(std::uint64_t));
  return word->load(std::memory_order_relaxed);
}

Result<UniqueFd> ReportedView::writer() const { return reopen(fd_.get(), Access::kReadWrite); }

Result<ReportedMemory> ReportedMemory::map(int fd, std::size_t bytes) {
  const auto facts = facts_of(fd);
  if (!facts) return facts.error();
  const auto seals = seals_of(fd);
  if (!seals) return seals.error();
  constexpr int kNeeded = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
  if ((*seals & kNeeded) != kNeeded || facts->size < bytes) {
    return fail(Errc::kUnavailable, Reason::kBrokerUntrusted,
                "the broker's usage memory has {} bytes and seals {:#x}; {} bytes and seals {:#x} "
                "are needed: hufud and libhufu may be of different versions",
                facts->size, *seals, bytes, kNeeded);
  }
  void* base = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (base == MAP_FAILED) return fail_errno("mmap(usage memory)", errno);
  (void)::madvise(base, bytes, MADV_DONTFORK);
  return ReportedMemory(static_cast<std::byte*>(base), bytes);
}

ReportedMemory::~ReportedMemory() {
  if (base_ != nullptr) ::munmap(base_, bytes_);
}

std::atomic<std::uint64_t>& ReportedMemory::word(std::size_t index) const {
  assert((index + 1) * sizeof(std::uint64_t) <= bytes_);
  return *reinterpret_cast<std::atomic<std::uint64_t>*>(base_ + index * sizeof(std::uint64_t));
}

}  // namespace hufu::os
