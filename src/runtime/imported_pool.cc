#include "runtime/imported_pool.h"

#include "base/units.h"
#include "share/handle_name.h"

namespace hufu::runtime {
namespace {

constexpr unsigned kShift = 6;  // Every exporter cuts by a multiple of 64 bytes.

}  // namespace

Result<std::unique_ptr<ImportedPool>> ImportedPool::make(const Surroundings& around,
                                                         std::uint64_t token, std::uint64_t id) {
  auto import = around.handles.import(share::HandleName::of_token(token), 0);
  if (!import) return import.error();
  if (import->size >> kShift > memory::SpanBooks::kMostGranules) {
    return fail(Errc::kPool, Reason::kSizeTooLarge,
                "the pool has {} bytes; at most {} are imported", import->size,
                memory::SpanBooks::kMostGranules << kShift);
  }
  auto mapping = os::GuardedMapping::map(import->fd.get(), {.length = import->size,
                                                            .access = import->access,
                                                            .alignment = PageSize::k2MiB,
                                                            .in_core_dumps = false});
  if (!mapping) return mapping.error();
  const auto books = around.shelf.take(import->size >> kShift);
  if (!books) return books.error();
  return std::unique_ptr<ImportedPool>(
      new ImportedPool(around, id, std::move(*import), std::move(*mapping), *books));
}

ImportedPool::ImportedPool(const Surroundings& around, std::uint64_t id,
                           share::Handles::Import import, os::GuardedMapping mapping,
                           memory::SpanBooks* books)
    : around_(around),
      name_(import.public_id.bytes),
      size_(import.size),
      device_(static_cast<int>(import.device)),
      status_(std::move(import.status)),
      grant_(import.grant),
      hold_(std::move(import.hold)),
      mapping_(std::move(mapping)),
      books_(books) {
  books_->begin(id, kShift);
  around_.registry.add({.base = base(),
                        .mapped = size_,
                        .reported = size_,
                        .id = id,
                        .page = PageSize::k2MiB,
                        .device = device_,
                        .kind = memory::RegionKind::kPool,
                        .access = import.access,
                        .books = books_});
}

ImportedPool::~ImportedPool() {
  if (books_ != nullptr) retire_all();
}

ImportedPool::Retired ImportedPool::retire_all() {
  around_.registry.remove(base());
  around_.shelf.put_back(std::exchange(books_, nullptr));
  return {.hold = std::move(hold_), .mapping = std::move(mapping_)};
}

Result<void*> ImportedPool::import_pointer(
    std::span<const std::byte, memory::PoolPointer::kSize> bytes) {
  const auto pointer = memory::PoolPointer::decode(bytes, name_, size_);
  if (!pointer) return pointer.error();
  // A broker that is gone says nothing, and nothing is asked of it here.
  if (!grant_.holds() && !status_->life.writer_ended()) {
    return fail(Errc::kRefused, Reason::kExportEnded,
                "the pool's exporter has destroyed it or is gone; what was imported stays until it "
                "is freed, and nothing more can be");
  }
  const std::uint64_t start = pointer->offset >> kShift;
  const std::uint64_t count = pointer->size >> kShift;
  if (books_->count_at(start) != count) {
    end_overlapping(start, count);
    books_->mark(start, count);
  }
  ++known_[start];
  return mapping_.base() + pointer->offset;
}

void ImportedPool::end_overlapping(std::uint64_t start, std::uint64_t count) {
  while (const auto other = books_->last_in(start, start + count)) {
    const auto times = known_.extract(*other);
    stale_[*other] += times.mapped();
    books_->unmark(*other);
  }
}

Result<void> ImportedPool::free(std::uintptr_t address) {
  const std::uint64_t offset = address - base();
  const std::uint64_t start = offset >> kShift;
  if (is_aligned(offset, std::uint64_t{1} << kShift)) {
    if (const auto stale = stale_.find(start); stale != stale_.end()) {
      if (--stale->second == 0) stale_.erase(stale);
      return {};
    }
    if (const auto known = known_.find(start); known != known_.end()) {
      if (--known->second != 0) return {};
      known_.erase(known);
      books_->unmark(start);
      return {};
    }
  }
  return fail(Errc::kInvalidValue, Reason::kNone,
              "address {:#x} lies {} bytes into the imported pool [{:#x}, {:#x}) and is not what "
              "aclrtMemPoolImportPointer returned, or was freed as often as it was imported",
              address, offset, base(), base() + size_);
}

}  // namespace hufu::runtime
