#include "runtime/bulk_copy.h"

#if defined(__x86_64__)
#include <unistd.h>

#include <algorithm>
#include <cstddef>

#include <emmintrin.h>
#endif

namespace hufu::runtime {

#if defined(__x86_64__)

namespace {

constexpr std::uint64_t kLine = 64;
constexpr std::size_t kAhead = 512;  // Bytes; the processor's own prefetcher stops at each page.

// From half of the last cache on: source and destination together then fill it.
std::uint64_t large_from() {
  static const std::uint64_t limit = [] {
    constexpr std::uint64_t kMost = std::uint64_t{32} * 1024 * 1024;
    const long cache = ::sysconf(_SC_LEVEL3_CACHE_SIZE);  // 0 where nobody knows.
    const std::uint64_t half = cache > 0 ? static_cast<std::uint64_t>(cache) / 2 : kMost / 2;
    return std::clamp(half, kNeverLarge, kMost);
  }();
  return limit;
}

bool overlap(const void* one, const void* other, std::uint64_t count) {
  const auto a = reinterpret_cast<std::uintptr_t>(one);
  const auto b = reinterpret_cast<std::uintptr_t>(other);
  return (a < b ? b - a : a - b) < count;
}

// `to` starts a line, and `count` is whole lines.
void stream_lines(std::byte* to, const std::byte* from, std::uint64_t count) {
  for (const std::byte* const end = from + count; from != end; from += kLine, to += kLine) {
    _mm_prefetch(reinterpret_cast<const char*>(from) + kAhead, _MM_HINT_T0);
    const auto* source = reinterpret_cast<const __m128i*>(from);
    auto* target = reinterpret_cast<__m128i*>(to);
    const __m128i first = _mm_loadu_si128(source);
    const __m128i second = _mm_loadu_si128(source + 1);
    const __m128i third = _mm_loadu_si128(source + 2);
    const __m128i fourth = _mm_loadu_si128(source + 3);
    _mm_stream_si128(target, first);
    _mm_stream_si128(target + 1, second);
    _mm_stream_si128(target + 2, third);
    _mm_stream_si128(target + 3, fourth);
  }
  _mm_sfence();  // Streaming stores are in no order with others, not even with a release.
}

}  // namespace

void copy_large(void* to, const void* from, std::uint64_t count) {
  if (count < large_from() || overlap(to, from, count)) {
    std::memmove(to, from, count);
    return;
  }
  auto* target = static_cast<std::byte*>(to);
  const auto* source = static_cast<const std::byte*>(from);
  const std::uint64_t head = -reinterpret_cast<std::uintptr_t>(to) % kLine;
  const std::uint64_t lines = (count - head) / kLine * kLine;
  const std::uint64_t tail = count - head - lines;
  std::memcpy(target, source, head);
  stream_lines(target + head, source + head, lines);
  std::memcpy(target + head + lines, source + head + lines, tail);
}

#else

void copy_large(void* to, const void* from, std::uint64_t count) { std::memmove(to, from, count); }

#endif

}  // namespace hufu::runtime
