// Any bytes as a pointer into a shared pool: what is accepted lies in the pool, and says the same
// bytes again.

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <span>

#include "base/units.h"
#include "memory/pool_pointer.h"

// NOLINTNEXTLINE(readability-identifier-naming): libFuzzer's name for it.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using hufu::memory::PoolPointer;
  constexpr std::uint64_t kPool = 6 * hufu::kMiB;
  if (size < PoolPointer::kSize) return 0;
  const auto bytes = std::as_bytes(std::span(data, size)).first<PoolPointer::kSize>();
  // For the pool that the bytes name: else nothing but random numbers would be tried.
  hufu::memory::PoolName name{};
  std::memcpy(name.data(), data + 8, name.size());
  const auto pointer = PoolPointer::decode(bytes, name, kPool);
  if (!pointer) {
    // Nor would a sum be guessed.
    PoolPointer claimed;
    std::memcpy(&claimed.offset, data + 24, sizeof(claimed.offset));
    std::memcpy(&claimed.size, data + 32, sizeof(claimed.size));
    const auto summed = claimed.encode(name);
    const auto again = PoolPointer::decode(summed, name, kPool);
    if (!again) return 0;
    if (again->offset <= kPool && again->size <= kPool - again->offset) return 0;
    std::fprintf(stderr, "outside the pool\n");
    std::abort();
  }
  const bool inside = pointer->offset <= kPool && pointer->size <= kPool - pointer->offset;
  const auto encoded = pointer->encode(name);
  if (inside && pointer->size != 0 &&
      std::memcmp(encoded.data(), bytes.data(), encoded.size()) == 0) {
    return 0;
  }
  std::fprintf(stderr, "a pointer that is none was accepted\n");
  std::abort();
}
