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

Result<Reservation> Reservation::make(std::uint64_t length, PageSize alignment) {
  assert(is_aligned(length, 4 * kKiB) && length != 0);
  if (length > kMaxLength) {
    return fail(Errc::kOutOfMemory, Reason::kSizeTooLarge,
                "{} bytes are more than the {} bytes of address space a mapping may take", length,
                kMaxLength);
  }
  // Reserve enough to find an aligned base inside, then give back what is before and behind.
  const std::uint64_t needed = length + kGuardBytes + kFaultBytes;
  const std::uint64_t slack = bytes_of(alignment) - 4 * kKiB;
  void* raw = ::mmap(nullptr, needed + slack, PROT_NONE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (raw == MAP_FAILED) return fail_mapping(errno, "reserving address space", length);

  Reservation place;
  place.alignment_ = alignment;
  place.reserved_ = static_cast<std::byte*>(raw);
  place.reserved_bytes_ = needed + slack;

  const auto start = reinterpret_cast<std::uintptr_t>(raw);
  const std::uint64_t before = *round_up(start, bytes_of(alignment)) - start;
  place.base_ = place.reserved_ + before;
  place.length_ = length;
  // A trim that the kernel refuses (it may need a map entry) leaves some address space unused.
  const std::uint64_t behind = slack - before;
  if (behind != 0 && ::munmap(place.base_ + needed, behind) == 0) place.reserved_bytes_ -= behind;
  if (before != 0 && ::munmap(raw, before) == 0) {
    place.reserved_ += before;
    place.reserved_bytes_ -= before;
  }

  if (::mmap(place.base_ + length, kGuardBytes, PROT_READ | PROT_WRITE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED) {
    return fail_mapping(errno, "mapping a guard page", length);
  }
  if (::madvise(place.reserved_, place.reserved_bytes_, MADV_DONTFORK) != 0) {
    return fail_mapping(errno, "madvise(DONTFORK)", length);
  }
  return place;
}

Reservation::Reservation(Reservation&& other) noexcept
    : reserved_(std::exchange(other.reserved_, nullptr)),
      reserved_bytes_(std::exchange(other.reserved_bytes_, 0)),
      base_(std::exchange(other.base_, nullptr)),
      length_(std::exchange(other.length_, 0)),
      alignment_(other.alignment_) {}

Reservation& Reservation::operator=(Reservation&& other) noexcept {
  if (this == &other) return *this;
  release();
  reserved_ = std::exchange(other.reserved_, nullptr);
  reserved_bytes_ = std::exchange(other.reserved_bytes_, 0);
  base_ = std::exchange(other.base_, nullptr);
  length_ = std::exchange(other.length_, 0);
  alignment_ = other.alignment_;
  return *this;
}

void Reservation::release() {
  // munmap of one's own whole range fails only if the address is wrong: that would be our bug.
  if (reserved_ != nullptr) ::munmap(reserved_, reserved_bytes_);
  reserved_ = nullptr;
  reserved_bytes_ = 0;
  base_ = nullptr;
  length_ = 0;
}

Result<GuardedMapping> GuardedMapping::map(int fd, const MapRange& range) {
  auto place = Reservation::make(range.length, range.alignment);
  if (!place) return place.error();
  return map(fd, range, std::move(*place));
}

Result<GuardedMapping> GuardedMapping::map(int fd, const MapRange& range, Reservation place) {
  assert(is_aligned(range.offset, 4 * kKiB) && range.length == place.length());
  const int prot = range.access == Access::kReadWrite ? PROT_READ | PROT_WRITE : PROT_READ;
  if (::mmap(place.base(), range.length, prot, MAP_SHARED | MAP_FIXED, fd,
             static_cast<off_t>(range.offset)) == MAP_FAILED) {
    return fail_mapping(errno, "mapping", range.length);
  }
  if (::madvise(place.base(), range.length, MADV_DONTFORK) != 0) {
    return fail_mapping(errno, "madvise(DONTFORK)", range.length);
  }
  if (!range.in_core_dumps && ::madvise(place.base(), range.length, MADV_DONTDUMP) != 0) {
    return fail_mapping(errno, "madvise(DONTDUMP)", range.length);
  }
  return GuardedMapping(std::move(place));
}

Result<void> GuardedMapping::protect(Access access) {
  const int prot = access == Access::kReadWrite ? PROT_READ | PROT_WRITE : PROT_READ;
  if (::mprotect(base(), length(), prot) != 0) return fail_mapping(errno, "mprotect", length());
  return {};
}

Reservation GuardedMapping::vacate() {
  Reservation place = std::move(place_);
  // One step, so that nothing else can be mapped there meanwhile.
  if (place.base() != nullptr &&
      ::mmap(place.base(), place.length(), PROT_NONE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) == MAP_FAILED) {
    place.release();
  }
  return place;
}

}  // namespace hufu::os
