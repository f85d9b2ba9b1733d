#pragma once

// Slab: pieces below a page, cut from chunks of 256 KiB.
//
//   chunk (a block)
//   |64|  piece 0  |  piece 1  |  ...  |  piece n  | rest |
//
// A chunk holds pieces of one stride, a multiple of 64. The first piece starts 64 bytes into the
// chunk, and a slot that would start at a multiple of 4096 is never given out: so no piece ever
// starts on a page, and a program that tests `pointer % 4096 == 0` before it exports is told the
// truth (pieces cannot be exported, their page holds other pieces).
//
// The books lie in ordinary memory, never in the chunk: a program that writes past its piece spoils
// its neighbour's data, but not the allocator. What is true of a slot is its word in the books:
//
//   word = the chunk's life | free, or the size in use, or retired, or gone
//
//   free ──allocate──▶ size ──retire──▶ retired ──end──▶ free         each one compare-and-swap,
//    │ ▲                                                              by any thread, no lock
//    ▼ │ the chunk ends, its books begin another life
//   gone
//
// Free slots are handed around in lists: each thread has some of each stride in its cache, the rest
// lie with the chunk, under the mutex. A list says where a free slot may be, the word says whether
// it is one. Hence a freed piece may go to any thread's cache, a piece that is freed twice is
// noticed whoever does it, and a chunk can end although slots of it lie in caches: its words say
// gone, and whoever comes with such a slot throws it away. (A life has 16 bits. A slot that slept
// in a cache through 65,536 lives of its chunk could be listed twice; still only one can have it.)
//
// A cache is bounded, made with a thread's first piece and returned when the thread ends. Freed
// pieces are reused in last-in-first-out order and are not cleared.
//
// Thread-safe. One slab serves one device.

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "base/result.h"
#include "memory/address_registry.h"
#include "memory/block.h"
#include "memory/reserve.h"
#include "memory/usage.h"

namespace hufu::memory {

inline constexpr std::uint64_t kChunkBytes = 256 * kKiB;

class Slab {
 public:
  // Chunks come from `reserve` and are entered in `registry`. All outlive the slab.
  Slab(int device, Reserve& reserve, AddressRegistry& registry, Usage& usage);
  ~Slab();
  Slab(const Slab&) = delete;
  Slab& operator=(const Slab&) = delete;

  // `size` is the reported size, at most 4064.
  Result<std::uintptr_t> allocate(std::uint64_t size);
  // The common case of it, which makes and throws nothing: 0 when this thread has none at hand.
  std::uintptr_t allocate_from_cache(std::uint64_t size);

 private:
  struct Books;
  // The numbers share a word, so that whoever hands a slot on writes and reads it whole.
  struct Slot {
    Books* books;
    std::uint64_t place;

    std::uint16_t index() const { return static_cast<std::uint16_t>(place); }
    std::uint16_t life() const { return static_cast<std::uint16_t>(place >> 16U); }
  };
  static Slot slot_of(Books* books, std::size_t index, std::uint64_t life) {
    return {.books = books, .place = index | (life & 0xffffU) << 16U};
  }

 public:
  // A piece that is nobody's any more and cannot be given out yet; its end makes it free. Or none.
  class RetiredPiece {
   public:
    RetiredPiece() = default;
    ~RetiredPiece() {
      if (slab_ != nullptr) slab_->end(slot_);
    }
    RetiredPiece(RetiredPiece&& other) noexcept
        : slab_(std::exchange(other.slab_, nullptr)), slot_(other.slot_) {}
    RetiredPiece& operator=(RetiredPiece&&) = delete;
    RetiredPiece(const RetiredPiece&) = delete;
    RetiredPiece& operator=(const RetiredPiece&) = delete;

    explicit operator bool() const { return slab_ != nullptr; }
    int device() const { return slab_->device_; }

   private:
    friend class Slab;
    RetiredPiece(Slab* slab, const Slot& slot) : slab_(slab), slot_(slot) {}

    Slab* slab_ = nullptr;
    Slot slot_{};
  };

  // `chunk` is what the registry says (or said, a moment ago) of `address`. Anything but the start
  // of a piece in use is an error that says what it is instead.
  Result<RetiredPiece> retire(const Region& chunk, std::uintptr_t address);
  // None, without a reason, where retire() would refuse.
  RetiredPiece retire_if_used(const Region& chunk, std::uintptr_t address);

  struct Piece {
    std::uintptr_t base = 0;
    std::uint64_t size = 0;
  };
  // The piece in use that contains the address.
  static std::optional<Piece> find(const Region& chunk, std::uintptr_t address);

  // Chunks without a piece in use.
  std::uint64_t idle_bytes() const;
  // Puts them into the reserve.
  void give_back_idle();

  // In a forked child: what its thread cached was the parent's.
  static void forget_after_fork();

 private:
  static constexpr std::size_t kClasses = 20;
  struct SizeClass {
    std::vector<Books*> open;   // Chunks that have slots to hand out.
    std::vector<Books*> spare;  // Books whose chunk has ended.
    Books* idle = nullptr;      // The one of the open that is kept although nobody has slots of it.
  };
  // Lets a thread that ends find out whether the slab is there still.
  struct Anchor {
    std::mutex mutex;
    Slab* slab;
  };
  struct Cache;
  struct Bin;
  using Blocks = std::vector<Block>;

  struct Place {
    Slot slot;
    std::uint64_t offset_in_slot;
  };
  static std::optional<Place> locate(const Region& chunk, std::uintptr_t address);
  // The word of the piece that starts there becomes `state`. Nothing: no piece in use does.
  static std::optional<Slot> end_use(const Region& chunk, std::uintptr_t address,
                                     std::uint16_t state);
  static Error why_not_in_use(const Region& chunk, std::uintptr_t address);

  Cache* cache_of_thread_if_any() const;
  Cache& cache_of_thread();
  Cache& make_cache_of_thread();
  static void end_thread(void* caches);
  Result<void> fill(Bin& bin, std::size_t size_class);
  std::uintptr_t take(Bin& bin, std::size_t size_class, std::uint64_t size);
  bool claim(const Slot& slot, std::uint64_t size);
  bool claim_again(const Slot& slot, std::uint64_t size);
  void end(const Slot& slot);  // Of a retired piece.
  void put(const Slot& slot);
  Bin& make_room(std::size_t size_class);
  void drain(Bin& bin, std::size_t keep, Blocks& ending);  // Of here on: under the mutex.
  Books* add_chunk(std::size_t size_class, Block block);
  bool end_chunk(Books& books, Blocks& ending);
  void open(Books& books);
  void close(Books& books);
  void count_pieces(std::size_t size_class, std::int64_t pieces);  // Into or out of threads' hands.
  void keep(Blocks ending);                                        // Not under the mutex.

  const int device_;
  const std::uint64_t number_;  // No two slabs of a process, or of its parents, share one.
  Reserve& reserve_;
  AddressRegistry& registry_;
  Usage& usage_;
  const std::shared_ptr<Anchor> anchor_;
  std::mutex& mutex_;  // The anchor's.
  std::deque<Books> books_;
  std::array<SizeClass, kClasses> classes_;
};

}  // namespace hufu::memory
