#include "broker/key_seal.h"

#include <algorithm>
#include <cstring>

#include "base/units.h"

#include <sodium.h>

namespace hufu::broker {
namespace {

constexpr std::size_t kNonceBytes = crypto_aead_chacha20poly1305_IETF_NPUBBYTES;
constexpr std::size_t kTagBytes = crypto_aead_chacha20poly1305_IETF_ABYTES;
constexpr std::size_t kSecretBytes = crypto_aead_chacha20poly1305_IETF_KEYBYTES;
constexpr std::size_t kPlainBytes = 20;
static_assert(kNonceBytes + kPlainBytes + kTagBytes == std::tuple_size_v<KeyBytes>);

constexpr std::string_view kPurpose = "hufu-key/1";
constexpr int kBase64 = sodium_base64_VARIANT_URLSAFE_NO_PADDING;
constexpr std::uint64_t kPage = bytes_of(PageSize::k4KiB);

using Plain = std::array<unsigned char, kPlainBytes>;
using Context = std::array<unsigned char, 26>;

Context context_of(const InstanceId& instance) {
  static_assert(std::tuple_size_v<Context> == kPurpose.size() + std::tuple_size_v<InstanceId>);
  Context context{};
  std::copy(kPurpose.begin(), kPurpose.end(), context.begin());
  std::copy(instance.begin(), instance.end(), context.begin() + kPurpose.size());
  return context;
}

void put(Plain& plain, std::size_t at, std::size_t bytes, std::uint64_t value) {
  for (std::size_t i = 0; i < bytes; ++i) {
    plain[at + i] = static_cast<unsigned char>(value >> (8 * i));
  }
}

std::uint64_t get(const Plain& plain, std::size_t at, std::size_t bytes) {
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < bytes; ++i)
    value |= std::uint64_t{plain[at + i]} << (8 * i);
  return value;
}

unsigned char* raw(KeyBytes& key) { return reinterpret_cast<unsigned char*>(key.data()); }
const unsigned char* raw(const KeyBytes& key) {
  return reinterpret_cast<const unsigned char*>(key.data());
}

// The six bits of a letter, or a number above 63 for what is none. By arithmetic alone: no table
// and no branch, whose time would tell something about the letter.
std::uint32_t value_of(char letter) {
  const auto c = static_cast<std::uint32_t>(static_cast<unsigned char>(letter));
  const auto within = [c](std::uint32_t first, std::uint32_t last) {
    return ~((c - first) >> 31U | (last - c) >> 31U) & 1U;  // 1 or 0.
  };
  const std::uint32_t upper = within('A', 'Z');
  const std::uint32_t lower = within('a', 'z');
  const std::uint32_t digit = within('0', '9');
  const std::uint32_t minus = within('-', '-');
  const std::uint32_t under = within('_', '_');
  const std::uint32_t none = 1U ^ (upper | lower | digit | minus | under);
  return upper * (c - 'A') + lower * (c - 'a' + 26) + digit * (c - '0' + 52) + minus * 62 +
         under * 63 + none * 64;
}

}  // namespace

void KeySeal::SecretDeleter::operator()(unsigned char* secret) const { ::sodium_free(secret); }

KeySeal::KeySeal(const InstanceId& instance, Secret secret)
    : instance_(instance), secret_(std::move(secret)) {}

Result<KeySeal> KeySeal::make() {
  if (::sodium_init() < 0) {
    return fail(Errc::kUnavailable, Reason::kSystem,
                "libsodium does not initialise on this machine");
  }
  // sodium_malloc: guard pages around it, locked where RLIMIT_MEMLOCK allows, not in core dumps.
  Secret secret(static_cast<unsigned char*>(::sodium_malloc(kSecretBytes)));
  if (!secret) return fail_errno("sodium_malloc", errno);
  ::randombytes_buf(secret.get(), kSecretBytes);
  InstanceId instance{};
  ::randombytes_buf(instance.data(), instance.size());
  return KeySeal(instance, std::move(secret));
}

KeyBytes KeySeal::seal(const KeyContents& contents) const {
  Plain plain{};
  put(plain, 0, 8, contents.share);
  put(plain, 8, 6, contents.offset / kPage);
  put(plain, 14, 5, contents.size / kPage);
  put(plain, 19, 1, contents.flags);

  KeyBytes key{};
  // A random 96-bit nonce: the chance of a repeat among 2^32 keys is below 2^-33.
  ::randombytes_buf(raw(key), kNonceBytes);
  const Context context = context_of(instance_);
  unsigned long long length = 0;
  ::crypto_aead_chacha20poly1305_ietf_encrypt(raw(key) + kNonceBytes, &length, plain.data(),
                                              plain.size(), context.data(), context.size(), nullptr,
                                              raw(key), secret_.get());
  return key;
}

std::optional<KeyContents> KeySeal::open(const KeyBytes& key) const {
  Plain plain{};
  const Context context = context_of(instance_);
  unsigned long long length = 0;
  const int opened = ::crypto_aead_chacha20poly1305_ietf_decrypt(
      plain.data(), &length, nullptr, raw(key) + kNonceBytes, key.size() - kNonceBytes,
      context.data(), context.size(), raw(key), secret_.get());
  if (opened != 0) return std::nullopt;
  return KeyContents{.share = get(plain, 0, 8),
                     .offset = get(plain, 8, 6) * kPage,
                     .size = get(plain, 14, 5) * kPage,
                     .flags = static_cast<std::uint8_t>(get(plain, 19, 1))};
}

std::array<char, 64> text_of(const KeyBytes& key) {
  std::array<char, 65> text{};
  ::sodium_bin2base64(text.data(), text.size(), raw(key), key.size(), kBase64);
  std::array<char, 64> result{};
  std::copy_n(text.begin(), result.size(), result.begin());
  return result;
}

std::optional<KeyBytes> key_from(std::string_view text) {
  constexpr std::size_t kLetters = 64;
  if (text.size() != kLetters) return std::nullopt;
  // libsodium 1.0.18 reads some bytes above 127 as letters, and takes 5,000 instructions. Four
  // letters are three bytes with no bit to spare, so what is decoded here has one form only.
  KeyBytes key{};
  std::uint32_t seen = 0;
  for (std::size_t i = 0; i < kLetters / 4; ++i) {
    std::uint32_t bits = 0;
    for (const char letter : text.substr(4 * i, 4)) {
      const std::uint32_t value = value_of(letter);
      seen |= value;
      bits = bits << 6U | (value & 63U);
    }
    for (std::size_t byte = 0; byte < 3; ++byte)
      key[3 * i + byte] = static_cast<std::byte>(bits >> (16 - 8 * byte));
  }
  if ((seen & 64U) != 0) return std::nullopt;
  return key;
}

std::uint64_t random_id() {
  std::uint64_t id = 0;
  while (id == 0)
    ::randombytes_buf(&id, sizeof(id));
  return id;
}

}  // namespace hufu::broker
