// Any 256 bytes through the reader's door: what it lets through encodes to exactly the bytes that
// came in, and its line has no control character, whatever the process called itself.

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <span>

#include "audit/layout.h"
#include "audit/record.h"
#include "audit/text.h"

// NOLINTNEXTLINE(readability-identifier-naming): the name is libFuzzer's.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using hufu::audit::Bytes256;
  if (size < hufu::audit::kRecordBytes) return 0;
  Bytes256 bytes{};
  std::memcpy(bytes.data(), data, bytes.size());
  (void)hufu::audit::decode(bytes);
  // No fuzzer guesses a CRC; so the second try has the right one, and looks behind it.
  hufu::audit::put_magic_and_crc(bytes, {'H', 'F', 'U', '1'});
  const auto record = hufu::audit::decode(bytes);
  if (!record) return 0;
  if (hufu::audit::encode(*record) != bytes) std::abort();
  const auto line = hufu::audit::to_line(*record);
  if (std::ranges::any_of(line, [](char c) { return c < ' ' || c > '~'; })) std::abort();
  return 0;
}
