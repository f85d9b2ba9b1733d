#include "share/public_id.h"

#include <algorithm>

#include <sodium.h>

namespace hufu::share {
namespace {

constexpr std::string_view kDomain = "hufu-keyid/1";
constexpr std::size_t kKeyBytes = 48;
// Not sodium_base642bin(): it takes bytes from 0x80 up for digits, and a key has one text only.
constexpr std::string_view kAlphabet =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

}  // namespace

// libsodium and not libcrypto, because this is loaded into other people's programs: it registers
// nothing at exit and needs no set-up for a hash.
std::optional<PublicId> public_id_of(std::string_view key) {
  if (key.size() != kKeyTextSize) return std::nullopt;
  std::array<unsigned char, kDomain.size() + kKeyBytes> hashed{};
  std::copy(kDomain.begin(), kDomain.end(), hashed.begin());
  auto out = hashed.begin() + kDomain.size();
  for (std::size_t i = 0; i < key.size(); i += 4) {
    std::uint32_t triple = 0;
    for (const char c : key.substr(i, 4)) {
      const auto digit = kAlphabet.find(c);
      if (digit == std::string_view::npos) return std::nullopt;
      triple = triple << 6U | static_cast<std::uint32_t>(digit);
    }
    *out++ = static_cast<unsigned char>(triple >> 16U);
    *out++ = static_cast<unsigned char>(triple >> 8U);
    *out++ = static_cast<unsigned char>(triple);
  }

  std::array<unsigned char, crypto_hash_sha256_BYTES> digest{};
  ::crypto_hash_sha256(digest.data(), hashed.data(), hashed.size());
  ::sodium_memzero(hashed.data(), hashed.size());
  PublicId id;
  std::copy_n(digest.begin(), id.bytes.size(), id.bytes.begin());
  return id;
}

IdText::IdText(const PublicId& id) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  auto digit = digits_.begin();
  for (const std::uint8_t byte : id.bytes) {
    *digit++ = kDigits[byte >> 4U];
    *digit++ = kDigits[byte & 0xfU];
  }
}

}  // namespace hufu::share
