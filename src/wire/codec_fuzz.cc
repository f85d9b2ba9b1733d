// Any bytes through the broker's door: it never reads past them, and what it lets through encodes
// to exactly the bytes that came in, so there is one text form for every request.

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <span>
#include <variant>

#include "wire/codec.h"

// NOLINTNEXTLINE(readability-identifier-naming): libFuzzer's name for it.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto packet = std::as_bytes(std::span(data, size));
  const auto decoded = hufu::wire::decode_request(packet);
  if (const auto* request = std::get_if<hufu::wire::Request>(&decoded)) {
    const std::uint16_t flags =
        request->one_way ? std::uint16_t{hufu::wire::kOneWay} : std::uint16_t{0};
    const auto frame = std::visit(
        [&](const auto& body) {
          return hufu::wire::encode(request->kind(), flags, request->id, body);
        },
        request->body);
    if (frame.view().size() != size || std::memcmp(frame.view().data(), data, size) != 0)
      std::abort();
  }
  // A client's door, with the same bytes as an answer to any request.
  (void)hufu::wire::decode_reply<hufu::wire::Import>(packet, 1);
  (void)hufu::wire::decode_reply<hufu::wire::Mint>(packet, 1);
  (void)hufu::wire::decode_reply<hufu::wire::Hello>(packet, 1);
  return 0;
}
