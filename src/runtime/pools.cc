#include "runtime/pools.h"

#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "os/file.h"

namespace hufu::runtime {
namespace {

using memory::Line;
using memory::Pool;

// As a stream's handle, with another tag: "PO".
constexpr std::uintptr_t kTag = std::uintptr_t{0x504f} << 48U;
constexpr unsigned kPlaceShift = 6;
constexpr unsigned kPlaceBits = 10;
constexpr unsigned kCountShift = kPlaceShift + kPlaceBits;
static_assert(Pools::kMostPools == std::size_t{1} << kPlaceBits);
constexpr std::uintptr_t kMostCount = (std::uintptr_t{1} << (48 - kCountShift)) - 1;

// The process's, and a forked child's goes on from there.
constinit std::atomic<std::uintptr_t> handles_made{0};

std::uintptr_t number_of(PoolHandle handle) { return reinterpret_cast<std::uintptr_t>(handle); }

std::size_t place_of(std::uintptr_t number) {
  return number >> kPlaceShift & (Pools::kMostPools - 1);
}

// 0 is anybody's.
Line line_of(std::size_t place) { return static_cast<Line>(place + 1); }
std::size_t place_of_line(Line line) { return line - std::size_t{1}; }

Error fail_unknown(std::uintptr_t number, Errc code) {
  return fail(code, Reason::kNone,
              "pool {:#x} is not a pool of this process, or was destroyed; pass a handle that "
              "aclrtMemPoolCreate returned",
              number);
}

std::uint64_t smallest_cut() {
  return os::env("HUFU_STRICT") == "cann" ? memory::kPoolUnit : memory::kPoolCut;
}

// Whoever asked for pool memory and did not get it learns why, by the code that pools have.
Error pool_error(Error error) {
  if (error.code == Errc::kOutOfMemory) error.code = Errc::kPool;
  return error;
}

struct Wait {
  Stream* stream;
  std::uint64_t ticket;

  static std::int32_t run(void* argument) {
    const std::unique_ptr<Wait> self(static_cast<Wait*>(argument));
    self->stream->wait_done(self->ticket, {});
    return 0;
  }
};

}  // namespace

class Pools::Order final : public memory::LineOrder {
 public:
  Order(const Pools& pools, std::size_t asking) : pools_(pools), asking_(asking) {}
  std::uint64_t precedes(Line other) const override {
    return pools_.order_.precedes(place_of_line(other), asking_);
  }
  std::uint64_t passed(Line other) const override {
    return pools_.streams_.at(place_of_line(other)).done.load();
  }

 private:
  const Pools& pools_;
  const std::size_t asking_;
};

// An allocation that was freed while work was under way; its end makes it anybody's.
class Pools::RetiredSpan {
 public:
  RetiredSpan(Pools* pools, std::uintptr_t number, Pool::Span span)
      : pools_(pools), number_(number), span_(span) {}
  ~RetiredSpan() {
    if (pools_ == nullptr) return;
    if (const auto slot = pools_->hold(number_)) slot->pool->give(span_, memory::kAnybody, 0);
  }
  RetiredSpan(RetiredSpan&& other) noexcept
      : pools_(std::exchange(other.pools_, nullptr)), number_(other.number_), span_(other.span_) {}
  RetiredSpan& operator=(RetiredSpan&&) = delete;
  RetiredSpan(const RetiredSpan&) = delete;
  RetiredSpan& operator=(const RetiredSpan&) = delete;

