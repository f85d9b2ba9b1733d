#pragma once

// GuardedMapping: the owner of a piece of address space that shows a file's bytes.
//
//   base                       base+length        +4096            end
//   |  the file, MAP_SHARED    |  guard           |  nothing       |
//   |  [offset,offset+length)  |  private, zeros  |  PROT_NONE     |
//
// The guard page serves kernels that read (or scribble) up to a page past the end, as device
// kernels do: it is this process's own, never part of the file, so nothing that lies beyond the
// range in the file can be seen through it. The page after it faults.
//
// Nothing of it is inherited by fork: a child that could go on writing would be a process that the
// broker never granted anything. The base is a multiple of `alignment`, in exporter and importer
// alike, or huge pages could not be mapped as such.

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/result.h"
#include "base/units.h"

namespace hufu::os {

inline constexpr std::uint64_t kGuardBytes = 4 * kKiB;

struct MapRange {
  std::uint64_t offset = 0;  // In the file; a multiple of 4096.
  std::uint64_t length = 0;  // A multiple of 4096, not 0.
  Access access = Access::kReadWrite;
  PageSize alignment = PageSize::k4KiB;
  bool in_core_dumps = true;  // An importer's dump must not hold the exporter's data.
};

// The place alone, for a mapping to come: the guard page and the page that faults are there, the
// range before them faults too. Making one costs more than mapping the file does, so whoever maps
// and unmaps all day keeps some. Move-only.
class Reservation {
 public:
  static Result<Reservation> make(std::uint64_t length, PageSize alignment);

  Reservation() = default;
  ~Reservation() { release(); }
  Reservation(Reservation&& other) noexcept;
  Reservation& operator=(Reservation&& other) noexcept;
  Reservation(const Reservation&) = delete;
  Reservation& operator=(const Reservation&) = delete;

  std::byte* base() const { return base_; }
  std::uint64_t length() const { return length_; }
  PageSize alignment() const { return alignment_; }

  void release();

 private:
  std::byte* reserved_ = nullptr;
  std::uint64_t reserved_bytes_ = 0;
  std::byte* base_ = nullptr;
  std::uint64_t length_ = 0;
  PageSize alignment_ = PageSize::k4KiB;
};

class GuardedMapping {
 public:
  // Looks at `fd` only; the mapping keeps the file alive, so the caller may close it.
  static Result<GuardedMapping> map(int fd, const MapRange& range);
  // At a place of the range's length and alignment.
  static Result<GuardedMapping> map(int fd, const MapRange& range, Reservation place);

  GuardedMapping() = default;

  std::byte* base() const { return place_.base(); }
  std::uint64_t length() const { return place_.length(); }

  // What this process itself may do with the file's bytes from now on. Its end does not care.
  Result<void> protect(Access access);

  void unmap() { place_.release(); }
  // Unmaps the file and keeps its place; an empty one if the kernel cannot do that.
  Reservation vacate();

 private:
  explicit GuardedMapping(Reservation place) : place_(std::move(place)) {}

  Reservation place_;
};

// What to say when mmap or madvise failed: the limit that was met, and the command that raises it.
Error fail_mapping(int sys_errno, std::string_view what, std::uint64_t length);

}  // namespace hufu::os
