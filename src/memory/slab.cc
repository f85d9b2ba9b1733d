#include "memory/slab.h"

#include <pthread.h>

#include <algorithm>
#include <cassert>
#include <new>
#include <system_error>

#include "base/units.h"

namespace hufu::memory {
namespace {

constexpr std::uint64_t kFirstPiece = 64;
constexpr std::uint64_t kUnit = 64;
// Steps of an eighth to a quarter: at most a fifth of a piece is waste above 512 bytes.
constexpr std::array<std::uint64_t, 20> kStrides = {64,   128,  192,  256,  320,  384,  448,
                                                    512,  640,  768,  896,  1024, 1280, 1536,
                                                    1792, 2048, 2560, 3072, 3584, 4096};

// By the number of 64-byte units, rounded up.
constexpr auto kClassOfUnits = [] {
  std::array<std::uint8_t, kStrides.back() / kUnit + 1> classes{};
  std::uint8_t index = 0;
  for (std::size_t units = 1; units < classes.size(); ++units) {
    if (units * kUnit > kStrides[index]) ++index;
    classes[units] = index;
  }
  return classes;
}();

std::size_t class_of(std::uint64_t size) {
  assert(size > 0 && size < kStrides.back());
  return kClassOfUnits[(size + kUnit - 1) / kUnit];
}

// units / (stride / 64) is (units * inverse) >> 32: exact, as units times (stride / 64) is far
// below 2^32. A division would cost more than all the rest of a lookup.
constexpr auto kInverses = [] {
  std::array<std::uint64_t, kStrides.size()> inverses{};
  for (std::size_t i = 0; i < kStrides.size(); ++i)
    inverses[i] = (std::uint64_t{1} << 32U) / (kStrides[i] / kUnit) + 1;
  return inverses;
}();

constexpr std::size_t slots_of(std::uint64_t stride) {
  return (kChunkBytes - kFirstPiece) / stride;
}
static_assert(slots_of(kStrides.front()) <= 0xffff);

constexpr std::uint64_t offset_of(std::uint64_t stride, std::size_t slot) {
  return kFirstPiece + slot * stride;
}

constexpr bool starts_a_page(std::uint64_t offset) { return is_aligned(offset, 4 * kKiB); }

// The lower half of a word. 1..4064 are sizes in use.
constexpr std::uint16_t kFree = 0;
constexpr std::uint16_t kRetired = 0xffff;
constexpr std::uint16_t kGone = 0xfffe;  // Also a slot that would start a page, always.
static_assert(kStrides.back() < kGone);

constexpr std::uint32_t word_of(std::uint16_t life, std::uint16_t state) {
  return static_cast<std::uint32_t>(life) << 16U | state;
}
constexpr std::uint16_t life_of(std::uint32_t word) {
  return static_cast<std::uint16_t>(word >> 16U);
}
constexpr std::uint16_t state_of(std::uint32_t word) { return static_cast<std::uint16_t>(word); }
constexpr bool is_in_use(std::uint16_t state) { return state != kFree && state < kGone; }

constexpr std::size_t kBinSlots = 32;
constexpr std::uint64_t kBinBytes = 16 * kKiB;
constexpr auto kBinLimits = [] {
  std::array<std::uint8_t, kStrides.size()> limits{};
  for (std::size_t i = 0; i < kStrides.size(); ++i)
    limits[i] =
        static_cast<std::uint8_t>(std::min<std::size_t>(kBinSlots, kBinBytes / kStrides[i]));
  return limits;
}();

std::atomic<std::uint64_t> slabs_made{0};

}  // namespace

// Of one chunk after the other, all of one stride. They stay while the slab does, so whoever looks
// at an old chunk's finds a life that is not the one it expected.
struct Slab::Books {
  explicit Books(std::size_t index)
      : size_class(index),
        slots(slots_of(kStrides[index])),
        words(std::make_unique<std::atomic<std::uint32_t>[]>(slots)) {
    free.reserve(slots);
  }

  const std::size_t size_class;
  const std::size_t slots;
  const std::unique_ptr<std::atomic<std::uint32_t>[]> words;
  std::atomic<std::uintptr_t> base = 0;

