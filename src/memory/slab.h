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
// The books (which slot is taken, how long it is) lie in ordinary memory, never in the chunk: a
// program that writes past its piece spoils its neighbour's data, but not the allocator. Freed
// pieces are reused in last-in-first-out order and are not cleared.
//
// Thread-safe. One slab serves one device.

#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "base/result.h"
#include "memory/address_registry.h"
#include "memory/block.h"
#include "memory/reserve.h"

namespace hufu::memory {

inline constexpr std::uint64_t kChunkBytes = 256 * kKiB;

class Slab {
 public:
  // Chunks come from `reserve` and are entered in `registry`; both outlive the slab.
  Slab(int device, Reserve& reserve, AddressRegistry& registry);

  // `size` is the reported size, at most 4064.
  Result<std::uintptr_t> allocate(std::uint64_t size);

  // A piece that is nobody's any more and cannot be given out yet; its end makes it free.
  class RetiredPiece {
   public:
    ~RetiredPiece();
    RetiredPiece(RetiredPiece&& other) noexcept
        : slab_(std::exchange(other.slab_, nullptr)), address_(other.address_) {}
    RetiredPiece& operator=(RetiredPiece&&) = delete;
    RetiredPiece(const RetiredPiece&) = delete;
    RetiredPiece& operator=(const RetiredPiece&) = delete;

   private:
    friend class Slab;
    RetiredPiece(Slab* slab, std::uintptr_t address) : slab_(slab), address_(address) {}

    Slab* slab_;
    std::uintptr_t address_;
  };

  // `address` lies in a chunk of this slab (or did, a moment ago). Anything but the start of a
  // piece in use is an error that says what it is instead.
  Result<RetiredPiece> retire(std::uintptr_t address);

  struct Piece {
    std::uintptr_t base = 0;
    std::uint64_t size = 0;
  };
  // The piece in use that contains the address.
  std::optional<Piece> find(std::uintptr_t address) const;

  // Chunks without a piece in use.
  std::uint64_t idle_bytes() const;
  // Puts them into the reserve.
  void give_back_idle();

 private:
  struct Chunk {
    Chunk(Block made, std::size_t size_class_index);

    Block block;
    std::size_t size_class;
    std::vector<std::uint16_t> sizes;  // By slot; 0 is free or retired.
    std::vector<std::uint16_t> free_slots;
    std::size_t used = 0;
    std::size_t place_in_open = 0;  // Index in SizeClass::open while there is room.
  };
  struct SizeClass {
    std::vector<Chunk*> open;  // Chunks with room.
    Chunk* idle = nullptr;     // The one of them that is kept although it is empty.
  };
  struct Place {
    Chunk* chunk;
    std::size_t slot;
    std::uint64_t offset_in_slot;
  };

  Result<Chunk*> add_chunk(std::size_t size_class);
  void drop_chunk(Chunk* chunk);
  void end_retired(std::uintptr_t address);
  void open(Chunk* chunk);
  void close(Chunk* chunk);
  std::optional<Place> locate(std::uintptr_t address) const;

  const int device_;
  Reserve& reserve_;
  AddressRegistry& registry_;
  mutable std::mutex mutex_;
  mutable std::map<std::uintptr_t, Chunk, std::greater<>> chunks_;  // By base.
  std::vector<SizeClass> classes_;
};

}  // namespace hufu::memory
