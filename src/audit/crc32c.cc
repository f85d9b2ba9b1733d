#include "audit/crc32c.h"

#include <array>

namespace hufu::audit {
namespace {

// Eight bytes per step ("slicing by eight"): a record's 216 checked bytes are 27 steps, about
// 60 ns. One byte per step would cost more than twice the record's hash.
constexpr std::size_t kSlices = 8;
constexpr std::uint32_t kPolynomial = 0x82F63B78;

using Tables = std::array<std::array<std::uint32_t, 256>, kSlices>;

constexpr Tables make_tables() {
  Tables tables{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit)
      crc = (crc >> 1) ^ ((crc & 1) != 0 ? kPolynomial : 0);
    tables[0][byte] = crc;
  }
  for (std::size_t slice = 1; slice < kSlices; ++slice) {
    for (std::size_t byte = 0; byte < 256; ++byte) {
      const std::uint32_t before = tables[slice - 1][byte];
      tables[slice][byte] = (before >> 8) ^ tables[0][before & 0xFF];
    }
  }
  return tables;
}

constexpr Tables kTables = make_tables();

}  // namespace

std::uint32_t crc32c(std::span<const std::byte> bytes) {
  const auto at = [&](std::size_t i) { return std::to_integer<std::uint32_t>(bytes[i]); };
  std::uint32_t crc = 0xFFFFFFFF;
  while (bytes.size() >= kSlices) {
    const std::uint32_t low = crc ^ (at(0) | at(1) << 8 | at(2) << 16 | at(3) << 24);
    crc = kTables[7][low & 0xFF] ^ kTables[6][low >> 8 & 0xFF] ^ kTables[5][low >> 16 & 0xFF] ^
          kTables[4][low >> 24] ^ kTables[3][at(4)] ^ kTables[2][at(5)] ^ kTables[1][at(6)] ^
          kTables[0][at(7)];
    bytes = bytes.subspan(kSlices);
  }
  for (; !bytes.empty(); bytes = bytes.subspan(1)) {
    crc = (crc >> 8) ^ kTables[0][(crc ^ at(0)) & 0xFF];
  }
  return ~crc;
}

}  // namespace hufu::audit
