#include "os/commit.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>

#include "os/headroom.h"
#include "os/kernel_abi.h"

namespace hufu::os {
namespace {

// Between two steps somebody else may have taken what was there before the first.
constexpr std::uint64_t kCommitStep = 64 * kMiB;

// [done, done + step) of a range of `length` bytes.
Result<void> populate(std::byte* base, std::uint64_t done, std::uint64_t step,
                      std::uint64_t length) {
  while (::madvise(base + done, step, MADV_POPULATE_WRITE) != 0) {
    const int sys_errno = errno;
    if (sys_errno == EINTR || sys_errno == EAGAIN) continue;
    if (sys_errno != ENOMEM && sys_errno != EFAULT) {
      return fail_errno("madvise(POPULATE_WRITE)", sys_errno);
    }
    Error error = fail(Errc::kOutOfMemory, Reason::kMemory,
                       "the kernel backed {} of {} bytes and has no page for the rest (errno {}); "
                       "free memory, or allocate less",
                       done, length, sys_errno);
    error.sys_errno = sys_errno;
    return error;
  }
  return {};
}

// Asks for huge pages outright, which works where shmem is not allowed any by itself (the usual
// setting). It copies: 20 to 160 ms for 64 MiB were seen; pages that are huge already cost next to
// nothing. Pages that somebody looks at just then are worth another try. Where even that fails,
// small pages do the same work, slower.
bool collapse(std::byte* base, std::uint64_t length) {
  constexpr int kTries = 3;
  for (int i = 0; i < kTries; ++i) {
    if (::madvise(base, length, MADV_COLLAPSE) == 0) return true;
    if (errno != EAGAIN) return false;
  }
  return false;
}

}  // namespace

Result<Pages> commit_pages(std::byte* base, std::uint64_t length, PageSize page) {
  const bool wish = page != PageSize::k4KiB;
  if (wish) ::madvise(base, length, MADV_HUGEPAGE);

  bool huge = wish;
  std::uint64_t done = 0;
  while (done < length) {
    const std::uint64_t step = std::min(kCommitStep, length - done);
    const auto fits = length > kCommitStep ? check_headroom(memory_limits(), length - done)
                                           : require_headroom(length);
    if (!fits) return fits.error();
    if (auto backed = populate(base, done, step, length); !backed) return backed.error();
    if (wish && !collapse(base + done, step)) huge = false;
    done += step;
  }
  return huge ? Pages::kHuge : Pages::kSmall;
}

Result<Pages> commit_huge_pages(std::byte* base, std::uint64_t length) {
  if (auto backed = populate(base, 0, length, length); !backed) return backed.error();
  return Pages::kHuge;
}

}  // namespace hufu::os
