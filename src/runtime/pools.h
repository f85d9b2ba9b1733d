#pragma once

// Pools: the pools of this process, by handle, and the order in which their memory goes around.
//
// What a pool is, is in memory/pool.h; what is known of the order of work, in
// runtime/stream_order.h; here they meet. A stream is a line by its place. Freeing on a stream
// stamps the range with the stream's tail: the stream may have it again at once. Others may when
// the program has waited for that (it synchronised the stream, or the device, or a stream that came
// after), or what the pool's rules allow is the case.
//
//   free on a stream ──▶ the stream's ── it was synchronised ──▶ anybody's ──▶ trimmed, above the
//   free without one ──▶ waits for what is under way ───────────────▲          pool's threshold
//
// A handle is a number of the kind a stream's is (runtime/streams.h), and the id of the pool's
// region. Destroying a pool makes its addresses dead at once, allocations or not; the memory goes
// when the work that was queued before is over.
//
// A pool may be given to other processes (runtime/imported_pool.h): then the pool is what is
// shared, all of it, and all that is ever in it. Who imported it sees what its exporter sees, byte
// by byte, also of allocations that he was not told of.
//
// Thread-safe: each pool has a lock. Nothing is called with it held that takes another pool's.

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <utility>

#include "base/result.h"
#include "memory/heap.h"
#include "memory/pool.h"
#include "memory/pool_pointer.h"
#include "runtime/deferred.h"
#include "runtime/imported_pool.h"
#include "runtime/lender.h"
#include "runtime/stream_order.h"
#include "runtime/streams.h"
#include "share/client.h"
#include "share/handles.h"

namespace hufu::runtime {

using PoolHandle = void*;

// Values of aclrtMemPoolAttr; src/capi asserts that they are the public header's.
enum class PoolAttribute : std::uint32_t {
  kFollowEvents = 1,
  kOpportunistic = 2,
  kInternalDependencies = 3,
  kReleaseThreshold = 4,
  kReserved = 5,
  kReservedHigh = 6,
  kUsed = 7,
  kUsedHigh = 8,
};

class Pools final : public Lender {
 public:
  static constexpr std::size_t kMostPools = 1024;

  struct Surroundings {  // All outlive this.
    memory::Heap& heap;
    memory::PageSource& source;
    Streams& streams;
    Deferred& deferred;
    share::Client& client;
    share::Handles& handles;
  };
  explicit Pools(const Surroundings& around);
  ~Pools() override = default;
  Pools(const Pools&) = delete;
  Pools& operator=(const Pools&) = delete;

  // Of single allocations, to keys. While the loan lives the pool waits.
  Result<memory::ExportRange> may_lend(const memory::Region& region, const void* pointer,
                                       std::uint64_t size) override;
  Result<Loan> lend(const memory::Region& region, const void* pointer, std::uint64_t size,
                    Access access) override;

  // `size` of 0: the device's.
  Result<PoolHandle> create(int device, std::uint64_t size);
  Result<void> destroy(PoolHandle handle);

  Result<void> set(PoolHandle handle, PoolAttribute attribute, std::uint64_t value);
  Result<std::uint64_t> get(PoolHandle handle, PoolAttribute attribute);

  // A token for other processes; the same again for the same flags, which are wire::ExportFlag.
  Result<std::uint64_t> export_pool(PoolHandle handle, std::uint32_t flags);
  Result<PoolHandle> import_pool(std::uint64_t token);
  // `pointer` is what an allocation of an exported pool begins with.
  Result<memory::PoolPointer::Bytes> export_pointer(const void* pointer);
  Result<void*> import_pointer(PoolHandle handle,
                               std::span<const std::byte, memory::PoolPointer::kSize> bytes);

  // `size` is not 0.
  Result<void*> allocate(PoolHandle handle, std::uint64_t size, const On& on);
  Result<void> trim_to(PoolHandle handle, std::uint64_t keep);

  // `region` is what the registry says of the address: a pool's.
  Result<void> free_on(const memory::Region& region, std::uintptr_t address, const On& on);
  Result<void> free(const memory::Region& region, std::uintptr_t address);

  // For who has waited until all of this was over, or all work of the device: what was freed before
  // is anybody's now, and what is above the threshold goes.
  void synchronized(const Moment& over);
  void device_synchronized(int device);

  // Takes all memory away in which nothing is in use; how many bytes that was.
  std::uint64_t trim_all();

  bool any() const { return count_.load(std::memory_order_relaxed) != 0; }

  // What waiting for events does to it will be done here.
  StreamOrder& order() { return order_; }

 private:
  // How other processes know a pool.
  struct Shared {
    memory::PoolName name;
    std::uint64_t token;
    std::uint32_t flags;
    std::uint64_t session;  // Of the broker; the token opens nothing in another one.
  };
  // Never freed, used again.
  struct Slot {
    std::mutex mutex;
    std::uintptr_t number = 0;  // 0: no pool. The rest is for who holds the mutex.
    // Either it is this process's, and may be shared, or another's.
    std::unique_ptr<memory::Pool> pool;
    std::optional<Shared> shared;
    std::unique_ptr<ImportedPool> imported;
  };
  class Order;
  class RetiredSpan;

  // Holds a pool's lock. Empty if there is no such pool.
  class Held {
   public:
    Held() = default;
    Held(std::unique_lock<std::mutex> lock, Slot* slot) : lock_(std::move(lock)), slot_(slot) {}
    explicit operator bool() const { return slot_ != nullptr; }
    Slot* operator->() const { return slot_; }

   private:
    std::unique_lock<std::mutex> lock_;
    Slot* slot_ = nullptr;
  };
  Held hold(std::uintptr_t number);
  Result<Held> hold_for_key(const memory::Region& region, const void* pointer);
  // One of this process's own. `code` is for when there is none such.
  Result<Held> hold_own(PoolHandle handle, Errc code);
  // The place and the number of a pool to come. Under mutex_.
  struct Fresh {
    std::size_t place;
    std::uintptr_t number;
  };
  Result<Fresh> fresh_number();
  Slot& enter(const Fresh& fresh);
  Result<memory::Pool::Grant> take(PoolHandle handle, std::uint64_t size, const Stream& stream);
  Result<void> wait_on(const On& on, const memory::Pool::Grant& grant);
  template <class Do>
  void for_each(const Do& what);

  memory::Heap& heap_;
  memory::PageSource& source_;
  Streams& streams_;
  Deferred& deferred_;
  share::Client& client_;
  share::Handles& handles_;
  StreamOrder order_;
  memory::SpanShelf shelf_;
  std::mutex mutex_;  // Of making and ending pools.
  std::deque<Slot> slots_;
  std::array<std::atomic<Slot*>, kMostPools> places_{};
  std::atomic<std::size_t> places_used_{0};
  std::atomic<std::size_t> count_{0};
};

}  // namespace hufu::runtime
