#pragma once

// Reading and writing the fields of 256 bytes by one list.
//
// A layout is written once, as a function template that names each field and its offset; handing it
// a Writer encodes, handing it a Reader decodes. So the two directions cannot drift apart. Bytes
// without a meaning are named too (zeros) and must be zero: encode(decode(x)) == x.

#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>

#include "audit/crc32c.h"
#include "audit/record.h"

namespace hufu::audit {

template <class T>
concept Number = std::integral<T> || std::is_enum_v<T>;

// By memcmp against itself, one byte on: a segment is megabytes of zeros, looked through each time
// a log is opened or verified.
inline bool is_zero(std::span<const std::byte> bytes) {
  if (bytes.empty()) return true;
  return bytes.front() == std::byte{0} &&
         std::memcmp(bytes.data(), bytes.data() + 1, bytes.size() - 1) == 0;
}

class Writer {
 public:
  explicit Writer(Bytes256& bytes) : bytes_(bytes) {}

  template <Number T>
  void field(std::size_t offset, const T& value) {
    // Unsigned before widening: a negative code must not fill the bytes behind it.
    using Raw = std::make_unsigned_t<decltype(raw(value))>;
    auto rest = static_cast<std::uint64_t>(static_cast<Raw>(raw(value)));
    for (std::size_t i = 0; i < sizeof(T); ++i, rest >>= 8) {
      bytes_[offset + i] = static_cast<std::byte>(rest & 0xFF);
    }
  }
  template <class T, std::size_t N>
  requires(sizeof(T) == 1) void field(std::size_t offset, const std::array<T, N>& value) {
    std::memcpy(bytes_.data() + offset, value.data(), N);
  }
  void zeros(std::size_t from, std::size_t to) { std::memset(bytes_.data() + from, 0, to - from); }
  void only_bits(std::uint32_t, std::uint32_t) {}

 private:
  template <Number T>
  static auto raw(T value) {
    if constexpr (std::is_enum_v<T>) {
      return static_cast<std::underlying_type_t<T>>(value);
    } else {
      return value;
    }
  }

  Bytes256& bytes_;
};

class Reader {
 public:
  explicit Reader(std::span<const std::byte, kRecordBytes> bytes) : bytes_(bytes) {}

  template <Number T>
  void field(std::size_t offset, T& value) {
    std::uint64_t sum = 0;
    for (std::size_t i = 0; i < sizeof(T); ++i) {
      sum |= std::to_integer<std::uint64_t>(bytes_[offset + i]) << (8 * i);
    }
    value = static_cast<T>(sum);
  }
  template <class T, std::size_t N>
  requires(sizeof(T) == 1) void field(std::size_t offset, std::array<T, N>& value) {
    std::memcpy(value.data(), bytes_.data() + offset, N);
  }
  void zeros(std::size_t from, std::size_t to) {
    zeros_ = zeros_ && is_zero(bytes_.subspan(from, to - from));
  }
  // Bits of a field that have no meaning, like bytes that have none.
  void only_bits(std::uint32_t flags, std::uint32_t known) {
    zeros_ = zeros_ && (flags & ~known) == 0;
  }

  bool zeros_are_zero() const { return zeros_; }

 private:
  std::span<const std::byte, kRecordBytes> bytes_;
  bool zeros_ = true;
};

using Magic = std::array<char, 4>;

// Every 256 bytes of a segment, header or record, begin with a magic and the CRC of 8..223.
inline void put_magic_and_crc(Bytes256& bytes, const Magic& magic) {
  Writer out(bytes);
  out.field(at::kMagic, magic);
  out.field(at::kCrc, crc32c(std::span(bytes).subspan(at::kSeq, at::kChain - at::kSeq)));
}

inline bool magic_is(std::span<const std::byte, kRecordBytes> bytes, const Magic& magic) {
  return std::memcmp(bytes.data(), magic.data(), magic.size()) == 0;
}

inline bool crc_fits(std::span<const std::byte, kRecordBytes> bytes) {
  std::uint32_t stored = 0;
  Reader(bytes).field(at::kCrc, stored);
  return stored == crc32c(bytes.subspan<at::kSeq, at::kChain - at::kSeq>());
}

}  // namespace hufu::audit