  // Under the slab's mutex.
  std::uint16_t life = 0;
  std::optional<Block> block;  // None: the chunk has ended.
  std::vector<std::uint16_t> free;
  std::size_t away = 0;           // Slots that are in use, retired or in caches.
  std::size_t place_in_open = 0;  // Index in SizeClass::open while `free` holds any.

  std::uint64_t stride() const { return kStrides[size_class]; }
  bool can_hold(std::size_t slot) const { return !starts_a_page(offset_of(stride(), slot)); }
  bool is_unused() const {
    return std::none_of(words.get(), words.get() + slots, [](const auto& word) {
      const std::uint16_t state = state_of(word.load(std::memory_order_relaxed));
      return is_in_use(state) || state == kRetired;
    });
  }
};

struct Slab::Bin {
  std::size_t count = 0;
  std::array<Slot, kBinSlots> slots;
};

struct Slab::Cache {
  std::uint64_t number;  // The slab's.
  std::shared_ptr<Anchor> anchor;
  Cache* next;  // The thread's, of another slab.
  std::array<Bin, kClasses> bins{};
};

namespace {

// Static TLS, of which a library that is loaded late has little: one pointer. It leads to the
// thread's caches.
[[gnu::tls_model("initial-exec")]] constinit thread_local void* caches_of_thread = nullptr;

// A key, because its destructor runs when a thread ends but not when the process does: then the
// main thread may go on allocating and freeing until the very end.
pthread_key_t make_thread_key(void (*end)(void*)) {
  pthread_key_t key{};
  if (const int error = ::pthread_key_create(&key, end); error != 0) {
    throw std::system_error(error, std::generic_category(), "pthread_key_create");
  }
  return key;
}

}  // namespace

inline Slab::Cache* Slab::cache_of_thread_if_any() const {
  for (auto* cache = static_cast<Cache*>(caches_of_thread); cache != nullptr; cache = cache->next) {
    if (cache->number == number_) return cache;
  }
  return nullptr;
}

inline Slab::Cache& Slab::cache_of_thread() {
  Cache* cache = cache_of_thread_if_any();
  return cache != nullptr ? *cache : make_cache_of_thread();
}

inline std::optional<Slab::Place> Slab::locate(const Region& chunk, std::uintptr_t address) {
  auto* books = static_cast<Books*>(chunk.books);
  const std::uint64_t offset = address - chunk.base;
  if (offset < kFirstPiece) return std::nullopt;
  const std::uint64_t units = (offset - kFirstPiece) / kUnit;
  const std::size_t slot = (units * kInverses[books->size_class]) >> 32U;
  if (slot >= books->slots || !books->can_hold(slot)) return std::nullopt;
  return Place{.slot = slot_of(books, slot, chunk.id),
               .offset_in_slot = offset - offset_of(books->stride(), slot)};
}

inline std::optional<Slab::Slot> Slab::end_use(const Region& chunk, std::uintptr_t address,
                                               std::uint16_t state) {
  const auto place = locate(chunk, address);
  if (!place || place->offset_in_slot != 0) return std::nullopt;
  const Slot& slot = place->slot;
  std::atomic<std::uint32_t>& word = slot.books->words[slot.index()];
  std::uint32_t found = word.load(std::memory_order_relaxed);
  if (life_of(found) != slot.life() || !is_in_use(state_of(found))) return std::nullopt;
  // Of two threads that free it at once, one comes too late.
  if (!word.compare_exchange_strong(found, word_of(slot.life(), state))) return std::nullopt;
  return slot;
}

inline bool Slab::claim(const Slot& slot, std::uint64_t size) {
  std::atomic<std::uint32_t>& word = slot.books->words[slot.index()];
  const std::uint32_t used = word_of(slot.life(), static_cast<std::uint16_t>(size));
  std::uint32_t expected = word_of(slot.life(), kFree);
  return word.compare_exchange_strong(expected, used, std::memory_order_acq_rel) ||
         claim_again(slot, size);
}

inline std::uintptr_t Slab::take(Bin& bin, std::size_t size_class, std::uint64_t size) {
  while (bin.count != 0) {
    const Slot slot = bin.slots[--bin.count];
    if (!claim(slot, size)) continue;
    // Ours now, so its chunk stays.
    return slot.books->base.load(std::memory_order_relaxed) +
           offset_of(kStrides[size_class], slot.index());
  }
  return 0;
}

Slab::Slab(int device, Reserve& reserve, AddressRegistry& registry, Usage& usage)
    : device_(device),
      number_(slabs_made.fetch_add(1) + 1),
      reserve_(reserve),
      registry_(registry),
      usage_(usage),
      anchor_(std::make_shared<Anchor>()),
      mutex_(anchor_->mutex) {
  anchor_->slab = this;
}

Slab::~Slab() {
  const std::lock_guard lock(mutex_);
  anchor_->slab = nullptr;
}

Result<std::uintptr_t> Slab::allocate(std::uint64_t size) {
  const std::size_t size_class = class_of(size);
  Bin& bin = cache_of_thread().bins[size_class];
  for (;;) {
    if (const std::uintptr_t piece = take(bin, size_class, size)) return piece;
    if (auto filled = fill(bin, size_class); !filled) return filled.error();
  }
}

std::uintptr_t Slab::allocate_from_cache(std::uint64_t size) {
  const std::size_t size_class = class_of(size);
  Cache* cache = cache_of_thread_if_any();
  return cache != nullptr ? take(cache->bins[size_class], size_class, size) : 0;
}

// Perhaps the chunk was about to end, and then did not: end_chunk() is all or nothing.
[[gnu::noinline, gnu::cold]] bool Slab::claim_again(const Slot& slot, std::uint64_t size) {
  const std::lock_guard lock(mutex_);
  std::uint32_t expected = word_of(slot.life(), kFree);
  return slot.books->words[slot.index()].compare_exchange_strong(
      expected, word_of(slot.life(), static_cast<std::uint16_t>(size)), std::memory_order_acq_rel);
}

Slab::RetiredPiece Slab::retire_if_used(const Region& chunk, std::uintptr_t address) {
  if (const auto slot = end_use(chunk, address, kRetired)) return RetiredPiece(this, *slot);
  return RetiredPiece();
}

Result<Slab::RetiredPiece> Slab::retire(const Region& chunk, std::uintptr_t address) {
  const auto slot = end_use(chunk, address, kRetired);
  if (!slot) return why_not_in_use(chunk, address);
  return RetiredPiece(this, *slot);
}

// A bin of this thread's with room for one more.
[[gnu::noinline, gnu::cold]] Slab::Bin& Slab::make_room(std::size_t size_class) {
  Bin& bin = cache_of_thread().bins[size_class];
  const std::size_t limit = kBinLimits[size_class];
  if (bin.count == limit) {
    Blocks ending;
    {
      const std::lock_guard lock(mutex_);
      drain(bin, limit / 2, ending);
    }
    keep(std::move(ending));
  }
  return bin;
}

inline void Slab::put(const Slot& slot) {
  const std::size_t size_class = slot.books->size_class;
  Cache* cache = cache_of_thread_if_any();
  Bin* bin = cache == nullptr ? nullptr : &cache->bins[size_class];
  if (bin == nullptr || bin->count == kBinLimits[size_class]) bin = &make_room(size_class);
  bin->slots[bin->count++] = slot;
}

void Slab::end(const Slot& slot) {
  slot.books->words[slot.index()].store(word_of(slot.life(), kFree), std::memory_order_release);
  put(slot);
}

Error Slab::why_not_in_use(const Region& chunk, std::uintptr_t address) {
  const auto place = locate(chunk, address);
  if (!place) {
    return fail(Errc::kInvalidValue, Reason::kNone,
                "address {:#x} does not start an allocation; it lies between the pieces of a slab "
                "for small requests; pass the address that the allocation returned",
                address);
  }
  const std::uint64_t offset = place->offset_in_slot;
  const std::uint32_t word =
      place->slot.books->words[place->slot.index()].load(std::memory_order_relaxed);
  const std::uint16_t size = state_of(word);
  if (offset == 0 || life_of(word) != place->slot.life() || !is_in_use(size)) {
    return fail(Errc::kInvalidValue, Reason::kNone,
                "address {:#x} lies in a small piece that is free already; free it once", address);
  }
  const std::uintptr_t base = address - offset;
  return fail(Errc::kInvalidValue, Reason::kNone,
              "address {:#x} does not start an allocation; it lies {} bytes into the {}-byte "
              "piece [{:#x}, {:#x}); pass the base address",
              address, offset, size, base, base + size);
}

std::optional<Slab::Piece> Slab::find(const Region& chunk, std::uintptr_t address) {
  const auto place = locate(chunk, address);
  if (!place) return std::nullopt;
  const Slot& slot = place->slot;
  const std::uint32_t word = slot.books->words[slot.index()].load(std::memory_order_seq_cst);
  const std::uint16_t size = state_of(word);
  if (life_of(word) != slot.life() || !is_in_use(size)) return std::nullopt;
  if (place->offset_in_slot >= size) return std::nullopt;
  return Piece{.base = address - place->offset_in_slot, .size = size};
}

Slab::Cache& Slab::make_cache_of_thread() {
  static const pthread_key_t key = make_thread_key(&Slab::end_thread);
  std::unique_ptr<Cache> cache(new Cache{
      .number = number_, .anchor = anchor_, .next = static_cast<Cache*>(caches_of_thread)});
  if (::pthread_setspecific(key, &caches_of_thread) != 0) throw std::bad_alloc();
  caches_of_thread = cache.get();
  return *cache.release();
}

// `caches` is &caches_of_thread, which is there still: TLS outlives the keys' destructors.
void Slab::end_thread(void* caches) {
  auto* cache = static_cast<Cache*>(std::exchange(*static_cast<void**>(caches), nullptr));
  while (cache != nullptr) {
    const std::unique_ptr<Cache> ending(cache);
    cache = cache->next;
    Blocks empty;
    Slab* slab = nullptr;
    {
      const std::lock_guard lock(ending->anchor->mutex);
      slab = ending->anchor->slab;
      if (slab == nullptr) continue;
      for (Bin& bin : ending->bins)
        slab->drain(bin, 0, empty);
    }
    slab->keep(std::move(empty));
  }
}

void Slab::forget_after_fork() { caches_of_thread = nullptr; }

Result<void> Slab::fill(Bin& bin, std::size_t size_class) {
  SizeClass& here = classes_[size_class];
  std::unique_lock lock(mutex_);
  if (here.open.empty()) {
    // Unlocked, so that what others free meanwhile can be given back if memory is short.
    lock.unlock();
    auto block = reserve_.obtain({.device = device_, .size = kChunkBytes});
    if (!block) return block.error();
    lock.lock();
    add_chunk(size_class, std::move(*block));
  }
  Books& books = *here.open.back();
  if (&books == here.idle) here.idle = nullptr;
  std::int64_t taken = 0;
  const std::size_t half = std::max<std::size_t>(std::size_t{kBinLimits[size_class]} / 2, 1);
  while (bin.count < half && !books.free.empty()) {
    bin.slots[bin.count++] = slot_of(&books, books.free.back(), books.life);
    books.free.pop_back();
    ++books.away;
    ++taken;
  }
  count_pieces(size_class, taken);
  if (books.free.empty()) close(books);
  return {};
}

// The oldest go back to their chunks.
void Slab::drain(Bin& bin, std::size_t keep, Blocks& ending) {
  const std::size_t back = bin.count - std::min(keep, bin.count);
  if (back == 0) return;
  const std::size_t size_class = bin.slots[0].books->size_class;
  std::int64_t returned = 0;
  for (std::size_t i = 0; i < back; ++i) {
    const Slot& slot = bin.slots[i];
    Books& books = *slot.books;
    if (!books.block || books.life != slot.life()) continue;
    if (books.free.empty()) open(books);
    books.free.push_back(slot.index());
    ++returned;
    if (--books.away != 0) continue;
    // One stays, so that a program that frees and allocates in turn stays off the reserve.
    Books*& idle = classes_[books.size_class].idle;
    if (idle == nullptr) {
      idle = &books;
    } else {
      end_chunk(books, ending);
    }
  }
  count_pieces(size_class, -returned);
  std::copy(bin.slots.begin() + back, bin.slots.begin() + bin.count, bin.slots.begin());
  bin.count -= back;
}

Slab::Books* Slab::add_chunk(std::size_t size_class, Block block) {
  SizeClass& here = classes_[size_class];
  if (here.spare.empty()) here.spare.push_back(&books_.emplace_back(size_class));
  Books& books = *here.spare.back();
  here.spare.pop_back();
  ++books.life;
  books.away = 0;
  books.base.store(block.base(), std::memory_order_relaxed);
  for (std::size_t slot = books.slots; slot-- > 0;) {  // The first slot is given out first.
    const bool usable = books.can_hold(slot);
    books.words[slot].store(word_of(books.life, usable ? kFree : kGone), std::memory_order_release);
    if (usable) books.free.push_back(static_cast<std::uint16_t>(slot));
  }
  books.block.emplace(std::move(block));
  usage_.change(device_, {{Usage::kChunks, std::int64_t{kChunkBytes}}});
  open(books);
  registry_.add({.base = books.block->base(),
                 .mapped = kChunkBytes,
                 .reported = kChunkBytes,
                 .id = books.life,
                 .device = device_,
                 .kind = RegionKind::kSlab,
                 .books = &books});
  return &books;
}

// All of its slots go, or none: a thread that takes one meanwhile wins, and the rest come back.
bool Slab::end_chunk(Books& books, Blocks& ending) {
  const std::uint32_t free = word_of(books.life, kFree);
  const std::uint32_t gone = word_of(books.life, kGone);
  std::size_t slot = 0;
  for (; slot < books.slots; ++slot) {
    std::uint32_t expected = free;
    if (!books.can_hold(slot)) continue;
    if (!books.words[slot].compare_exchange_strong(expected, gone, std::memory_order_acq_rel)) {
      break;
    }
  }
  if (slot != books.slots) {
    while (slot-- > 0) {
      if (books.can_hold(slot)) books.words[slot].store(free, std::memory_order_release);
    }
    return false;
  }
  if (!books.free.empty()) close(books);
  books.free.clear();
  SizeClass& here = classes_[books.size_class];
  if (here.idle == &books) here.idle = nullptr;
  here.spare.push_back(&books);
  // Out of the registry before its addresses can be given to somebody else.
  registry_.remove(books.block->base());
  ending.push_back(std::move(*books.block));
  books.block.reset();
  usage_.change(device_, {{Usage::kChunks, -std::int64_t{kChunkBytes}}});
  count_pieces(books.size_class, -static_cast<std::int64_t>(books.away));
  return true;
}

void Slab::count_pieces(std::size_t size_class, std::int64_t pieces) {
  const auto stride = static_cast<std::int64_t>(kStrides[size_class]);
  usage_.change(device_, {{Usage::kPieces, pieces * stride}});
}

void Slab::keep(Blocks ending) {
  for (Block& block : ending)
    reserve_.keep(std::move(block));
}

std::uint64_t Slab::idle_bytes() const {
  const std::lock_guard lock(mutex_);
  const auto idle = std::count_if(books_.begin(), books_.end(), [](const Books& books) {
    return books.block && books.is_unused();
  });
  return static_cast<std::uint64_t>(idle) * kChunkBytes;
}

void Slab::give_back_idle() {
  Blocks ending;
  {
    const std::lock_guard lock(mutex_);
    for (Books& books : books_) {
      if (books.block && books.is_unused()) end_chunk(books, ending);
    }
  }
  keep(std::move(ending));
}

void Slab::open(Books& books) {
  auto& list = classes_[books.size_class].open;
  books.place_in_open = list.size();
  list.push_back(&books);
}

void Slab::close(Books& books) {
  auto& list = classes_[books.size_class].open;
  list[books.place_in_open] = list.back();
  list[books.place_in_open]->place_in_open = books.place_in_open;
  list.pop_back();
}

}  // namespace hufu::memory