 private:
  Pools* pools_;
  std::uintptr_t number_;
  Pool::Span span_;
};

Pools::Pools(const Surroundings& around)
    : heap_(around.heap),
      source_(around.source),
      streams_(around.streams),
      deferred_(around.deferred),
      client_(around.client),
      handles_(around.handles) {}

// --- Handles -------------------------------------------------------------------------------------

Pools::Held Pools::hold(std::uintptr_t number) {
  if (number >> 48U != kTag >> 48U) return {};
  Slot* slot = places_[place_of(number)].load();
  if (slot == nullptr) return {};
  std::unique_lock lock(slot->mutex);
  if (slot->number != number) return {};
  return {std::move(lock), slot};
}

Result<Pools::Held> Pools::hold_own(PoolHandle handle, Errc code) {
  auto slot = hold(number_of(handle));
  if (!slot) return fail_unknown(number_of(handle), code);
  if (slot->pool) return slot;
  return fail(
      Errc::kPool, Reason::kImportedMemory,
      "pool {:#x} is another process's, imported here: it alone allocates, trims and shares "
      "it; import pointers to what it allocated with aclrtMemPoolImportPointer",
      number_of(handle));
}

template <class Do>
void Pools::for_each(const Do& what) {
  const std::size_t used = places_used_.load();
  for (std::size_t i = 0; i < used; ++i) {
    Slot& slot = *places_[i].load();
    const std::lock_guard lock(slot.mutex);
    if (slot.pool) what(*slot.pool);
  }
}

Result<Pools::Fresh> Pools::fresh_number() {
  std::size_t place = 0;
  while (place < slots_.size() && slots_[place].number != 0)
    ++place;
  if (place == kMostPools || handles_made.load() >= kMostCount) {
    return fail(Errc::kPool, Reason::kNone, "there are {} pools, the most that a process can have",
                place);
  }
  return Fresh{
      .place = place,
      .number = kTag | (handles_made.fetch_add(1) + 1) << kCountShift | place << kPlaceShift};
}

Pools::Slot& Pools::enter(const Fresh& fresh) {
  if (fresh.place == slots_.size()) places_[fresh.place] = &slots_.emplace_back();
  places_used_ = slots_.size();
  count_.fetch_add(1);
  return slots_[fresh.place];
}

Result<PoolHandle> Pools::create(int device, std::uint64_t size) {
  const auto capacity = source_.capacity(device);
  if (!capacity) return capacity.error();
  const std::uint64_t most = capacity->total & ~(memory::kPoolUnit - 1);
  const auto rounded = size == 0 ? most : round_up(size, memory::kPoolUnit);
  if (!rounded || *rounded > most) {
    return fail(Errc::kInvalidValue, Reason::kSizeTooLarge,
                "maxSize is {}, and device {} has {} bytes; pass at most that, or 0 for all of it",
                size, device, capacity->total);
  }
  const std::lock_guard lock(mutex_);
  const auto fresh = fresh_number();
  if (!fresh) return fresh.error();
  auto pool = Pool::make(
      {.source = source_, .registry = heap_.registry(), .shelf = shelf_, .usage = heap_.usage()},
      {.device = device, .size = *rounded, .cut = smallest_cut(), .id = fresh->number});
  if (!pool) return pool_error(pool.error());
  Slot& slot = enter(*fresh);
  const std::lock_guard slot_lock(slot.mutex);
  slot.pool = std::move(*pool);
  slot.number = fresh->number;
  return reinterpret_cast<PoolHandle>(fresh->number);
}

Result<void> Pools::destroy(PoolHandle handle) {
  const std::lock_guard lock(mutex_);
  std::unique_ptr<Pool> pool;
  std::unique_ptr<ImportedPool> imported;
  {
    const auto slot = hold(number_of(handle));
    if (!slot) return fail_unknown(number_of(handle), Errc::kPool);
    pool = std::move(slot->pool);
    imported = std::move(slot->imported);
    slot->shared.reset();
    slot->number = 0;
  }
  count_.fetch_sub(1);
  // What is under way is looked at when nobody finds its addresses any more.
  if (imported) {
    auto retired = imported->retire_all();
    deferred_.end_after(streams_.under_way(imported->device()), std::move(retired));
    return {};
  }
  memory::RetiredPool retired = pool->retire_all();
  auto work = streams_.under_way(pool->spec().device);
  if (!work.empty()) retired.end_keys();  // The pool's end would, and comes later.
  deferred_.end_after(std::move(work), std::move(retired));
  return {};
}

// --- Between processes ---------------------------------------------------------------------------

Result<std::uint64_t> Pools::export_pool(PoolHandle handle, std::uint32_t flags) {
  const auto slot = hold_own(handle, Errc::kPool);
  if (!slot) return slot.error();
  if (client_.address().mode == share::BrokerMode::kNone) return client_.session().error();
  auto& shared = (*slot)->shared;
  if (shared && shared->flags == flags && shared->session == client_.generation()) {
    return shared->token;
  }
  // Already now: when the broker's answer gets lost, a token may be out all the same.
  const bool read_only = (flags & wire::kReadOnly) != 0;
  if (!shared) (*slot)->pool->lend(read_only ? Access::kReadOnly : Access::kReadWrite);
  const auto reply = client_.export_handle((*slot)->pool->block(), flags);
  if (!reply) return reply.error();
  shared = Shared{.name = reply->public_id,
                  .token = reply->token,
                  .flags = flags,
                  .session = client_.generation()};
  return reply->token;
}

Result<Pools::Held> Pools::hold_for_key(const memory::Region& region, const void* pointer) {
  auto slot = hold(region.id);
  if (!slot) return heap_.unknown(pointer);
  if (slot->imported) {
    return fail(Errc::kRefused, Reason::kImportedMemory,
                "address {} lies in a pool that another process owns; ask its owner to share it",
                pointer);
  }
  return slot;
}

Result<memory::ExportRange> Pools::may_lend(const memory::Region& region, const void* pointer,
                                            std::uint64_t size) {
  const auto slot = hold_for_key(region, pointer);
  if (!slot) return slot.error();
  return (*slot)->pool->part(reinterpret_cast<std::uintptr_t>(pointer), size);
}

Result<Loan> Pools::lend(const memory::Region& region, const void* pointer, std::uint64_t size,
                         Access access) {
  auto slot = hold_for_key(region, pointer);
  if (!slot) return slot.error();
  const auto part = (*slot)->pool->part(reinterpret_cast<std::uintptr_t>(pointer), size);
  if (!part) return part.error();
  (*slot)->pool->lend_part(*part, access);
  return Loan{.range = *part, .hold = std::make_shared<Held>(std::move(*slot))};
}

Result<PoolHandle> Pools::import_pool(std::uint64_t token) {
  if (client_.address().mode == share::BrokerMode::kNone) return client_.session().error();
  const std::lock_guard lock(mutex_);
  const auto fresh = fresh_number();
  if (!fresh) return fresh.error();
  auto pool = ImportedPool::make(
      {.registry = heap_.registry(), .shelf = shelf_, .handles = handles_}, token, fresh->number);
  if (!pool) return pool.error();
  Slot& slot = enter(*fresh);
  const std::lock_guard slot_lock(slot.mutex);
  slot.imported = std::move(*pool);
  slot.number = fresh->number;
  return reinterpret_cast<PoolHandle>(fresh->number);
}

Result<memory::PoolPointer::Bytes> Pools::export_pointer(const void* pointer) {
  const auto address = reinterpret_cast<std::uintptr_t>(pointer);
  const auto region = heap_.registry().find(address);
  if (!region) return heap_.unknown(pointer);
  if (region->kind != memory::RegionKind::kPool) {
    return fail(Errc::kInvalidValue, Reason::kNone,
                "address {:#x} is not a pool's; share it with aclrtIpcMemGetExportKey", address);
  }
  const auto slot = hold(region->id);
  if (!slot) return heap_.unknown(pointer);
  if (slot->imported) {
    return fail(Errc::kPool, Reason::kImportedMemory,
                "address {:#x} lies in a pool that another process owns; ask its owner to export "
                "it, or pass on the bytes that it was imported by",
                address);
  }
  if (!slot->shared) {
    return fail(Errc::kPool, Reason::kNone,
                "address {:#x} lies in a pool that is not shared; share the pool first, with "
                "aclrtMemPoolExportToShareableHandle",
                address);
  }
  const auto span = memory::SpanBooks::find(*region, address);
  if (!span) return heap_.unknown(pointer);
  if (region->base + span->offset != address) {
    return fail(Errc::kInvalidValue, Reason::kNone,
                "address {:#x} does not start an allocation; it lies {} bytes into the {}-byte "
                "allocation at {:#x}; export its base and pass the offset along",
                address, address - region->base - span->offset, span->size,
                region->base + span->offset);
  }
  return memory::PoolPointer{.offset = span->offset, .size = span->size}.encode(slot->shared->name);
}

Result<void*> Pools::import_pointer(PoolHandle handle,
                                    std::span<const std::byte, memory::PoolPointer::kSize> bytes) {
  const auto slot = hold(number_of(handle));
  if (!slot) return fail_unknown(number_of(handle), Errc::kPool);
  if (!slot->imported) {
    return fail(Errc::kPool, Reason::kNone,
                "pool {:#x} is this process's own, and its pointers are good here as they are; to "
                "import them pass a pool from aclrtMemPoolImportFromShareableHandle",
                number_of(handle));
  }
  return slot->imported->import_pointer(bytes);
}

// --- Attributes ----------------------------------------------------------------------------------

Result<void> Pools::set(PoolHandle handle, PoolAttribute attribute, std::uint64_t value) {
  const auto slot = hold_own(handle, Errc::kInvalidValue);
  if (!slot) return slot.error();
  Pool* const pool = (*slot)->pool.get();
  switch (attribute) {
    case PoolAttribute::kFollowEvents:
      pool->rules.follow_events = value != 0;
      return {};
    case PoolAttribute::kOpportunistic:
      pool->rules.opportunistic = value != 0;
      return {};
    case PoolAttribute::kInternalDependencies:
      pool->rules.internal_dependencies = value != 0;
      return {};
    case PoolAttribute::kReleaseThreshold:
      if (value > pool->spec().size) {
        return fail(Errc::kPool, Reason::kNone,
                    "the release threshold is {}; pass at most the pool's size, {}", value,
                    pool->spec().size);
      }
      pool->rules.release_threshold = value;
      return {};
    case PoolAttribute::kReserved:
    case PoolAttribute::kUsed:
      return fail(Errc::kInvalidValue, Reason::kNone,
                  "attr {} is what the pool counts and cannot be set; set 1 to 4, or 6 or 8 to 0",
                  static_cast<std::uint32_t>(attribute));
    case PoolAttribute::kReservedHigh:
    case PoolAttribute::kUsedHigh:
      if (value != 0) {
        return fail(Errc::kPool, Reason::kNone,
                    "attr {} is a high-water mark, and *value is {}; it can be set to 0 alone",
                    static_cast<std::uint32_t>(attribute), value);
      }
      if (attribute == PoolAttribute::kUsedHigh) {
        pool->forget_used_high();
      } else {
        pool->forget_reserved_high();
      }
      return {};
  }
  return fail(Errc::kPool, Reason::kNone, "attr is {}; pass one of 1 to 8",
              static_cast<std::uint32_t>(attribute));
}

Result<std::uint64_t> Pools::get(PoolHandle handle, PoolAttribute attribute) {
  const auto slot = hold_own(handle, Errc::kInvalidValue);
  if (!slot) return slot.error();
  const Pool* const pool = (*slot)->pool.get();
  const auto one_if = [](bool set) { return std::uint64_t{set ? 1U : 0U}; };
  switch (attribute) {
    case PoolAttribute::kFollowEvents:
      return one_if(pool->rules.follow_events);
    case PoolAttribute::kOpportunistic:
      return one_if(pool->rules.opportunistic);
    case PoolAttribute::kInternalDependencies:
      return one_if(pool->rules.internal_dependencies);
    case PoolAttribute::kReleaseThreshold:
      return pool->rules.release_threshold;
    case PoolAttribute::kReserved:
      return pool->statistics().reserved;
    case PoolAttribute::kReservedHigh:
      return pool->statistics().reserved_high;
    case PoolAttribute::kUsed:
      return pool->statistics().used;
    case PoolAttribute::kUsedHigh:
      return pool->statistics().used_high;
  }
  return fail(Errc::kPool, Reason::kNone, "attr is {}; pass one of 1 to 8",
              static_cast<std::uint32_t>(attribute));
}

// --- Allocating ----------------------------------------------------------------------------------

Result<Pool::Grant> Pools::take(PoolHandle handle, std::uint64_t size, const Stream& stream) {
  const auto slot = hold_own(handle, Errc::kPool);
  if (!slot) return slot.error();
  return (*slot)->pool->allocate(size, line_of(stream.index), Order(*this, stream.index));
}

Result<void*> Pools::allocate(PoolHandle handle, std::uint64_t size, const On& on) {
  const auto stream = streams_.look_up(on.stream, on.context);
  if (!stream) return stream.error();
  auto grant = take(handle, size, **stream);
  if (!grant && grant.error().code == Errc::kOutOfMemory) {
    // The device is full: what else this process keeps ready may be what is lacking.
    const std::uint64_t relief = heap_.give_back_reserve() + trim_all();
    if (relief != 0) grant = take(handle, size, **stream);
  }
  if (!grant) return pool_error(grant.error());
  if (grant->wait_for != memory::kAnybody) {
    if (auto waiting = wait_on(on, *grant); !waiting) {
      if (const auto slot = hold(number_of(handle))) {
        const auto span = slot->pool->retire(reinterpret_cast<std::uintptr_t>(grant->pointer));
        if (span) slot->pool->give(*span, grant->wait_for, grant->ticket);
      }
      return waiting.error();
    }
  }
  return grant->pointer;
}

// The stream does nothing of what it is told from now on before the other one is so far.
Result<void> Pools::wait_on(const On& on, const Pool::Grant& grant) {
  const std::size_t other = place_of_line(grant.wait_for);
  return streams_.issue(on.stream, on.context, Where::kQueued, [&](Stream& stream) -> Result<Task> {
    order_.follow(stream, {{other, grant.ticket}});
    auto wait = std::make_unique<Wait>(Wait{.stream = &streams_.at(other), .ticket = grant.ticket});
    return Task(HostTask{.run = &Wait::run, .argument = wait.release()});
  });
}

// --- Freeing -------------------------------------------------------------------------------------

Result<void> Pools::free_on(const memory::Region& region, std::uintptr_t address, const On& on) {
  const auto stream = streams_.look_up(on.stream, on.context);
  if (!stream) return stream.error();
  const auto slot = hold(region.id);
  if (!slot) return heap_.unknown(reinterpret_cast<const void*>(address));
  if (slot->imported) return slot->imported->free(address);
  const auto span = slot->pool->retire(address);
  if (!span) return span.error();
  // Looked at now, when nobody finds the address any more.
  slot->pool->give(*span, line_of((*stream)->index), (*stream)->issued.load());
  return {};
}

Result<void> Pools::free(const memory::Region& region, std::uintptr_t address) {
  std::optional<RetiredSpan> retired;
  {
    const auto slot = hold(region.id);
    if (!slot) return heap_.unknown(reinterpret_cast<const void*>(address));
    if (slot->imported) return slot->imported->free(address);
    const auto span = slot->pool->retire(address);
    if (!span) return span.error();
    retired.emplace(this, region.id, *span);
  }
  deferred_.end_after(streams_.under_way(region.device), std::move(*retired));
  return {};
}

// --- Synchronising -------------------------------------------------------------------------------

void Pools::synchronized(const Moment& over) {
  for_each([&](Pool& pool) {
    for (const Line line : pool.waiting_lines()) {
      const auto known = over.find(place_of_line(line));
      if (known != over.end()) pool.synchronized(line, known->second);
    }
    // What cannot be trimmed stays: nobody asked for it by this call.
    if (pool.exceeds_threshold()) static_cast<void>(pool.trim(pool.rules.release_threshold));
  });
}

void Pools::device_synchronized(int device) {
  for_each([&](Pool& pool) {
    for (const Line line : pool.waiting_lines()) {
      const Stream& stream = streams_.at(place_of_line(line));
      if (stream.device.load() == device) pool.synchronized(line, stream.done.load());
    }
    if (pool.exceeds_threshold()) static_cast<void>(pool.trim(pool.rules.release_threshold));
  });
}

Result<void> Pools::trim_to(PoolHandle handle, std::uint64_t keep) {
  const auto slot = hold_own(handle, Errc::kPool);
  if (!slot) return slot.error();
  Pool* const pool = (*slot)->pool.get();
  if (keep > pool->spec().size) {
    return fail(Errc::kPool, Reason::kNone,
                "minBytesToKeep is {}; pass at most the pool's size, {}", keep, pool->spec().size);
  }
  const auto& [reserved, reserved_high, used, used_high] = pool->statistics();
  if (keep >= reserved) return {};
  if (keep < used) {
    return fail(Errc::kPool, Reason::kNone,
                "minBytesToKeep is {}, and {} bytes are in use; pass at least that", keep, used);
  }
  auto trimmed = pool->trim(keep);
  if (!trimmed) return pool_error(trimmed.error());
  return {};
}

std::uint64_t Pools::trim_all() {
  std::uint64_t bytes = 0;
  for_each([&](Pool& pool) {
    const std::uint64_t before = pool.statistics().reserved;
    static_cast<void>(pool.trim(0));
    bytes += before - pool.statistics().reserved;
  });
  return bytes;
}

}  // namespace hufu::runtime
