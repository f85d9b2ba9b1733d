#pragma once

// The broker's books as a keeper stores them: 64 bytes for each thing that must outlive the broker.
//
// A keeper is whoever keeps slots and descriptors while the broker is restarted (a process of its
// own, or a service manager): it understands nothing of them. The ledger stores a slot at each
// change, BEFORE anybody is told of the change, so what a client was answered is in the slots; what
// is only half there was answered to nobody, and is dropped when the books are rebuilt.
//
//   0        4      6        8            16                                    64
//   | crc32c | kind | format | generation | body, by kind                        |
//
// Little endian, no padding; the sum is over bytes 4..63. docs/state_slots.md has the tables.
//
// The generation rises with every slot that is written: of two slots that speak of one thing, the
// higher one is the later. What holders hold is in no slot: who resumes a session says so.

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <variant>

#include "base/unique_fd.h"

namespace hufu::broker {

inline constexpr std::size_t kSlotBytes = 64;
inline constexpr std::uint16_t kSlotFormat = 1;
using SlotBytes = std::array<std::byte, kSlotBytes>;

enum class SlotKind : std::uint16_t {
  kBlock = 1,
  kExport = 2,
  kListed = 3,
  kSession = 4,
  kHandle = 5,
};

struct SlotHeader {
  std::uint32_t crc;
  std::uint16_t kind;
  std::uint16_t format;
  std::uint64_t generation;
};

// Its descriptor, the original file, is kept under the same number.
struct BlockSlot {
  static constexpr SlotKind kKind = SlotKind::kBlock;
  std::uint64_t id;
  std::uint64_t owner;  // Session; 0: freed, kept for those who hold it.
  std::uint64_t size;
  std::uint32_t page;
  std::uint32_t device;
  std::uint32_t uid;  // Of who had it made.
  std::uint8_t backing;
  std::uint8_t sealed_for;  // Access; 0: never exported.
  std::uint8_t sparse;      // 1: charged by use.
  std::uint8_t reserved;
  std::uint32_t charged_units;  // Of wire::kChargeUnit; only of a sparse one.
  std::array<std::uint8_t, 4> reserved_too;
};

// The exporter is the block's owner. The range's size is asked_size in whole pages.
struct ExportSlot {
  static constexpr SlotKind kKind = SlotKind::kExport;
  std::uint64_t id;
  std::uint64_t block;
  std::array<std::uint8_t, 16> public_id;
  std::uint64_t asked_size;
  std::uint32_t offset_pages_low;  // In pages of 4096, of which no file has 2^48.
  std::uint16_t offset_pages_high;
  std::uint8_t flags;  // wire::ExportFlag
  std::uint8_t live;   // 0: ended, kept for those who hold it.
};

struct ListedSlot {
  static constexpr SlotKind kKind = SlotKind::kListed;
  std::uint64_t share;
  std::uint64_t pidfs_inode;
  std::uint64_t start_time;  // Only where there is no inode: pid and start identify then.
  std::int32_t pid;
  std::array<std::uint8_t, 20> reserved;
};

// The token of an export that is a shareable handle, beside the export's own slot.
struct HandleSlot {
  static constexpr SlotKind kKind = SlotKind::kHandle;
  std::uint64_t share;
  std::uint64_t token;
  std::array<std::uint8_t, 32> reserved;
};

struct SessionSlot {
  static constexpr SlotKind kKind = SlotKind::kSession;
  std::uint64_t id;
  std::array<std::uint8_t, 16> secret_hash;
  std::uint64_t pidfs_inode;
  std::uint32_t uid;
  std::uint32_t gid;
  std::int32_t pid;
  std::uint32_t reserved;
};

using SlotBody = std::variant<BlockSlot, ExportSlot, ListedSlot, SessionSlot, HandleSlot>;

struct Slot {
  std::uint64_t generation = 0;
  SlotBody body;
};

SlotBytes encode(const Slot& slot);
// Nothing when it is torn, rotten, of another format or of no known kind.
std::optional<Slot> decode_slot(std::span<const std::byte, kSlotBytes> bytes);

// Slots are numbered from 1, by the broker, and used again. Calls are made in the broker's loop and
// must not wait for anybody. A keeper that fails is the broker's end, not a half-kept book.
class Keeper {
 public:
  virtual ~Keeper() = default;
  virtual void store(std::uint32_t number, const SlotBytes& bytes) = 0;
  // The descriptor that belongs to a stored slot; the keeper takes a duplicate.
  virtual void keep(std::uint32_t number, int fd) = 0;
  // Slot and descriptor, if there is one.
  virtual void drop(std::uint32_t number) = 0;
};

// Hands out numbers and generations. Without a keeper nothing is written and nothing is numbered.
class SlotWriter {
 public:
  explicit SlotWriter(Keeper* keeper) : keeper_(keeper) {}

  // `number` is 0 for a thing that has no slot yet, and becomes its slot's.
  template <class Body>
  void store(std::uint32_t& number, const Body& body) {
    if (keeper_ != nullptr) store_slot(number, SlotBody(body));
  }
  void keep(std::uint32_t number, const UniqueFd& fd) {
    if (keeper_ != nullptr) keeper_->keep(number, fd.get());
  }
  void drop(std::uint32_t& number);

  // For books that are rebuilt: this slot is in use.
  void adopt(std::uint32_t number, std::uint64_t generation);

 private:
  void store_slot(std::uint32_t& number, const SlotBody& body);

  Keeper* keeper_;
  std::uint64_t generation_ = 0;
  std::uint32_t unused_ = 1;      // The lowest number never used.
  std::set<std::uint32_t> free_;  // Below it.
};

}  // namespace hufu::broker
