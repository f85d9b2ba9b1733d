#pragma once

// Pool: memory for allocations in stream order.
//
//   reservation   |  unit  |  unit  |  unit  |  unit  | ...          of 2 MiB, up to the greatest
//   size committed         x        x                  x                  RESERVED counts these
//   cuts          |aa|b| free |ccc|        ... free ...              USED counts these
//
// A pool is one sparse memory file, mapped once and as a whole. A unit gets memory, and is charged
// to the device, when the first cut in it is made; trimming takes the memory of units away in which
// nothing is in use, and the addresses stay the pool's. A pointer that somebody kept then reads
// zeros, never anybody's bytes.
//
// What is freed in a stream's order belongs to that stream's line until it is known that the work
// before the free is over (memory/pool_space.h). allocate() takes, in this order: memory that is
// committed, and the line's or anybody's; what another line has freed, if the pool's rules allow
// it and the order of work does; units that are not committed; and last, if the rules allow that,
// what another line has freed, with the obligation to wait for it.
//
// For one at a time: its owner has the lock. Whoever only asks about an address does not come here
// (memory/span_books.h).

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <unordered_set>
#include <utility>
#include <vector>

#include "base/result.h"
#include "base/units.h"
#include "memory/address_registry.h"
#include "memory/heap.h"
#include "memory/pool_space.h"
#include "memory/source.h"
#include "memory/span_books.h"
#include "memory/usage.h"
#include "os/mapping.h"

namespace hufu::memory {

inline constexpr std::uint64_t kPoolUnit = kChargeUnit;
inline constexpr std::uint64_t kPoolCut = 64;

// What is known of the order of work, by who asks for memory for one line.
class LineOrder {
 public:
  LineOrder() = default;
  virtual ~LineOrder() = default;
  LineOrder(const LineOrder&) = delete;
  LineOrder& operator=(const LineOrder&) = delete;

  // The other line's work up to this ticket precedes all that the asking line does from now on.
  virtual std::uint64_t precedes(Line other) const = 0;
  // It is over.
  virtual std::uint64_t passed(Line other) const = 0;
};

struct PoolSpec {
  int device = 0;
  std::uint64_t size = 0;  // A multiple of kPoolUnit.
  std::uint64_t cut = kPoolCut;
  std::uint64_t id = 0;  // Its region's; no other's, ever.
};

// A pool whose addresses are dead; its end gives the memory back. Must not outlive the source.
class RetiredPool {
 public:
  RetiredPool(PageSource* source, std::uint64_t block, Lent lent, os::GuardedMapping mapping)
      : source_(source), block_(block), lent_(lent), mapping_(std::move(mapping)) {}
  ~RetiredPool();
  RetiredPool(RetiredPool&& other) noexcept
      : source_(std::exchange(other.source_, nullptr)),
        block_(other.block_),
        lent_(other.lent_),
        mapping_(std::move(other.mapping_)) {}
  // Keys to it live until the end, or until this.
  void end_keys() {
    if (lent_ == Lent::kOnce) source_->end_keys(block_);
  }

  RetiredPool& operator=(RetiredPool&&) = delete;
  RetiredPool(const RetiredPool&) = delete;
  RetiredPool& operator=(const RetiredPool&) = delete;

 private:
  PageSource* source_;
  std::uint64_t block_;
  Lent lent_;
  os::GuardedMapping mapping_;
};

class Pool {
 public:
  struct Surroundings {  // All outlive the pool.
    PageSource& source;
    AddressRegistry& registry;
    SpanShelf& shelf;
    Usage& usage;
  };
  static Result<std::unique_ptr<Pool>> make(const Surroundings& around, const PoolSpec& spec);
  ~Pool();
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  const PoolSpec& spec() const { return spec_; }
  std::uintptr_t base() const { return reinterpret_cast<std::uintptr_t>(mapping_.base()); }

  struct Rules {
    bool follow_events = false;
    bool opportunistic = false;
    bool internal_dependencies = false;
    std::uint64_t release_threshold = 0;
  };
  Rules rules;

