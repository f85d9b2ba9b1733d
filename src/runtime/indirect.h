#pragma once

// Copies whose addresses are only known when their turn comes: they lie in cells of device memory,
// or in a descriptor there, and what is queued before may still write them.
//
// So they are checked when they are done, from one reading of the cells: a program may scribble
// over a descriptor while it is looked at. A task whose addresses are then not device memory fails
// with kNoCopy, which the stream's next synchronise returns. Since they may lead to any device, a
// stream that is given such a task waits with all of them (see check_for).

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/result.h"
#include "runtime/copy.h"
#include "runtime/task.h"

namespace hufu::runtime {

// As it lies in device memory.
struct Descriptor {
  static constexpr std::uint64_t kMark = 0x3159'504f'4355'4648;  // "HFUCOPY1"

  std::uint64_t mark = kMark;
  std::uint64_t to = 0;
  std::uint64_t from = 0;
  std::uint64_t count = 0;
  std::array<std::uint64_t, 4> zero = {};
};
static_assert(sizeof(Descriptor) == 64);

// Each cell holds the address that the offset is added to.
struct ByCells {
  void* const* to_cell;
  std::uint64_t to_offset;
  const void* const* from_cell;
  std::uint64_t from_offset;
  std::uint64_t count;  // Not 0.
};
Result<void> copy_on(Runtime& runtime, const On& on, const ByCells& what);

Result<void> copy_by_descriptor_on(Runtime& runtime, const On& on, const void* descriptor);

}  // namespace hufu::runtime
