#pragma once

// MappedLender: keys for physical memory that the program mapped where it wanted it.
//
// A key speaks of the pages, not of the addresses: it lives until the physical memory ends, mapped
// here or not, or until it is closed.

#include "memory/reservations.h"
#include "runtime/lender.h"

namespace hufu::runtime {

class MappedLender final : public Lender {
 public:
  // Outlives this.
  explicit MappedLender(const memory::Reservations& reservations) : reservations_(reservations) {}

  Result<memory::ExportRange> may_lend(const memory::Region& region, const void* pointer,
                                       std::uint64_t size) override;
  Result<Loan> lend(const memory::Region& region, const void* pointer, std::uint64_t size,
                    Access access) override;

 private:
  struct Found {
    memory::ExportRange range;
    std::shared_ptr<memory::Physical> physical;
  };
  Result<Found> find(const memory::Region& region, const void* pointer, std::uint64_t size) const;

  const memory::Reservations& reservations_;
};

}  // namespace hufu::runtime
