#pragma once

// How programs name a shareable handle: by its token, or by its fabric handle.
//
// A token is 64 random bits and says nothing. A fabric handle is 128 bytes around the export's
// sealed key, with one form for each handle:
//
//   0 "hufu" | 4 version 1, u16 | 6 zero, 2 | 8 the sealed key, 64 characters | 72 zero, 56
//
// Both name one export, and die with it. Neither appears in a log or an error: who can read it may
// try to import it.

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "wire/message.h"

namespace hufu::share {

inline constexpr std::size_t kFabricHandleSize = 128;
using FabricHandle = std::array<std::byte, kFabricHandleSize>;

FabricHandle fabric_handle_of(const wire::ExportHandleReply& exported);

class HandleName {
 public:
  static HandleName of_token(std::uint64_t token);
  // What is no fabric handle is a name too: it is the broker that refuses it, for the record.
  static HandleName of_fabric(std::span<const std::byte, kFabricHandleSize> fabric);

  const wire::KeyText& text() const { return text_; }

 private:
  explicit HandleName(const wire::KeyText& text) : text_(text) {}

  wire::KeyText text_;
};

}  // namespace hufu::share
