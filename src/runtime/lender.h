#pragma once

// Lender: whoever owns memory that is not the heap's and lets a part of it be shared by key.
//
// CANN shares by key only what aclrtMalloc made. Hufu shares what programs map themselves and what
// they take from pools as well (not under HUFU_STRICT=cann); the owners of those keep books of
// their own, and Sharing asks them here. runtime/sharing.h has the rest of the way to a key.

#include <cstdint>
#include <memory>

#include "base/result.h"
#include "memory/heap.h"

namespace hufu::runtime {

// A range that is about to be shared. It cannot end before this does.
struct Loan {
  memory::ExportRange range;
  std::shared_ptr<const void> hold;
};

class Lender {
 public:
  Lender() = default;
  virtual ~Lender() = default;
  Lender(const Lender&) = delete;
  Lender& operator=(const Lender&) = delete;

  // May a key be made for it? `region` is what the heap says of the address.
  virtual Result<memory::ExportRange> may_lend(const memory::Region& region, const void* pointer,
                                               std::uint64_t size) = 0;

  // One is being made: from now on other processes may have the memory, with this access, whatever
  // the broker answers. So when it ends, its keys must be dead before this process uses the pages
  // again.
  virtual Result<Loan> lend(const memory::Region& region, const void* pointer, std::uint64_t size,
                            Access access) = 0;
};

}  // namespace hufu::runtime
