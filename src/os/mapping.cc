#include "os/mapping.h"

#include <sys/mman.h>
#include <sys/resource.h>

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <string>
#include <utility>

#include "os/file.h"

namespace hufu::os {
namespace {

constexpr std::uint64_t kFaultBytes = 4 * kKiB;  // At least this much PROT_NONE behind the guard.
constexpr std::uint64_t kMaxLength = std::uint64_t{1} << 46U;  // Half of a user's address space.

std::string limit_text(int resource) {
  rlimit limit{};
  if (::getrlimit(static_cast<__rlimit_resource>(resource), &limit) != 0) return "unknown";
  return limit.rlim_cur == RLIM_INFINITY ? "unlimited" : fmt::format("{}", limit.rlim_cur);
}

std::string line_of(const std::string& file, std::string_view label) {
  const std::string text = read_small_file(file);
  const auto at = text.find(label);
  if (at == std::string::npos) return "unknown";
  const auto start = text.find_first_not_of(" \t", at + label.size());
  return text.substr(start, text.find('\n', start) - start);
}

}  // namespace

Error fail_mapping(int sys_errno, std::string_view what, std::uint64_t length) {
  if (sys_errno == ENOMEM) {
    Error error =
        fail(Errc::kOutOfMemory, Reason::kMemory,
             "{} of {} bytes: no address space (limit {} bytes) or no map entry left "
             "(vm.max_map_count is {}); raise them with `ulimit -v unlimited` and `sudo "
             "sysctl vm.max_map_count=262144`, or keep many small objects in one pool",
             what, length, limit_text(RLIMIT_AS), line_of("/proc/sys/vm/max_map_count", ""));
    error.sys_errno = sys_errno;
    return error;
  }
  // The process called mlockall(MCL_FUTURE), so whatever it maps is locked, and counted.
  if (sys_errno == EAGAIN) {
    Error error =
        fail(Errc::kOutOfMemory, Reason::kMemory,
             "{} needs {} bytes of locked memory, because this process locks all it maps "
             "(mlockall): RLIMIT_MEMLOCK is {} bytes and {} are locked; raise it with "
             "`ulimit -l unlimited` or LimitMEMLOCK=, or call munlockall()",
             what, length, limit_text(RLIMIT_MEMLOCK), line_of("/proc/self/status", "VmLck:"));
    error.sys_errno = sys_errno;
    return error;
  }
  return fail_errno(what, sys_errno);
}

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

void GuardedMapping::unmap() {
  // munmap of one's own whole range fails only if the address is wrong: that would be our bug.
  if (reservation_ != nullptr) ::munmap(reservation_, reserved_);
  reservation_ = nullptr;
  reserved_ = 0;
  base_ = nullptr;
  length_ = 0;
}

}  // namespace hufu::os
