#pragma once

// ImportedPool: another process's pool, mapped here as a whole and once, and the allocations in it
// that this process was told of.
//
//   exporter   allocate ── 64 bytes, by any way ──▶ import_pointer ── the same memory    importer
//
// The import of the pool is the grant, with the broker's record. A pointer then costs no call: it
// is checked to lie in the pool, and is a known allocation here until it is freed as often as it
// was imported. Freeing is local, the exporter hears nothing of it, and either side may be first.
// Who imports a range of which a part is known here under other bounds learns that the exporter has
// used the memory anew: what was known before is then no allocation any more, and the program still
// may free it.
//
// What the exporter has not committed reads zeros through the mapping, and so does what it has
// trimmed. For one at a time; who only asks about an address does not come here.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>
#include <utility>

#include "base/result.h"
#include "memory/address_registry.h"
#include "memory/pool_pointer.h"
#include "memory/span_books.h"
#include "os/mapping.h"
#include "share/handles.h"

namespace hufu::runtime {

class ImportedPool {
 public:
  struct Surroundings {  // All outlive it.
    memory::AddressRegistry& registry;
    memory::SpanShelf& shelf;
    share::Handles& handles;
  };
  // `id` is its region's; no other's, ever.
  static Result<std::unique_ptr<ImportedPool>> make(const Surroundings& around, std::uint64_t token,
                                                    std::uint64_t id);
  ~ImportedPool();
  ImportedPool(const ImportedPool&) = delete;
  ImportedPool& operator=(const ImportedPool&) = delete;

  int device() const { return device_; }

  Result<void*> import_pointer(std::span<const std::byte, memory::PoolPointer::kSize> bytes);
  Result<void> free(std::uintptr_t address);

  // What is mapped after its addresses are dead. Its end unmaps, and then tells the broker.
  struct Retired {
    share::Handles::Hold hold;
    os::GuardedMapping mapping;  // Ends first.
  };
  Retired retire_all();

 private:
  ImportedPool(const Surroundings& around, std::uint64_t id, share::Handles::Import import,
               os::GuardedMapping mapping, memory::SpanBooks* books);

  std::uintptr_t base() const { return reinterpret_cast<std::uintptr_t>(mapping_.base()); }
  void end_overlapping(std::uint64_t start, std::uint64_t count);

  const Surroundings around_;
  memory::PoolName name_;
  const std::uint64_t size_;
  const int device_;
  std::shared_ptr<const share::Status> status_;
  const share::GrantWord grant_;
  share::Handles::Hold hold_;
  os::GuardedMapping mapping_;
  memory::SpanBooks* books_;
  std::unordered_map<std::uint64_t, std::uint64_t> known_;  // By start: how often imported.
  std::unordered_map<std::uint64_t, std::uint64_t> stale_;  // The same of what is none any more.
};

}  // namespace hufu::runtime
