#include "share/public_id.h"

#include <string>

#include <gtest/gtest.h>

namespace hufu::share {
namespace {

// printf 'hufu-keyid/1' | cat - <(head -c 48 /dev/zero) | sha256sum
constexpr std::string_view kIdOfZeros = "0c8cf2c7c068212331ed9fad267778ae";

TEST(PublicId, IsTheStartOfTheHashOfTheKeysBytes) {
  const auto id = public_id_of(std::string(64, 'A'));
  ASSERT_TRUE(id.has_value());
  EXPECT_EQ(IdText(*id).view(), kIdOfZeros);
}

TEST(PublicId, TakesEachByteFromItsDigits) {
  // The bytes 0, 5, 10 ... 235.
  const auto id = public_id_of("AAUKDxQZHiMoLTI3PEFGS1BVWl9kaW5zeH2Ch4yRlpugpaqvtLm-w8jN0tfc4ebr");
  ASSERT_TRUE(id.has_value());
  EXPECT_EQ(IdText(*id).view(), "3e72d1805405bee16ba2c289a1949475");
}

TEST(PublicId, OneChangedCharacterIsAnotherId) {
  std::string key(64, 'A');
  const auto before = public_id_of(key);
  key.back() = 'B';
  EXPECT_NE(before, public_id_of(key));
}

TEST(PublicId, TheAlphabetIsThatOfUrls) {
  EXPECT_TRUE(public_id_of(std::string(64, '-')).has_value());
  EXPECT_TRUE(public_id_of(std::string(64, '_')).has_value());
}

TEST(PublicId, OtherTextsHaveNone) {
  EXPECT_FALSE(public_id_of("").has_value());
  EXPECT_FALSE(public_id_of(std::string(63, 'A')).has_value());
  EXPECT_FALSE(public_id_of(std::string(65, 'A')).has_value());
  for (const char wrong : {'+', '/', '=', ' ', '\n', '\0', '\x80'}) {
    for (const std::size_t at : {0U, 31U, 62U, 63U}) {
      std::string key(64, 'A');
      key[at] = wrong;
      EXPECT_FALSE(public_id_of(key).has_value()) << int{wrong} << " at " << at;
    }
  }
}

}  // namespace
}  // namespace hufu::share
