#pragma once

// From values to bytes and, through one door each way, from bytes to values.
//
// decode_request() is what the broker puts every packet through, decode_reply() what a client puts
// every answer through. What comes out is well formed: the version is ours, the size is the kind's,
// flags are legal for the kind, counts are within their arrays, reserved bytes and unused entries
// are zero, enumerations have a meaning. Whether it is ALLOWED is policy's business.

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string_view>
#include <variant>

#include "base/reason.h"
#include "wire/message.h"

namespace hufu::wire {

// One encoded message.
struct Frame {
  std::array<std::byte, kMaxMessage> bytes{};
  std::size_t size = 0;

  std::span<const std::byte> view() const { return {bytes.data(), size}; }
};

template <Body T>
Frame encode(Kind kind, std::uint16_t flags, std::uint64_t request, const T& body) {
  Frame frame;
  frame.size = sizeof(Header) + kBodySize<T>;
  const Header header{.version = kVersion,
                      .kind = static_cast<std::uint16_t>(kind),
                      .size = static_cast<std::uint16_t>(frame.size),
                      .flags = flags,
                      .request = request};
  std::memcpy(frame.bytes.data(), &header, sizeof(header));
  if constexpr (kBodySize<T> != 0) {
    std::memcpy(frame.bytes.data() + sizeof(header), &body, sizeof(body));
  }
  return frame;
}

using RequestBody = std::variant<Hello, Attach, Watch, Mint, Free, Export, Withdraw, Import, Close,
                                 ListPid, ListProcess, Stat, Report, List, Usage, Bye, EndAll>;

struct Request {
  std::uint64_t id = 0;
  bool one_way = false;
  RequestBody body;

  Kind kind() const;
};

// Why a packet is not a request. The numbers are those of the Reason.
struct DecodeError {
  Reason reason = Reason::kMalformed;
  std::uint64_t request = 0;  // 0 when even the header was unusable.
  std::uint16_t kind = 0;
  std::array<std::uint64_t, 2> number{};
};

std::variant<Request, DecodeError> decode_request(std::span<const std::byte> packet);

// An answer to the request `request` of type R: the reply, the refusal, or nothing when the bytes
// are neither.
template <class R>
using Answer = std::variant<typename Protocol<R>::Reply, Refusal>;

namespace internal {
struct RawReply {
  std::uint64_t request;
  bool refused;
  std::span<const std::byte> body;
};
std::optional<RawReply> decode_reply_header(std::span<const std::byte> packet, Kind kind);
bool well_formed(const HelloReply& reply);
bool well_formed(const MintReply& reply);
bool well_formed(const ImportReply& reply);
bool well_formed(const ListReply& reply);
bool well_formed(const Refusal& refusal);
template <class T>
bool well_formed(const T&) {
  return true;
}
}  // namespace internal

template <class R>
std::optional<Answer<R>> decode_reply(std::span<const std::byte> packet, std::uint64_t request) {
  using Reply = typename Protocol<R>::Reply;
  const auto raw = internal::decode_reply_header(packet, Protocol<R>::kKind);
  if (!raw || raw->request != request) return std::nullopt;
  const auto read = [&]<class T>(T value) -> std::optional<Answer<R>> {
    if (raw->body.size() != kBodySize<T>) return std::nullopt;
    if constexpr (kBodySize<T> != 0) std::memcpy(&value, raw->body.data(), sizeof(value));
    if (!internal::well_formed(value)) return std::nullopt;
    return Answer<R>{value};
  };
  if (raw->refused) return read(Refusal{});
  return read(Reply{});
}

// What an agent connection brings.
Frame encode_event(const Event& event);
std::optional<Event> decode_event(std::span<const std::byte> packet);

// What is said to somebody whose request has no number to repeat: its header does not read, or it
// was not even asked for. Kind and request are 0, and the end of the connection follows.
Frame encode_unnumbered(const Refusal& refusal);
std::optional<Refusal> decode_unnumbered(std::span<const std::byte> packet);

// A C string as a KeyText: at most 65 bytes of it are looked at.
KeyText key_text(const char* text);
std::string_view view_of(const KeyText& key);

}  // namespace hufu::wire
