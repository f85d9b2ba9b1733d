#include "runtime/task.h"

#include <algorithm>

namespace hufu::runtime {

void fill_words(void* to, std::uint64_t words, std::uint32_t value) {
  std::fill_n(static_cast<std::uint32_t*>(to), words, value);
}

void copy_rows(const Rows& rows) {
  auto* to = static_cast<std::byte*>(rows.to);
  const auto* from = static_cast<const std::byte*>(rows.from);
  if (rows.width == rows.to_pitch && rows.width == rows.from_pitch) {
    copy_bytes(to, from, rows.width * rows.height);
    return;
  }
  for (std::uint64_t row = 0; row < rows.height; ++row) {
    copy_bytes(to, from, rows.width);
    to += rows.to_pitch;
    from += rows.from_pitch;
  }
}

void copy_pieces(const std::vector<Piece>& pieces) {
  for (const Piece& piece : pieces)
    copy_bytes(piece.to, piece.from, piece.count);
}

}  // namespace hufu::runtime
