#pragma once

// memmove, and faster than the C library's where the copy is larger than the caches.
//
// A copy that no cache can hold is slowed down by the caches: each line of the destination is read
// before it is overwritten, and then pushes another line out. Streaming stores do neither. On
// x86-64 that is 1.3 to 1.5 times the C library's bandwidth from some tens of MiB on
// (bench/copy_bench); plain 16-byte stores, which every such processor has, reach what wider ones
// and `rep movsb` do, so nothing is chosen by processor. Below, and on other processors, and for
// overlapping ranges, it is the C library's memmove. Sets gain nothing: memset streams already.

#include <cstdint>
#include <cstring>

namespace hufu::runtime {

// No processor's caches make less than this a large copy.
inline constexpr std::uint64_t kNeverLarge = std::uint64_t{4} * 1024 * 1024;

void copy_large(void* to, const void* from, std::uint64_t count);

inline void copy_bytes(void* to, const void* from, std::uint64_t count) {
  if (count < kNeverLarge) {
    std::memmove(to, from, count);
  } else {
    copy_large(to, from, count);
  }
}

}  // namespace hufu::runtime
