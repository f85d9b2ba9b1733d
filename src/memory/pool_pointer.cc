#include "memory/pool_pointer.h"

#include <bit>
#include <cstring>

#include "base/units.h"

namespace hufu::memory {
namespace {

struct Layout {
  std::array<char, 4> magic;
  std::uint16_t version;
  std::uint16_t zero;
  PoolName pool;
  std::uint64_t offset;
  std::uint64_t size;
  std::array<std::uint64_t, 2> zeros;
  std::uint64_t sum;
};
static_assert(sizeof(Layout) == PoolPointer::kSize && offsetof(Layout, sum) == 56);
static_assert(std::endian::native == std::endian::little, "the layout is written as it lies");

constexpr std::array<char, 4> kMagic = {'H', 'U', 'F', 'P'};
constexpr std::uint16_t kVersion = 1;
constexpr std::uint64_t kGrain = 64;

// FNV-1a.
std::uint64_t sum_of(std::span<const std::byte, PoolPointer::kSize> bytes) {
  std::uint64_t sum = 0xcbf29ce484222325;
  for (const std::byte byte : bytes.first<offsetof(Layout, sum)>())
    sum = (sum ^ std::to_integer<std::uint64_t>(byte)) * 0x100000001b3;
  return sum;
}

}  // namespace

PoolPointer::Bytes PoolPointer::encode(const PoolName& pool) const {
  const Layout layout{
      .magic = kMagic, .version = kVersion, .pool = pool, .offset = offset, .size = size};
  auto bytes = std::bit_cast<Bytes>(layout);
  const std::uint64_t sum = sum_of(bytes);
  std::memcpy(bytes.data() + offsetof(Layout, sum), &sum, sizeof(sum));
  return bytes;
}

Result<PoolPointer> PoolPointer::decode(std::span<const std::byte, kSize> bytes,
                                        const PoolName& pool, std::uint64_t pool_size) {
  Layout layout{};
  std::memcpy(&layout, bytes.data(), sizeof(layout));
  if (layout.magic != kMagic || layout.zero != 0 || layout.zeros[0] != 0 || layout.zeros[1] != 0 ||
      layout.sum != sum_of(bytes)) {
    return fail(Errc::kInvalidValue, Reason::kMalformed,
                "these {} bytes are not what aclrtMemPoolExportPointer wrote; pass them unaltered",
                kSize);
  }
  if (layout.version != kVersion) {
    return fail(Errc::kInvalidValue, Reason::kVersion,
                "the pool pointer is of version {}, and this library reads version {}; use one "
                "version on both sides",
                layout.version, kVersion);
  }
  if (layout.pool != pool) {
    return fail(Errc::kInvalidValue, Reason::kUnknownBlock,
                "the pointer belongs to another pool than the one given, or to an earlier export "
                "of it; import that pool and pass it here");
  }
  if (layout.size == 0 || layout.size > pool_size || layout.offset > pool_size - layout.size ||
      !is_aligned(layout.offset, kGrain) || !is_aligned(layout.size, kGrain)) {
    return fail(Errc::kInvalidValue, Reason::kOutOfRange,
                "the pointer says {} bytes from offset {}, and the pool has {}; both numbers must "
                "be multiples of {} and the range inside",
                layout.size, layout.offset, pool_size, kGrain);
  }
  return PoolPointer{.offset = layout.offset, .size = layout.size};
}

}  // namespace hufu::memory
