#include "os/host_pages.h"

#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <optional>
#include <string>

#include "base/units.h"
#include "os/file.h"

namespace hufu::os {
namespace {

constexpr std::uint64_t kPage = 4 * kKiB;

struct Pages {
  std::uintptr_t first;
  std::uint64_t bytes;
};

// Nothing when no program has such addresses.
std::optional<Pages> pages_of(const void* pointer, std::uint64_t size) {
  constexpr std::uint64_t kEnd = std::uint64_t{1} << 47U;
  const auto address = reinterpret_cast<std::uintptr_t>(pointer);
  if (address >= kEnd || size > kEnd - address) return std::nullopt;
  const std::uintptr_t first = address / kPage * kPage;
  return Pages{.first = first, .bytes = *round_up(address + size, kPage) - first};
}

Error fail_missing(const void* pointer, std::uint64_t size) {
  return fail(Errc::kInvalidValue, Reason::kOutOfRange,
              "ptr {:#x}: the {} bytes from there are not memory of this process that can be read, "
              "or not all of them; map them first, and pass their number",
              reinterpret_cast<std::uintptr_t>(pointer), size);
}

}  // namespace

Result<void> require_readable(const void* pointer, std::uint64_t size) {
  const auto pages = pages_of(pointer, size);
  // Brings pages that nobody has written as the kernel's one page of zeros.
  if (!pages ||
      ::madvise(reinterpret_cast<void*>(pages->first), pages->bytes, MADV_POPULATE_READ) != 0) {
    return fail_missing(pointer, size);
  }
  return {};
}

Result<void> require_mapped(const void* pointer, std::uint64_t size) {
  const auto pages = pages_of(pointer, size);
  if (!pages) return fail_missing(pointer, size);
  constexpr std::uint64_t kStep = 4096;  // Pages asked about at once.
  std::array<unsigned char, kStep> present{};
  for (std::uint64_t done = 0; done < pages->bytes; done += kStep * kPage) {
    const std::uint64_t bytes = std::min(pages->bytes - done, kStep * kPage);
    if (::mincore(reinterpret_cast<void*>(pages->first + done), bytes, present.data()) != 0) {
      return fail_missing(pointer, size);
    }
  }
  return {};
}

// By number: a sanitizer puts functions that do nothing in the place of mlock and munlock.
Result<void> lock_pages(std::uintptr_t first, std::uint64_t bytes) {
  if (::syscall(SYS_mlock, first, bytes) == 0) return {};
  const int sys_errno = errno;
  rlimit limit{};
  ::getrlimit(RLIMIT_MEMLOCK, &limit);
  std::uint64_t locked = 0;
  const std::string status = read_small_file("/proc/self/status");
  if (const auto at = status.find("VmLck:"); at != std::string::npos) {
    locked = std::stoull(status.substr(at + 6)) * kKiB;
  }
  const bool limited = limit.rlim_cur != RLIM_INFINITY && locked + bytes > limit.rlim_cur;
  if (sys_errno == EPERM || (sys_errno == ENOMEM && limited)) {
    Error error = fail(Errc::kOutOfMemory, Reason::kMemory,
                       "pinning needs {} bytes of locked memory: RLIMIT_MEMLOCK is {} bytes and {} "
                       "are locked; raise it with `ulimit -l unlimited` or LimitMEMLOCK=, or "
                       "register the memory without ACL_HOST_REG_PINNED",
                       bytes, limit.rlim_cur, locked);
    error.sys_errno = sys_errno;
    return error;
  }
  return fail_errno("mlock", sys_errno);
}

void unlock_pages(std::uintptr_t first, std::uint64_t bytes) {
  ::syscall(SYS_munlock, first, bytes);
}

}  // namespace hufu::os
