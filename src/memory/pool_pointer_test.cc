#include "memory/pool_pointer.h"

#include <cstring>

#include <gtest/gtest.h>

#include "base/units.h"

namespace hufu::memory {
namespace {

constexpr std::uint64_t kPool = 6 * kMiB;
constexpr PoolName kName = {1, 2, 3, 4};

Result<PoolPointer> decode(const PoolPointer::Bytes& bytes, const PoolName& name = kName) {
  return PoolPointer::decode(bytes, name, kPool);
}

TEST(PoolPointer, SaysWhatWasSaid) {
  for (const PoolPointer pointer :
       {PoolPointer{.offset = 0, .size = kPool}, PoolPointer{.offset = kPool - 64, .size = 64},
        PoolPointer{.offset = 4096, .size = 128}}) {
    const auto decoded = decode(pointer.encode(kName));
    ASSERT_TRUE(decoded) << decoded.error().what();
    EXPECT_EQ(decoded->offset, pointer.offset);
    EXPECT_EQ(decoded->size, pointer.size);
  }
}

TEST(PoolPointer, EveryChangedByteIsNoticed) {
  const auto good = PoolPointer{.offset = 4096, .size = 128}.encode(kName);
  for (std::size_t at = 0; at < good.size(); ++at) {
    for (unsigned bit = 0; bit < 8; ++bit) {
      auto bytes = good;
      bytes[at] ^= static_cast<std::byte>(1U << bit);
      EXPECT_FALSE(decode(bytes)) << at;
    }
  }
}

TEST(PoolPointer, ARangeThatIsNotInThePoolIsRefusedWithItsNumbers) {
  constexpr std::uint64_t kHuge = ~std::uint64_t{0} & ~std::uint64_t{63};
  for (const PoolPointer pointer :
       {PoolPointer{.offset = 0, .size = 0}, PoolPointer{.offset = 0, .size = kPool + 64},
        PoolPointer{.offset = kPool, .size = 64}, PoolPointer{.offset = kHuge, .size = 128},
        PoolPointer{.offset = 128, .size = kHuge}, PoolPointer{.offset = 1, .size = 64},
        PoolPointer{.offset = 64, .size = 65}}) {
    const auto decoded = decode(pointer.encode(kName));
    ASSERT_FALSE(decoded) << pointer.offset << " " << pointer.size;
    EXPECT_EQ(decoded.error().reason, Reason::kOutOfRange);
  }
}

TEST(PoolPointer, OfAnotherPoolIsNamed) {
  const auto decoded = decode(PoolPointer{.offset = 0, .size = 64}.encode({9}));
  ASSERT_FALSE(decoded);
  EXPECT_EQ(decoded.error().reason, Reason::kUnknownBlock);
}

TEST(PoolPointer, OfAnotherVersionIsNamed) {
  auto bytes = PoolPointer{.offset = 0, .size = 64}.encode(kName);
  bytes[4] = std::byte{2};
  std::uint64_t sum = 0xcbf29ce484222325;
  for (std::size_t at = 0; at < 56; ++at)
    sum = (sum ^ std::to_integer<std::uint64_t>(bytes[at])) * 0x100000001b3;
  std::memcpy(bytes.data() + 56, &sum, sizeof(sum));
  const auto decoded = decode(bytes);
  ASSERT_FALSE(decoded);
  EXPECT_EQ(decoded.error().reason, Reason::kVersion);
}

}  // namespace
}  // namespace hufu::memory
