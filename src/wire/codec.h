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
#include <utility>
#include <variant>
#include <vector>

#include "base/reason.h"
#include "wire/message.h"

namespace hufu::wire {

// One encoded message.
struct Frame {
  std::array<std::byte, kMaxMessage> bytes{};
  std::size_t size = 0;
  std::vector<std::byte> batch;  // Instead of the two above.

  std::span<const std::byte> view() const {
    if (!batch.empty()) return batch;
    return {bytes.data(), size};
  }
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

template <class T>
Frame encode(Kind kind, std::uint16_t flags, std::uint64_t request, const Batch<T>& body) {
  static_assert(std::has_unique_object_representations_v<T>);
  const BatchHead head{.count = static_cast<std::uint32_t>(body.items.size()), .reserved = 0};
  const std::size_t items = body.items.size() * sizeof(T);
  Frame frame;
  frame.batch.resize(sizeof(Header) + sizeof(head) + items);
  const Header header{.version = kVersion,
                      .kind = static_cast<std::uint16_t>(kind),
                      .size = static_cast<std::uint16_t>(frame.batch.size()),
                      .flags = flags,
                      .request = request};
  std::byte* out = frame.batch.data();
  std::memcpy(out, &header, sizeof(header));
  std::memcpy(out + sizeof(header), &head, sizeof(head));
  if (items != 0) std::memcpy(out + sizeof(header) + sizeof(head), body.items.data(), items);
  return frame;
}

using RequestBody =
    std::variant<Hello, Attach, Watch, Mint, Free, Export, Withdraw, Import, Close, ListPid,
                 ListProcess, Stat, Report, List, Usage, Bye, EndAll, ExportHandle, Charge,
                 EndRange, Batch<Export>, Batch<Import>, Batch<Close>>;

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
bool well_formed(const ExportHandleReply& reply);
bool well_formed(const Refusal& refusal);
template <class T>
bool well_formed(const T&) {
  return true;
}
template <class T>
std::optional<Batch<T>> read_batch(std::span<const std::byte> body) {
  BatchHead head{};
  if (body.size() < sizeof(head)) return std::nullopt;
  std::memcpy(&head, body.data(), sizeof(head));
  const bool sound = head.count >= 1 && head.count <= kMaxBatch && head.reserved == 0 &&
                     body.size() == sizeof(head) + head.count * sizeof(T);
  if (!sound) return std::nullopt;
  Batch<T> batch{.items = std::vector<T>(head.count)};
  std::memcpy(batch.items.data(), body.data() + sizeof(head), head.count * sizeof(T));
  return batch;
}

template <class R>
bool well_formed(const Outcome<R>& outcome) {
  if (outcome.refusal.reason == 0) {
    constexpr Refusal kNone{};
    if (std::memcmp(&outcome.refusal, &kNone, sizeof(kNone)) != 0) return false;
    if constexpr (sizeof(outcome) > sizeof(Refusal)) return well_formed(outcome.reply);
    return true;
  }
  if constexpr (sizeof(outcome) > sizeof(Refusal)) {
    constexpr typename Protocol<R>::Reply kNone{};
    if (std::memcmp(&outcome.reply, &kNone, sizeof(kNone)) != 0) return false;
  }
  return well_formed(outcome.refusal);
}

template <class R>
bool well_formed(const Batch<Outcome<R>>& batch) {
  for (const Outcome<R>& outcome : batch.items) {
    if (!well_formed(outcome)) return false;
  }
  return true;
}

template <class T>
inline constexpr bool kIsBatch = false;
template <class T>
inline constexpr bool kIsBatch<Batch<T>> = true;
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
  if constexpr (internal::kIsBatch<Reply>) {
    auto batch = internal::read_batch<typename Reply::Item>(raw->body);
    if (!batch || !internal::well_formed(*batch)) return std::nullopt;
    return Answer<R>{std::move(*batch)};
  } else {
    return read(Reply{});
  }
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
// Of a key or a handle's sealed key; empty for what is neither.
std::string_view view_of(const KeyText& key);

KeyText text_of_token(std::uint64_t token);
std::optional<std::uint64_t> token_of(const KeyText& key);
// `sealed` has at most 64 characters.
KeyText text_of_fabric(std::string_view sealed);

}  // namespace hufu::wire
