#include "broker/key_seal.h"

#include <cstddef>
#include <set>
#include <string>

#include <gtest/gtest.h>

namespace hufu::broker {
namespace {

constexpr KeyContents kContents{
    .share = 0x1122334455667788, .offset = 4096, .size = 8192, .flags = 1};

KeySeal make_seal() { return std::move(*KeySeal::make()); }

TEST(Key, OpensToWhatWasSealed) {
  const KeySeal seal = make_seal();
  EXPECT_EQ(seal.open(seal.seal(kContents)), kContents);
}

TEST(Key, EveryChangedBitIsRefused) {
  const KeySeal seal = make_seal();
  const KeyBytes key = seal.seal(kContents);
  for (std::size_t bit = 0; bit < key.size() * 8; ++bit) {
    KeyBytes changed = key;
    changed[bit / 8] ^= std::byte{1} << (bit % 8);
    EXPECT_FALSE(seal.open(changed).has_value()) << "bit " << bit;
  }
}

TEST(Key, OfAnotherBrokerNeverOpens) {
  const KeySeal one = make_seal();
  const KeySeal other = make_seal();
  EXPECT_FALSE(other.open(one.seal(kContents)).has_value());
}

TEST(Key, TheSameContentsNeverMakeTheSameKey) {
  const KeySeal seal = make_seal();
  std::set<KeyBytes> keys;
  for (int i = 0; i < 1000; ++i)
    keys.insert(seal.seal(kContents));
  EXPECT_EQ(keys.size(), 1000U);
}

TEST(KeyText, HasExactlyOneForm) {
  const KeySeal seal = make_seal();
  const KeyBytes key = seal.seal(kContents);
  const auto text = text_of(key);
  const std::string good(text.begin(), text.end());
  EXPECT_EQ(key_from(good), key);
  EXPECT_FALSE(key_from(good.substr(0, 63)).has_value());
  EXPECT_FALSE(key_from(good + "A").has_value());
  EXPECT_FALSE(key_from(good.substr(0, 63) + "=").has_value());
  EXPECT_FALSE(key_from(good.substr(0, 63) + "+").has_value()) << "the other base64 alphabet";
  EXPECT_FALSE(key_from(good.substr(0, 63) + "\n").has_value());
  EXPECT_FALSE(key_from(std::string(64, '\0')).has_value());
  EXPECT_FALSE(key_from("").has_value());
}

TEST(KeyText, IsWhatItsBytesGive) {
  const KeySeal seal = make_seal();
  const auto first = text_of(seal.seal(kContents));
  int letters = 0;
  for (int c = 0; c < 256; ++c) {
    for (std::size_t i = 0; i < first.size(); i += 21) {
      std::string text(first.begin(), first.end());
      text[i] = static_cast<char>(c);
      const auto bytes = key_from(text);
      if (!bytes) continue;
      letters += i == 0 ? 1 : 0;
      const auto again = text_of(*bytes);
      EXPECT_EQ(std::string(again.begin(), again.end()), text);
    }
  }
  EXPECT_EQ(letters, 64);
}

// Flipping any one character gives other bytes or no bytes at all, never the same key again.
TEST(KeyText, EveryOtherCharacterIsAnotherKey) {
  const KeySeal seal = make_seal();
  const KeyBytes key = seal.seal(kContents);
  const auto text = text_of(key);
  for (std::size_t i = 0; i < text.size(); ++i) {
    for (int c = 1; c < 256; ++c) {
      if (static_cast<char>(c) == text[i]) continue;
      std::string changed(text.begin(), text.end());
      changed[i] = static_cast<char>(c);
      const auto bytes = key_from(changed);
      ASSERT_TRUE(!bytes || !seal.open(*bytes)) << i << " " << c;
    }
  }
}

}  // namespace
}  // namespace hufu::broker
