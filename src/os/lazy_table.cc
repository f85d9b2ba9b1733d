#include "os/lazy_table.h"

#include <sys/mman.h>

#include <cerrno>

#include "os/mapping.h"

namespace hufu::os {

Result<LazyTable> LazyTable::make(std::uint64_t bytes) {
  void* base = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (base == MAP_FAILED) return fail_mapping(errno, "reserving a table", bytes);
  ::madvise(base, bytes, MADV_DONTDUMP);  // A wish.
  return LazyTable(static_cast<std::byte*>(base), bytes);
}

LazyTable::~LazyTable() {
  if (base_ != nullptr) ::munmap(base_, bytes_);
}

void LazyTable::clear() { ::madvise(base_, bytes_, MADV_DONTNEED); }

}  // namespace hufu::os
