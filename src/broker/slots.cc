#include "broker/slots.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <type_traits>

#include "audit/crc32c.h"

namespace hufu::broker {
namespace {

static_assert(std::endian::native == std::endian::little, "slots are little endian, by copy");

template <class T>
inline constexpr bool kFillsASlot =
    sizeof(SlotHeader) + sizeof(T) ==
    kSlotBytes&& std::is_trivially_copyable_v<T>&& std::has_unique_object_representations_v<T>;
static_assert(sizeof(SlotHeader) == 16);
static_assert(kFillsASlot<BlockSlot> && kFillsASlot<ExportSlot>);
static_assert(kFillsASlot<ListedSlot> && kFillsASlot<SessionSlot> && kFillsASlot<HandleSlot>);

std::uint32_t sum_of(std::span<const std::byte, kSlotBytes> bytes) {
  return audit::crc32c(bytes.subspan<sizeof(SlotHeader::crc)>());
}

template <class Body>
Slot read_body(std::uint64_t generation, std::span<const std::byte, kSlotBytes> bytes) {
  Body body;
  std::memcpy(&body, bytes.data() + sizeof(SlotHeader), sizeof(body));
  return {.generation = generation, .body = body};
}

}  // namespace

SlotBytes encode(const Slot& slot) {
  SlotBytes bytes{};
  SlotHeader header{.crc = 0, .kind = 0, .format = kSlotFormat, .generation = slot.generation};
  std::visit(
      [&]<class Body>(const Body& body) {
        header.kind = static_cast<std::uint16_t>(Body::kKind);
        std::memcpy(bytes.data() + sizeof(header), &body, sizeof(body));
      },
      slot.body);
  std::memcpy(bytes.data(), &header, sizeof(header));
  header.crc = sum_of(bytes);
  std::memcpy(bytes.data(), &header.crc, sizeof(header.crc));
  return bytes;
}

std::optional<Slot> decode_slot(std::span<const std::byte, kSlotBytes> bytes) {
  SlotHeader header{};
  std::memcpy(&header, bytes.data(), sizeof(header));
  if (header.crc != sum_of(bytes) || header.format != kSlotFormat) return std::nullopt;
  switch (static_cast<SlotKind>(header.kind)) {
    case SlotKind::kBlock:
      return read_body<BlockSlot>(header.generation, bytes);
    case SlotKind::kExport:
      return read_body<ExportSlot>(header.generation, bytes);
    case SlotKind::kListed:
      return read_body<ListedSlot>(header.generation, bytes);
    case SlotKind::kSession:
      return read_body<SessionSlot>(header.generation, bytes);
    case SlotKind::kHandle:
      return read_body<HandleSlot>(header.generation, bytes);
  }
  return std::nullopt;
}

void SlotWriter::store_slot(std::uint32_t& number, const SlotBody& body) {
  if (number == 0) {
    number = free_.empty() ? unused_++ : free_.extract(free_.begin()).value();
  }
  keeper_->store(number, encode({.generation = ++generation_, .body = body}));
}

void SlotWriter::drop(std::uint32_t& number) {
  if (number == 0) return;
  keeper_->drop(number);
  free_.insert(number);
  number = 0;
}

void SlotWriter::adopt(std::uint32_t number, std::uint64_t generation) {
  for (; unused_ <= number; ++unused_)
    free_.insert(unused_);
  free_.erase(number);
  generation_ = std::max(generation_, generation);
}

}  // namespace hufu::broker
