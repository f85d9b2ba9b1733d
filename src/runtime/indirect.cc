#include "runtime/indirect.h"

#include <cstring>

#include "runtime/bulk_copy.h"

namespace hufu::runtime {
namespace {

std::int32_t copy_if_good(Runtime& runtime, std::uint64_t to, std::uint64_t from,
                          std::uint64_t count) {
  if (count == 0) return kNoCopy;
  // NOLINTBEGIN(performance-no-int-to-ptr): what lies in a cell is a number until it is looked up.
  auto* const target = reinterpret_cast<void*>(to);
  const auto* const source = reinterpret_cast<const void*>(from);
  // NOLINTEND(performance-no-int-to-ptr)
  const auto good = check_copy(runtime, target, count, source, count, CopyKind::kDeviceToDevice);
  if (!good) return kNoCopy;
  copy_bytes(target, source, count);
  return 0;
}

std::uint64_t read_cell(const void* cell) {
  std::uint64_t address = 0;
  std::memcpy(&address, cell, sizeof address);
  return address;
}

Result<Ends> check_cells(Runtime& runtime, const void* one, const void* other, std::uint64_t size) {
  const auto first = check_range(runtime, one, size, Side::kDevice, Use::kRead);
  if (!first) return first.error();
  const auto second = check_range(runtime, other, size, Side::kDevice, Use::kRead);
  if (!second) return second.error();
  return Ends{.to = *first, .from = *second};
}

template <class Indirect>
Result<void> issue(Runtime& runtime, const On& on, std::uint64_t count, const void* one,
                   const void* other, std::uint64_t size, const Indirect& task) {
  return runtime.streams().issue(on.stream, on.context, where_for(count),
                                 [&](Stream& stream) -> Result<Task> {
                                   stream.crosses = true;
                                   const auto good = check_cells(runtime, one, other, size);
                                   if (!good) return good.error();
                                   return Task(task);
                                 });
}

}  // namespace

std::int32_t perform(const CellsTask& task) {
  std::uint64_t to = 0;
  std::uint64_t from = 0;
  if (__builtin_add_overflow(read_cell(task.to_cell), task.to_offset, &to) ||
      __builtin_add_overflow(read_cell(task.from_cell), task.from_offset, &from)) {
    return kNoCopy;
  }
  return copy_if_good(*task.runtime, to, from, task.count);
}

std::int32_t perform(const DescribedTask& task) {
  Descriptor read;
  std::memcpy(&read, task.descriptor, sizeof read);
  if (read.mark != Descriptor::kMark) return kNoCopy;
  return copy_if_good(*task.runtime, read.to, read.from, read.count);
}

Result<void> copy_on(Runtime& runtime, const On& on, const ByCells& what) {
  return issue(runtime, on, what.count, what.to_cell, what.from_cell, sizeof(void*),
               CellsTask{.runtime = &runtime,
                         .to_cell = what.to_cell,
                         .to_offset = what.to_offset,
                         .from_cell = what.from_cell,
                         .from_offset = what.from_offset,
                         .count = what.count});
}

Result<void> copy_by_descriptor_on(Runtime& runtime, const On& on, const void* descriptor) {
  // How long it will be is not known yet, so it is not the caller's to do.
  return issue(runtime, on, ~std::uint64_t{0}, descriptor, descriptor, sizeof(Descriptor),
               DescribedTask{.runtime = &runtime, .descriptor = descriptor});
}

}  // namespace hufu::runtime
