#pragma once

// Keys: 48 sealed bytes that say "this broker issued me, for exactly this range", as 64 characters.
//
//   nonce 12 | share id 8, offset 6, size 5, flags 1 (sealed) | tag 16     base64url, no padding
//
// Sealed with ChaCha20-Poly1305 under a key that never leaves this object, bound to the broker's
// instance. A key carries nothing readable and cannot be altered; whether it still opens anything
// is decided by the ledger. 48 bytes make exactly 64 characters with no bit to spare, so a key has
// one text form.

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>

#include "base/result.h"

namespace hufu::broker {

using KeyBytes = std::array<std::byte, 48>;
using InstanceId = std::array<std::uint8_t, 16>;

// What a key stands for. Offset and size are bytes, whole 4-KiB pages.
struct KeyContents {
  std::uint64_t share = 0;
  std::uint64_t offset = 0;
  std::uint64_t size = 0;
  std::uint8_t flags = 0;
  friend bool operator==(const KeyContents&, const KeyContents&) = default;
};

class KeySeal {
 public:
  // Draws a fresh instance id and sealing key; the key lives in locked memory outside core dumps.
  static Result<KeySeal> make();

  const InstanceId& instance() const { return instance_; }

  KeyBytes seal(const KeyContents& contents) const;
  // Nothing when the bytes were not sealed here or were altered.
  std::optional<KeyContents> open(const KeyBytes& key) const;

 private:
  struct SecretDeleter {
    void operator()(unsigned char* secret) const;
  };
  using Secret = std::unique_ptr<unsigned char, SecretDeleter>;

  KeySeal(const InstanceId& instance, Secret secret);

  InstanceId instance_;
  Secret secret_;
};

std::array<char, 64> text_of(const KeyBytes& key);
// Nothing unless the text is exactly the one form of 48 bytes.
std::optional<KeyBytes> key_from(std::string_view text);

// From the kernel's generator; never 0, so that 0 can mean "none".
std::uint64_t random_id();

}  // namespace hufu::broker
