#include "memory/address_registry.h"

#include <algorithm>
#include <cassert>

namespace hufu::memory {
namespace {

struct Level {
  unsigned shift;  // A cell spans 2^shift bytes.
  unsigned bits;   // A table has 2^bits cells.

  std::size_t cells() const { return std::size_t{1} << bits; }
  std::size_t index(std::uintptr_t address) const { return (address >> shift) & (cells() - 1); }
};
constexpr std::array<Level, 6> kLevels = {{{39, 9}, {30, 9}, {21, 9}, {12, 9}, {6, 6}, {0, 6}}};
static_assert(kLevels.front().shift + kLevels.front().bits == AddressRegistry::kAddressBits);

// From here on a region may be entered in a cell that it fills in part. Above, a small region would
// stand in the way of everything else's lookup.
constexpr std::size_t kFirstShared = 2;

}  // namespace

// Release on every store: who reads one of these values sees the end of the life before, too.
void AddressRegistry::Record::begin(const Region& region) {
  base.store(region.base, std::memory_order_release);
  mapped.store(region.mapped, std::memory_order_release);
  reported.store(region.reported, std::memory_order_release);
  id.store(region.id, std::memory_order_release);
  books.store(region.books, std::memory_order_release);
  rest.store(std::uint64_t{static_cast<std::uint32_t>(region.page)} << 32U |
                 static_cast<std::uint64_t>(region.device) << 16U |
                 static_cast<std::uint64_t>(region.kind) << 8U |
                 static_cast<std::uint64_t>(region.access),
             std::memory_order_release);
}

void AddressRegistry::Record::end() {
  // In one order with a stream's tickets, as the first load of read() is: work that still found the
  // region has its ticket, and whoever ended the region sees it (runtime/progress.h).
  life.store(life.load(std::memory_order_relaxed) + 1, std::memory_order_seq_cst);
}

inline bool AddressRegistry::Record::read(Region& region) const {
  const std::uint64_t before = life.load(std::memory_order_seq_cst);
  if (before % 2 == 0) return false;
  region.base = base.load(std::memory_order_acquire);
  region.mapped = mapped.load(std::memory_order_acquire);
  region.reported = reported.load(std::memory_order_acquire);
  region.id = id.load(std::memory_order_acquire);
  region.books = books.load(std::memory_order_acquire);
  const std::uint64_t packed = rest.load(std::memory_order_acquire);
  region.page = static_cast<PageSize>(packed >> 32U);
  region.device = static_cast<int>(packed >> 16U & 0xffffU);
  region.kind = static_cast<RegionKind>(packed >> 8U & 0xffU);
  region.access = static_cast<Access>(packed & 0xffU);
  return life.load(std::memory_order_relaxed) == before;
}

AddressRegistry::AddressRegistry() : root_(make_table(0)) { tombstones_.reserve(kTombstones); }

AddressRegistry::~AddressRegistry() { destroy(root_, 0); }

void AddressRegistry::add(const Region& region) {
  assert(region.end() > region.base && region.end() >> kAddressBits == 0);
  assert(region.device >= 0 && region.device <= kMaxDevice);
  const std::lock_guard lock(mutex_);
  if (spare_.empty()) spare_.push_back(&records_.emplace_back());
  Record* record = spare_.back();
  record->begin(region);
  enter(root_, 0, {.first = region.base, .last = region.end() - 1}, record);
  spare_.pop_back();
  // The one store that makes it a region.
  record->life.store(record->life.load(std::memory_order_relaxed) + 1, std::memory_order_release);
}

bool AddressRegistry::remove(std::uintptr_t base) {
  const std::lock_guard lock(mutex_);
  Record* record = record_at(base);
  if (record == nullptr) return false;
  Region region;
  record->read(region);
  spare_.push_back(record);
  record->end();
  const Tombstone tombstone{.base = base, .end = region.end(), .kind = region.kind};
  if (tombstones_.size() < kTombstones) {
    tombstones_.push_back(tombstone);
  } else {
    tombstones_[removed_ % kTombstones] = tombstone;
  }
  ++removed_;
  return true;
}

bool AddressRegistry::look_up(std::uintptr_t address, Region& region) const {
  if (address >> kAddressBits != 0) return false;
  const Cell* table = root_;
#pragma GCC unroll 6
  for (const Level& level : kLevels) {
    const Cell& cell = table[level.index(address)];
    const Record* record = cell.record.load(std::memory_order_acquire);
    if (record != nullptr && record->read(region) && region.base <= address &&
        address < region.end()) {
      return true;
    }
    table = cell.deeper.load(std::memory_order_acquire);
    if (table == nullptr) break;
  }
  return false;
}

AddressRegistry::Record* AddressRegistry::record_at(std::uintptr_t base) const {
  if (base >> kAddressBits != 0) return nullptr;
  const Cell* table = root_;
  for (const Level& level : kLevels) {
    const Cell& cell = table[level.index(base)];
    Record* record = cell.record.load(std::memory_order_relaxed);
    Region region;
    if (record != nullptr && record->read(region) && region.base == base) return record;
    table = cell.deeper.load(std::memory_order_relaxed);
    if (table == nullptr) break;
  }
  return nullptr;
}

void AddressRegistry::enter(Cell* table, std::size_t level, Span span, Record* record) {
  const auto [shift, bits] = kLevels[level];
  const std::uintptr_t inside = (std::uintptr_t{1} << shift) - 1;
  for (std::uintptr_t first = span.first & ~inside; first <= span.last; first += inside + 1) {
    const Span whole{.first = first, .last = first + inside};
    const Span part{.first = std::max(span.first, whole.first),
                    .last = std::min(span.last, whole.last)};
    Cell& cell = table[kLevels[level].index(first)];
    const bool filled = part.first == whole.first && part.last == whole.last;
    if (filled || (level >= kFirstShared && !is_needed(cell, whole))) {
      assert(!is_needed(cell, whole));
      cell.record.store(record, std::memory_order_release);
      continue;
    }
    Cell* deeper = cell.deeper.load(std::memory_order_relaxed);
    if (deeper == nullptr) {
      deeper = make_table(level + 1);
      cell.deeper.store(deeper, std::memory_order_release);
    }
    enter(deeper, level + 1, part, record);
  }
}

// Does a region that lives find itself through this cell? What a cell points to may have ended, or
// may have become a region somewhere else.
bool AddressRegistry::is_needed(const Cell& cell, Span cell_span) {
  const Record* record = cell.record.load(std::memory_order_relaxed);
  Region region;
  if (record == nullptr || !record->read(region)) return false;
  return region.base <= cell_span.last && cell_span.first < region.end();
}

AddressRegistry::Cell* AddressRegistry::make_table(std::size_t level) {
  return new Cell[kLevels[level].cells()];
}

void AddressRegistry::destroy(const Cell* table, std::size_t level) {
  for (std::size_t i = 0; i < kLevels[level].cells(); ++i) {
    const Cell* deeper = table[i].deeper.load(std::memory_order_relaxed);
    if (deeper != nullptr) destroy(deeper, level + 1);
  }
  delete[] table;
}

std::optional<Tombstone> AddressRegistry::once_had(std::uintptr_t address) const {
  const std::lock_guard lock(mutex_);
  for (std::uint64_t i = removed_; i > removed_ - tombstones_.size(); --i) {  // Newest first.
    const Tombstone& tombstone = tombstones_[(i - 1) % kTombstones];
    if (tombstone.base <= address && address < tombstone.end) return tombstone;
  }
  return std::nullopt;
}

std::optional<Region> AddressRegistry::any_in(std::uintptr_t begin, std::uintptr_t end) const {
  const std::lock_guard lock(mutex_);
  for (const Record& record : records_) {
    Region region;
    if (record.read(region) && region.base < end && begin < region.end()) return region;
  }
  return std::nullopt;
}

std::vector<Region> AddressRegistry::list() const {
  std::vector<Region> regions;
  {
    const std::lock_guard lock(mutex_);
    for (const Record& record : records_) {
      Region region;
      if (record.read(region)) regions.push_back(region);
    }
  }
  std::sort(regions.begin(), regions.end(),
            [](const Region& a, const Region& b) { return a.base < b.base; });
  return regions;
}

}  // namespace hufu::memory
