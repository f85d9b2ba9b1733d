#pragma once

// Addresses and pages apart from each other: for memory that a program maps where it wants it.
//
//   ReservedSpace     | PROT_NONE |  shown  | PROT_NONE |  shown  |     addresses, ours alone
//                                      ▲                    ▲
//   ParkedPages                 [ pages of a file ]─────────┘           pages, touched by nobody
//
// Pages of a file that has no name and whose descriptor is closed can still be shown elsewhere: the
// kernel makes a second mapping of a shared one (mremap with an old size of 0). So each file lies
// parked at addresses where nobody can touch it and takes no descriptor. hugetlb files cannot be
// doubled like that (EINVAL, seen on Linux 6.18): of these the descriptor is kept, and nothing is
// parked. There are never more of them than the machine has reserved huge pages.
//
// Showing pages replaces what lies at the place in one step, and so does vacating it: at no moment
// are the addresses free for somebody else's mmap. Nothing of either is inherited by fork.

#include <cstddef>
#include <cstdint>

#include "base/result.h"
#include "base/unique_fd.h"
#include "base/units.h"
#include "os/commit.h"
#include "os/memfd.h"

namespace hufu::os {

class ReservedSpace {
 public:
  // Somewhere, or exactly at `where` if that is not null. What is in the way there is kRefused.
  static Result<ReservedSpace> make(std::uint64_t length, PageSize alignment,
                                    std::byte* where = nullptr);

  ReservedSpace() = default;
  ~ReservedSpace();
  ReservedSpace(ReservedSpace&& other) noexcept;
  ReservedSpace& operator=(ReservedSpace&& other) noexcept;
  ReservedSpace(const ReservedSpace&) = delete;
  ReservedSpace& operator=(const ReservedSpace&) = delete;

  std::byte* base() const { return base_; }
  std::uint64_t length() const { return length_; }

  // What is shown at [at, at + length) is not any more; the addresses stay reserved. The kernel
  // cannot refuse it for want of a map entry: it takes none.
  static void vacate(std::byte* at, std::uint64_t length);

 private:
  ReservedSpace(std::byte* base, std::uint64_t length) : base_(base), length_(length) {}

  std::byte* base_ = nullptr;
  std::uint64_t length_ = 0;
};

enum class Touch : bool { kNothing, kReadWrite };

class ParkedPages {
 public:
  // A file's pages, which can be written at base() to commit them, until they are hidden.
  static Result<ParkedPages> make(UniqueFd file, Backing backing, std::uint64_t length,
                                  PageSize alignment);

  ParkedPages() = default;

  std::byte* base() const { return space_.base(); }
  std::uint64_t length() const { return length_; }

  // From here on they are seen only where they are shown.
  Result<void> hide();
  Result<void> keep_out_of_dumps();

  // At `at`, which is reserved space with nothing shown there; it stays so when this fails.
  Result<void> show(std::byte* at, Touch touch) const;
  // Pages that are shown at `at` and may not be touched may be from now on.
  Result<void> allow(std::byte* at) const;

 private:
  ReservedSpace space_;
  UniqueFd file_;  // Of hugetlb.
  std::uint64_t length_ = 0;
  bool dumped_ = true;
};

}  // namespace hufu::os
