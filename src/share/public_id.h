#pragma once

// A key's public name: what errors, listings and records call it by. Whoever reads the name cannot
// make the key from it, and nothing but the key's holder could have made the name.

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace hufu::share {

struct PublicId {
  std::array<std::uint8_t, 16> bytes{};

  bool operator==(const PublicId&) const = default;
};

inline constexpr std::size_t kKeyTextSize = 64;

// The first 16 bytes of SHA-256("hufu-keyid/1" || the key's 48 bytes). Nothing for a text that is
// not 64 characters of base64url: 64 characters carry 48 bytes exactly, so each key has one text.
std::optional<PublicId> public_id_of(std::string_view key);

// 32 hex digits, for people.
class IdText {
 public:
  explicit IdText(const PublicId& id);
  std::string_view view() const { return {digits_.data(), digits_.size()}; }

 private:
  std::array<char, 32> digits_{};
};

}  // namespace hufu::share
