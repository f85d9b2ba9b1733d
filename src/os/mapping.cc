#include "os/mapping.h"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cassert>
#include <cerrno>
#include <utility>

#include "os/headroom.h"
#include "os/kernel_abi.h"

namespace hufu::os {
namespace {

constexpr std::uint64_t kFaultBytes = 4 * kKiB;  // At least this much PROT_NONE behind the guard.
constexpr std::uint64_t kMaxLength = std::uint64_t{1} << 46U;  // Half of a user's address space.
constexpr std::uint64_t kCommitStep = 64 * kMiB;

// Reading /proc/meminfo costs more than committing a small block does, so it is read once per
// kCommitStep of memory, whatever the size of the pieces it is committed in.
std::atomic<std::uint64_t> unchecked_bytes{kCommitStep};

bool is_time_to_check(std::uint64_t step) {
  if (unchecked_bytes.fetch_add(step, std::memory_order_relaxed) + step < kCommitStep) return false;
  unchecked_bytes.store(0, std::memory_order_relaxed);
  return true;
}

Error fail_mapping(int sys_errno, std::string_view what, std::uint64_t length) {
  if (sys_errno == ENOMEM) {
    Error error = fail(Errc::kOutOfMemory, Reason::kMemory,
                       "{} of {} bytes: no address space or no map entry left; see ulimit -v and "
                       "sysctl vm.max_map_count",
                       what, length);
    error.sys_errno = sys_errno;
    return error;
  }
  return fail_errno(what, sys_errno);
}

}  // namespace

Result<GuardedMapping> GuardedMapping::map(int fd, const MapRange& range) {
  assert(is_aligned(range.offset, 4 * kKiB) && is_aligned(range.length, 4 * kKiB));
  assert(range.length != 0);
  if (range.length > kMaxLength) {
    return fail(Errc::kOutOfMemory, Reason::kSizeTooLarge,
                "{} bytes are more than the {} bytes of address space a mapping may take",
                range.length, kMaxLength);
  }

  // Reserve enough to find an aligned base inside, then give back what is before and behind.
  const std::uint64_t alignment = bytes_of(range.alignment);
  const std::uint64_t needed = range.length + kGuardBytes + kFaultBytes;
  const std::uint64_t slack = alignment - 4 * kKiB;
  void* raw = ::mmap(nullptr, needed + slack, PROT_NONE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (raw == MAP_FAILED) return fail_mapping(errno, "reserving address space", range.length);

  GuardedMapping mapping;
  mapping.reservation_ = static_cast<std::byte*>(raw);
  mapping.reserved_ = needed + slack;

  const auto start = reinterpret_cast<std::uintptr_t>(raw);
  const std::uint64_t before = *round_up(start, alignment) - start;
  mapping.base_ = mapping.reservation_ + before;
  mapping.length_ = range.length;
  // A trim that the kernel refuses (it may need a map entry) leaves some address space unused.
  const std::uint64_t behind = slack - before;
  if (behind != 0 && ::munmap(mapping.base_ + needed, behind) == 0) mapping.reserved_ -= behind;
  if (before != 0 && ::munmap(raw, before) == 0) {
    mapping.reservation_ += before;
    mapping.reserved_ -= before;
  }

  const int prot = range.access == Access::kReadWrite ? PROT_READ | PROT_WRITE : PROT_READ;
  if (::mmap(mapping.base_, range.length, prot, MAP_SHARED | MAP_FIXED, fd,
             static_cast<off_t>(range.offset)) == MAP_FAILED) {
    return fail_mapping(errno, "mapping", range.length);
  }
  if (::mmap(mapping.base_ + range.length, kGuardBytes, PROT_READ | PROT_WRITE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED) {
    return fail_mapping(errno, "mapping a guard page", range.length);
  }
  if (::madvise(mapping.reservation_, mapping.reserved_, MADV_DONTFORK) != 0) {
    return fail_mapping(errno, "madvise(DONTFORK)", range.length);
  }
  if (!range.in_core_dumps && ::madvise(mapping.base_, range.length, MADV_DONTDUMP) != 0) {
    return fail_mapping(errno, "madvise(DONTDUMP)", range.length);
  }
  return mapping;
}

GuardedMapping::GuardedMapping(GuardedMapping&& other) noexcept
    : reservation_(std::exchange(other.reservation_, nullptr)),
      reserved_(std::exchange(other.reserved_, 0)),
      base_(std::exchange(other.base_, nullptr)),
      length_(std::exchange(other.length_, 0)) {}

GuardedMapping& GuardedMapping::operator=(GuardedMapping&& other) noexcept {
  if (this == &other) return *this;
  unmap();
  reservation_ = std::exchange(other.reservation_, nullptr);
  reserved_ = std::exchange(other.reserved_, 0);
  base_ = std::exchange(other.base_, nullptr);
  length_ = std::exchange(other.length_, 0);
  return *this;
}

Result<void> GuardedMapping::commit(PageSize page) {
  const bool huge = page != PageSize::k4KiB;
  if (huge) ::madvise(base_, length_, MADV_HUGEPAGE);

  std::uint64_t done = 0;
  while (done < length_) {
    const std::uint64_t step = std::min(kCommitStep, length_ - done);
    if (is_time_to_check(step)) {
      if (auto fits = require_headroom(length_ - done); !fits) return fits;
    }
    if (::madvise(base_ + done, step, MADV_POPULATE_WRITE) != 0) {
      const int sys_errno = errno;
      if (sys_errno == EINTR || sys_errno == EAGAIN) continue;
      if (sys_errno != ENOMEM && sys_errno != EFAULT) {
        return fail_errno("madvise(POPULATE_WRITE)", sys_errno);
      }
      Error error = fail(Errc::kOutOfMemory, Reason::kMemory,
                         "the kernel backed {} of {} bytes and has no page for the rest "
                         "(errno {}); free memory, or allocate less",
                         done, length_, sys_errno);
      error.sys_errno = sys_errno;
      return error;
    }
    // Where shmem is not allowed huge pages by itself (the usual setting), asking for them outright
    // works all the same. It copies: 20 to 160 ms for 64 MiB were seen; pages that are huge already
    // cost next to nothing. Where even that fails, small pages do the same work, slower.
    if (huge) ::madvise(base_ + done, step, MADV_COLLAPSE);
    done += step;
  }
  return {};
}

void GuardedMapping::unmap() {
  // munmap of one's own whole range fails only if the address is wrong: that would be our bug.
  if (reservation_ != nullptr) ::munmap(reservation_, reserved_);
  reservation_ = nullptr;
  reserved_ = 0;
  base_ = nullptr;
  length_ = 0;
}

}  // namespace hufu::os
