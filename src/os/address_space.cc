#include "os/address_space.h"

#include <sys/mman.h>

#include <cassert>
#include <cerrno>
#include <utility>

#include "os/mapping.h"

namespace hufu::os {
namespace {

constexpr std::uint64_t kUserSpace = std::uint64_t{1} << 47U;
constexpr std::uint64_t kMaxLength = kUserSpace / 2;
constexpr int kNothingThere = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;

Error fail_occupied(const std::byte* where, std::uint64_t length) {
  return fail(
      Errc::kRefused, Reason::kNone,
      "the addresses [{:#x}, {:#x}) cannot be had: something of this process lies there, or "
      "they are beyond what a program may use; pass null, or look at /proc/self/maps",
      reinterpret_cast<std::uintptr_t>(where), reinterpret_cast<std::uintptr_t>(where) + length);
}

}  // namespace

// --- ReservedSpace -------------------------------------------------------------------------------

Result<ReservedSpace> ReservedSpace::make(std::uint64_t length, PageSize alignment,
                                          std::byte* where) {
  assert(is_aligned(length, 4 * kKiB) && length != 0);
  if (length > kMaxLength) {
    return fail(Errc::kOutOfMemory, Reason::kSizeTooLarge,
                "{} bytes are more than the {} bytes of addresses that a range may have", length,
                kMaxLength);
  }
  if (where != nullptr) {
    if (reinterpret_cast<std::uintptr_t>(where) > kUserSpace - length) {
      return fail_occupied(where, length);
    }
    void* got = ::mmap(where, length, PROT_NONE, kNothingThere | MAP_FIXED_NOREPLACE, -1, 0);
    if (got == MAP_FAILED && errno == ENOMEM) {
      return fail_mapping(ENOMEM, "reserving addresses", length);
    }
    if (got == MAP_FAILED) return fail_occupied(where, length);
    ReservedSpace space(static_cast<std::byte*>(got), length);
    if (got != where) return fail_occupied(where, length);  // A sanitizer has its own ideas.
    ::madvise(got, length, MADV_DONTFORK);
    return space;
  }
  // Enough to find an aligned base inside; then give back what is before and behind.
  const std::uint64_t slack = bytes_of(alignment) - 4 * kKiB;
  void* raw = ::mmap(nullptr, length + slack, PROT_NONE, kNothingThere, -1, 0);
  if (raw == MAP_FAILED) return fail_mapping(errno, "reserving addresses", length);
  auto* start = static_cast<std::byte*>(raw);
  const auto address = reinterpret_cast<std::uintptr_t>(raw);
  const std::uint64_t before = *round_up(address, bytes_of(alignment)) - address;
  const std::uint64_t behind = slack - before;
  if (before != 0) ::munmap(start, before);
  if (behind != 0) ::munmap(start + before + length, behind);
  ::madvise(start + before, length, MADV_DONTFORK);
  return ReservedSpace(start + before, length);
}

ReservedSpace::~ReservedSpace() {
  if (base_ != nullptr) ::munmap(base_, length_);
}

ReservedSpace::ReservedSpace(ReservedSpace&& other) noexcept
    : base_(std::exchange(other.base_, nullptr)), length_(std::exchange(other.length_, 0)) {}

ReservedSpace& ReservedSpace::operator=(ReservedSpace&& other) noexcept {
  std::swap(base_, other.base_);
  std::swap(length_, other.length_);
  return *this;
}

void ReservedSpace::vacate(std::byte* at, std::uint64_t length) {
  // Should it ever fail, what is shown stays until the place is used again or given back.
  if (::mmap(at, length, PROT_NONE, kNothingThere | MAP_FIXED, -1, 0) == MAP_FAILED) return;
  ::madvise(at, length, MADV_DONTFORK);  // As what lies beside it, or it takes a map entry.
}

// --- ParkedPages ---------------------------------------------------------------------------------

Result<ParkedPages> ParkedPages::make(UniqueFd file, Backing backing, std::uint64_t length,
                                      PageSize alignment) {
  auto space = ReservedSpace::make(length, alignment);
  if (!space) return space.error();
  if (::mmap(space->base(), length, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file.get(),
             0) == MAP_FAILED) {
    return fail_mapping(errno, "mapping physical memory", length);
  }
  if (::madvise(space->base(), length, MADV_DONTFORK) != 0) {
    return fail_mapping(errno, "madvise(DONTFORK)", length);
  }
  ParkedPages pages;
  pages.space_ = std::move(*space);
  pages.length_ = length;
  if (backing == Backing::kHugetlb) pages.file_ = std::move(file);
  return pages;
}

Result<void> ParkedPages::hide() {
  if (file_.valid()) {
    space_ = ReservedSpace();
    return {};
  }
  if (::mprotect(space_.base(), length_, PROT_NONE) != 0) {
    return fail_mapping(errno, "mprotect", length_);
  }
  // The page tables, which count as memory of this process; the pages are the file's and stay.
  ::madvise(space_.base(), length_, MADV_DONTNEED);
  return {};
}

Result<void> ParkedPages::keep_out_of_dumps() {
  dumped_ = false;
  if (!file_.valid() && ::madvise(space_.base(), length_, MADV_DONTDUMP) != 0) {
    return fail_mapping(errno, "madvise(DONTDUMP)", length_);
  }
  return {};
}

Result<void> ParkedPages::show(std::byte* at, Touch touch) const {
  if (file_.valid()) {
    if (::mmap(at, length_, PROT_NONE, MAP_SHARED | MAP_FIXED, file_.get(), 0) == MAP_FAILED) {
      return fail_mapping(errno, "mapping physical memory", length_);
    }
    ::madvise(at, length_, MADV_DONTFORK);
    if (!dumped_) ::madvise(at, length_, MADV_DONTDUMP);
  } else if (::mremap(space_.base(), 0, length_, MREMAP_MAYMOVE | MREMAP_FIXED, at) == MAP_FAILED) {
    const int sys_errno = errno;
    // Where the kernel has come so far as to unmap what was there. It looks at the number of map
    // entries before, so this is for a kernel that has no memory at all.
    static_cast<void>(::mmap(at, length_, PROT_NONE, kNothingThere | MAP_FIXED_NOREPLACE, -1, 0));
    return fail_mapping(sys_errno, "mapping physical memory", length_);
  }
  if (touch == Touch::kNothing) return {};
  auto allowed = allow(at);
  if (!allowed) ReservedSpace::vacate(at, length_);
  return allowed;
}

Result<void> ParkedPages::allow(std::byte* at) const {
  if (::mprotect(at, length_, PROT_READ | PROT_WRITE) == 0) return {};
  return fail_mapping(errno, "mprotect", length_);
}

}  // namespace hufu::os
