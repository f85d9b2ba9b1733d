#include "audit/chain.h"

#include <array>
#include <cstddef>
#include <string>

#include <gtest/gtest.h>

#include "audit/test_log.h"

#include <fmt/format.h>

namespace hufu::audit {
namespace {

std::string hex_of(const Hash& hash) {
  return fmt::format("{:02x}", fmt::join(hash.begin(), hash.end(), ""));
}

// The expected values are by Python's hashlib, from the formulas in docs/audit_log.md.
TEST(Chain, LinksAreSha256OfKeyPreviousAndBytes) {
  Chain chain(test::fixed_key());
  std::array<std::byte, kLinkedBytes> bytes{};
  bytes.fill(std::byte{0x55});
  const Hash first = chain.link(Hash{}, bytes);
  EXPECT_EQ(hex_of(first), "7990016e98ac767535e462d0e9dce5646c4c923299fe6ea932baaa7e8fc28cbc");
  EXPECT_EQ(hex_of(chain.link(first, bytes)),
            "7d9e8e393c34fc955c9a053fdf73e7ab117af5bbb41969183d3eafcd546c1dbe");
}

TEST(Chain, AKeyIdIsHalfOfSha256OfTheKey) {
  std::array<std::byte, 48> key{};
  for (std::size_t i = 0; i < key.size(); ++i)
    key[i] = static_cast<std::byte>(i);
  EXPECT_EQ(hex(key_id(key)), "9a82b5f337aaa09a88ba6d9ff4e41c74");
}

TEST(Chain, TheLogIdDependsOnTheKey) {
  EXPECT_EQ(hex(Chain(test::fixed_key()).log_id()), "b74c119cbfcebec967bded07e82b9c97");
}

}  // namespace
}  // namespace hufu::audit
