#include "share/public_id.h"

#include <algorithm>

#include <sodium.h>

namespace hufu::share {
namespace {

constexpr std::string_view kDomain = "hufu-keyid/1";
constexpr std::size_t kKeyBytes = 48;

}  // namespace

// libsodium and not libcrypto, because this is loaded into other people's programs: it registers
// nothing at exit and needs no set-up for a hash.
std::optional<PublicId> public_id_of(std::string_view key) {
  if (key.size() != kKeyTextSize) return std::nullopt;
  std::array<unsigned char, kDomain.size() + kKeyBytes> hashed{};
  std::copy(kDomain.begin(), kDomain.end(), hashed.begin());
  std::size_t length = 0;
  const char* end = nullptr;
  const int decoded =
      ::sodium_base642bin(hashed.data() + kDomain.size(), kKeyBytes, key.data(), key.size(),
                          nullptr, &length, &end, sodium_base64_VARIANT_URLSAFE_NO_PADDING);
  if (decoded != 0 || length != kKeyBytes || end != key.data() + key.size()) return std::nullopt;

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