  struct Statistics {
    std::uint64_t reserved = 0;
    std::uint64_t reserved_high = 0;
    std::uint64_t used = 0;
    std::uint64_t used_high = 0;
  };
  const Statistics& statistics() const { return statistics_; }
  void forget_reserved_high() { statistics_.reserved_high = 0; }
  void forget_used_high() { statistics_.used_high = 0; }

  struct Grant {
    void* pointer = nullptr;
    // The line must do nothing with it before this one's work up to the ticket is over.
    Line wait_for = kAnybody;
    std::uint64_t ticket = 0;
  };
  // `size` is not 0.
  Result<Grant> allocate(std::uint64_t size, Line line, const LineOrder& order);

  using Span = PoolSpace::Span;
  // The address leads nowhere from now on. It lies in the pool; anything but the start of an
  // allocation is an error.
  Result<Span> retire(std::uintptr_t address);
  // What was retired is free: for the line at once, for others when its work up to here is over.
  void give(const Span& span, Line line, std::uint64_t ticket);

  // It is known that the line's work up to here is over.
  void synchronized(Line line, std::uint64_t ticket);
  // The lines that have freed what others may not have yet.
  std::vector<Line> waiting_lines() const { return space_.lines(); }

  // Takes units away in which nothing is in use until at most `keep` bytes are reserved, if so many
  // can be. An error when it keeps its memory, or the kernel does.
  Result<void> trim(std::uint64_t keep);
  bool exceeds_threshold() const {
    return idle_units_ != 0 && !keeps_memory_ && statistics_.reserved > rules.release_threshold;
  }

  std::uint64_t block() const { return block_; }
  // Before others are given it, for good. Where they may only read, nobody can change the file but
  // through the mapping that is here already, and so the kernel takes no memory out of it either.
  void lend(Access access) {
    lent_ = Lent::kOnce;
    keeps_memory_ = access == Access::kReadOnly;
  }
  bool keeps_memory() const { return keeps_memory_; }

  // A part of one allocation for a key: it starts on a page, and none of its pages has anything
  // else on it.
  Result<ExportRange> part(std::uintptr_t address, std::uint64_t size) const;
  // Before others may have this part. Its allocation's place is never used again: who imported it
  // may have it mapped for as long as he likes. When the allocation ends, so do its keys.
  void lend_part(const ExportRange& part, Access access);

  // No address of it leads anywhere any more.
  RetiredPool retire_all();

 private:
  Pool(const Surroundings& around, const PoolSpec& spec, PoolSpace space, SpanBooks* books,
       std::uint64_t block, os::GuardedMapping mapping);

  std::uint64_t bytes_of_cuts(std::uint64_t count) const { return count << shift_; }
  std::size_t unit_of(std::uint64_t cut) const { return cut >> (kUnitShift - shift_); }
  bool committed(const Span& span) const;
  Result<void> commit(const Span& span);
  Result<void> charge(std::uint64_t bytes);
  Result<void> commit_run(std::size_t first, std::size_t end);
  // The span's cuts are in use, or a line's.
  void count_busy(const Span& span, bool busy);
  void recount(std::uint64_t reserved);
  Grant hand_out(const Span& from, std::uint64_t count, bool busy_before);
  std::optional<Span> of_other_lines(std::uint64_t count, Line line, const LineOrder& order);
  Error fail_full(std::uint64_t size) const;

  static constexpr unsigned kUnitShift = 21;
  static_assert(kPoolUnit == std::uint64_t{1} << kUnitShift);

  struct Unit {
    std::uint32_t busy = 0;  // Cuts in use, or freed and not anybody's yet.
    bool committed = false;
  };

  const Surroundings around_;
  const PoolSpec spec_;
  const unsigned shift_;  // Of a cut.
  PoolSpace space_;
  SpanBooks* books_;
  const std::uint64_t block_;
  Lent lent_ = Lent::kNever;
  bool keeps_memory_ = false;
  os::GuardedMapping mapping_;
  std::vector<Unit> units_;
  std::size_t idle_units_ = 0;  // Committed, with nothing busy in them.
  Statistics statistics_;
  std::unordered_set<std::uint64_t> lent_places_;  // Their first cuts.
};

}  // namespace hufu::memory
