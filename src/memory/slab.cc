#include "memory/slab.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <utility>

#include "base/units.h"

namespace hufu::memory {
namespace {

constexpr std::uint64_t kFirstPiece = 64;
// Steps of an eighth to a quarter: at most a fifth of a piece is waste above 512 bytes.
constexpr std::array<std::uint64_t, 20> kStrides = {64,   128,  192,  256,  320,  384,  448,
                                                    512,  640,  768,  896,  1024, 1280, 1536,
                                                    1792, 2048, 2560, 3072, 3584, 4096};

std::size_t class_of(std::uint64_t size) {
  const auto found = std::lower_bound(kStrides.begin(), kStrides.end(), size);
  assert(found != kStrides.end());
  return static_cast<std::size_t>(found - kStrides.begin());
}

std::size_t slots_of(std::uint64_t stride) { return (kChunkBytes - kFirstPiece) / stride; }

std::uint64_t offset_of(std::uint64_t stride, std::size_t slot) {
  return kFirstPiece + slot * stride;
}

bool starts_a_page(std::uint64_t offset) { return is_aligned(offset, 4 * kKiB); }

}  // namespace

Slab::Chunk::Chunk(Block made, std::size_t size_class_index)
    : block(std::move(made)), size_class(size_class_index) {
  const std::uint64_t stride = kStrides[size_class];
  const std::size_t slots = slots_of(stride);
  sizes.assign(slots, 0);
  free_slots.reserve(slots);
  for (std::size_t slot = slots; slot-- > 0;) {  // The first slot is given out first.
    if (starts_a_page(offset_of(stride, slot))) continue;
    free_slots.push_back(static_cast<std::uint16_t>(slot));
  }
}

Slab::Slab(int device, Reserve& reserve, AddressRegistry& registry)
    : device_(device), reserve_(reserve), registry_(registry), classes_(kStrides.size()) {}

Result<std::uintptr_t> Slab::allocate(std::uint64_t size) {
  const std::lock_guard lock(mutex_);
  const std::size_t index = class_of(size);
  SizeClass& size_class = classes_[index];
  if (size_class.open.empty()) {
    auto added = add_chunk(index);
    if (!added) return added.error();
  }
  Chunk* chunk = size_class.open.back();
  if (chunk == size_class.idle) size_class.idle = nullptr;
  const std::uint16_t slot = chunk->free_slots.back();
  chunk->free_slots.pop_back();
  chunk->sizes[slot] = static_cast<std::uint16_t>(size);
  ++chunk->used;
  if (chunk->free_slots.empty()) close(chunk);
  return chunk->block.base() + offset_of(kStrides[index], slot);
}

Result<Slab::RetiredPiece> Slab::retire(std::uintptr_t address) {
  const std::lock_guard lock(mutex_);
  const auto place = locate(address);
  if (!place) {
    return fail(Errc::kInvalidValue, Reason::kNone,
                "address {:#x} does not start an allocation; it lies between the pieces of a slab "
                "for small requests; pass the address that the allocation returned",
                address);
  }
  Chunk* chunk = place->chunk;
  const std::uint64_t size = chunk->sizes[place->slot];
  if (size == 0) {
    return fail(Errc::kInvalidValue, Reason::kNone,
                "address {:#x} lies in a small piece that is free already; free it once", address);
  }
  if (place->offset_in_slot != 0) {
    const std::uintptr_t base = address - place->offset_in_slot;
    return fail(Errc::kInvalidValue, Reason::kNone,
                "address {:#x} does not start an allocation; it lies {} bytes into the {}-byte "
                "piece [{:#x}, {:#x}); pass the base address",
                address, place->offset_in_slot, size, base, base + size);
  }

  chunk->sizes[place->slot] = 0;
  return RetiredPiece(this, address);
}

Slab::RetiredPiece::~RetiredPiece() {
  if (slab_ != nullptr) slab_->end_retired(address_);
}

void Slab::end_retired(std::uintptr_t address) {
  const std::lock_guard lock(mutex_);
  const auto place = locate(address);
  assert(place);  // A retired piece keeps its chunk.
  Chunk* chunk = place->chunk;
  SizeClass& size_class = classes_[chunk->size_class];
  if (chunk->free_slots.empty()) open(chunk);
  chunk->free_slots.push_back(static_cast<std::uint16_t>(place->slot));
  if (--chunk->used != 0) return;
  // One empty chunk stays, so that a program that frees and allocates in turn stays off the source.
  if (size_class.idle == nullptr) {
    size_class.idle = chunk;
  } else {
    drop_chunk(chunk);
  }
}

std::optional<Slab::Piece> Slab::find(std::uintptr_t address) const {
  const std::lock_guard lock(mutex_);
  const auto place = locate(address);
  if (!place) return std::nullopt;
  const std::uint64_t size = place->chunk->sizes[place->slot];
  if (place->offset_in_slot >= size) return std::nullopt;
  return Piece{.base = address - place->offset_in_slot, .size = size};
}

std::uint64_t Slab::idle_bytes() const {
  const std::lock_guard lock(mutex_);
  const auto idle = std::count_if(classes_.begin(), classes_.end(),
                                  [](const SizeClass& c) { return c.idle != nullptr; });
  return static_cast<std::uint64_t>(idle) * kChunkBytes;
}

void Slab::give_back_idle() {
  const std::lock_guard lock(mutex_);
  for (SizeClass& size_class : classes_) {
    if (size_class.idle != nullptr) drop_chunk(std::exchange(size_class.idle, nullptr));
  }
}

Result<Slab::Chunk*> Slab::add_chunk(std::size_t size_class) {
  auto block = reserve_.obtain({.device = device_, .size = kChunkBytes});
  if (!block) return block.error();
  const std::uintptr_t base = block->base();
  registry_.add({.base = base,
                 .mapped = kChunkBytes,
                 .reported = kChunkBytes,
                 .id = block->id(),
                 .device = device_,
                 .kind = RegionKind::kSlab});
  auto& chunk = chunks_.try_emplace(base, std::move(*block), size_class).first->second;
  open(&chunk);
  return &chunk;
}

void Slab::drop_chunk(Chunk* chunk) {
  close(chunk);
  // Out of the registry before its addresses can be given to somebody else.
  registry_.remove(chunk->block.base());
  auto node = chunks_.extract(chunk->block.base());
  reserve_.keep(std::move(node.mapped().block));
}

void Slab::open(Chunk* chunk) {
  auto& list = classes_[chunk->size_class].open;
  chunk->place_in_open = list.size();
  list.push_back(chunk);
}

void Slab::close(Chunk* chunk) {
  auto& list = classes_[chunk->size_class].open;
  list[chunk->place_in_open] = list.back();
  list[chunk->place_in_open]->place_in_open = chunk->place_in_open;
  list.pop_back();
}

std::optional<Slab::Place> Slab::locate(std::uintptr_t address) const {
  const auto found = chunks_.lower_bound(address);  // The greatest base <= address.
  if (found == chunks_.end()) return std::nullopt;
  Chunk& chunk = found->second;
  const std::uint64_t stride = kStrides[chunk.size_class];
  const std::uint64_t offset = address - found->first;
  if (offset < kFirstPiece) return std::nullopt;
  const std::size_t slot = (offset - kFirstPiece) / stride;
  if (slot >= chunk.sizes.size() || starts_a_page(offset_of(stride, slot))) return std::nullopt;
  return Place{.chunk = &chunk, .slot = slot, .offset_in_slot = (offset - kFirstPiece) % stride};
}

}  // namespace hufu::memory
