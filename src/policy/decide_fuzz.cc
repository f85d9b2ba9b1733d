// Any request against any block: an allowed range is whole pages inside the file.

#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "policy/decide.h"

// NOLINTNEXTLINE(readability-identifier-naming): libFuzzer's name for it.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  struct Input {
    hufu::wire::Export request;
    std::uint32_t pages;
    std::uint32_t huge;
  } input;
  if (size < sizeof(input)) return 0;
  std::memcpy(&input, data, sizeof(input));
  const auto page = (input.huge & 1U) != 0 ? hufu::PageSize::k2MiB : hufu::PageSize::k4KiB;
  const std::uint64_t bytes = hufu::bytes_of(page) * (1ULL + input.pages);
  const auto answer =
      hufu::policy::decide_export(input.request, {.size = bytes, .committed = bytes, .page = page});
  if (!answer.verdict.allowed()) return 0;
  const bool inside = answer.range.size != 0 && answer.range.offset < bytes &&
                      answer.range.size <= bytes - answer.range.offset;
  const bool whole = hufu::is_aligned(answer.range.offset, hufu::bytes_of(page)) &&
                     hufu::is_aligned(answer.range.size, hufu::bytes_of(page));
  if (!inside || !whole) std::abort();
  return 0;
}
