#include "wire/codec.h"

#include <algorithm>
#include <type_traits>

#include "base/units.h"

namespace hufu::wire {
namespace {

template <class T, std::size_t N>
bool all_zero(const std::array<T, N>& values, std::size_t from = 0) {
  return std::all_of(values.begin() + static_cast<std::ptrdiff_t>(from), values.end(),
                     [](T value) { return value == T{}; });
}

bool well_formed(const KeyText& key) {
  if (!all_zero(key.reserved)) return false;
  if (key.length == kOverlongForm || key.length == kFabricForm) return true;
  if (key.length == kTokenForm) return all_zero(key.text, sizeof(std::uint64_t));
  return key.length <= key.text.size() && all_zero(key.text, key.length);
}

bool well_formed(const Hello& hello) {
  return hello.features == 0 && hello.reserved == 0 && hello.session == 0 && all_zero(hello.secret);
}

bool well_formed(const MintSpec& spec) {
  const auto page = page_size_of(spec.page);
  const bool may_be_hugetlb = page && *page != PageSize::k4KiB;
  const bool sparse = spec.flags == kSparse;
  const bool flags_known = spec.flags == 0 || (spec.flags == kWantHugetlb && may_be_hugetlb) ||
                           (sparse && page && *page != PageSize::k1GiB);
  return page && flags_known && spec.size != 0 &&
         is_aligned(spec.size, sparse ? kChargeUnit : bytes_of(*page));
}

bool well_formed(const Mint& mint) {
  if (mint.count == 0 || mint.count > kMaxMint) return false;
  for (std::size_t i = 0; i < kMaxMint; ++i) {
    const MintSpec& spec = mint.specs[i];
    const bool unused = spec.size == 0 && spec.page == 0 && spec.flags == 0;
    if (i < mint.count ? !well_formed(spec) : !unused) return false;
  }
  return true;
}

bool well_formed(const Export& request) {
  return request.reserved == 0 && (request.flags & ~std::uint32_t{kAnyProcess | kReadOnly}) == 0;
}

bool well_formed(const ExportHandle& request) {
  return request.reserved == 0 && (request.flags & ~std::uint32_t{kAnyProcess | kReadOnly}) == 0;
}

bool well_formed(const Charge& charge) { return is_aligned(charge.bytes, kChargeUnit); }

bool well_formed(const Withdraw& withdraw) { return well_formed(withdraw.key); }

bool well_formed(const Import& import) {
  const bool access_known = import.access == 0 ||
                            import.access == static_cast<std::uint32_t>(Access::kReadOnly) ||
                            import.access == static_cast<std::uint32_t>(Access::kReadWrite);
  return well_formed(import.key) && access_known &&
         (import.flags & ~std::uint32_t{kAsAnybody}) == 0;
}

bool well_formed(const ListProcess& list) { return well_formed(list.key) && list.pidfs_inode != 0; }

bool well_formed(const ListPid& list) {
  return well_formed(list.key) && list.count != 0 && list.count <= kMaxListPids &&
         all_zero(list.pids, list.count);
}

bool well_formed(const Attach& attach) { return attach.session != 0; }

bool well_formed(const Watch& watch) {
  return well_formed(watch.key) && (watch.share == 0 || watch.key.length == 0) &&
         watch.mode <= WatchMode::kStop && watch.reserved == 0;
}

bool well_formed(const Stat& stat) { return stat.reserved == 0; }

bool well_formed(const Report& report) { return report.reserved == 0 && report.reason <= 0xffff; }

bool well_formed(const Free&) { return true; }
bool well_formed(const EndAll&) { return true; }

bool well_formed(const EndRange& end) {
  std::uint64_t last = 0;
  return end.size != 0 && !__builtin_add_overflow(end.offset, end.size, &last);
}

bool well_formed(const Close&) { return true; }
bool well_formed(const List&) { return true; }

bool well_formed(const Usage& usage) { return usage.reserved == 0; }
bool well_formed(const Bye&) { return true; }

template <class T>
std::variant<Request, DecodeError> decode_body(const Header& header,
                                               std::span<const std::byte> body) {
  const DecodeError malformed{
      .reason = Reason::kMalformed, .request = header.request, .kind = header.kind};
  if (body.size() != kBodySize<T>) return malformed;
  T value{};
  if constexpr (kBodySize<T> != 0) std::memcpy(&value, body.data(), sizeof(value));
  if (!well_formed(value)) return malformed;

  constexpr bool kMayBeOneWay = std::is_same_v<T, Free> || std::is_same_v<T, Close> ||
                                std::is_same_v<T, Report> || std::is_same_v<T, Bye>;
  const bool one_way = (header.flags & kOneWay) != 0;
  if (one_way && !kMayBeOneWay) return malformed;
  return Request{.id = header.request, .one_way = one_way, .body = value};
}

template <class T>
std::variant<Request, DecodeError> decode_batch(const Header& header,
                                                std::span<const std::byte> body) {
  const DecodeError malformed{
      .reason = Reason::kMalformed, .request = header.request, .kind = header.kind};
  auto batch = internal::read_batch<T>(body);
  if (!batch) return malformed;
  for (const T& item : batch->items) {
    if (!well_formed(item)) return malformed;
  }
  const bool one_way = (header.flags & kOneWay) != 0;
  if (one_way && !std::is_same_v<T, Close>) return malformed;
  return Request{.id = header.request, .one_way = one_way, .body = std::move(*batch)};
}

}  // namespace

Kind Request::kind() const {
  return std::visit(
      [](const auto& value) { return Protocol<std::decay_t<decltype(value)>>::kKind; }, body);
}

std::variant<Request, DecodeError> decode_request(std::span<const std::byte> packet) {
  Header header{};
  if (packet.size() < sizeof(header) || packet.size() > kMaxBatchMessage) return DecodeError{};
  std::memcpy(&header, packet.data(), sizeof(header));
  DecodeError error{.request = header.request, .kind = header.kind};
  if (header.version != kVersion) {
    error.reason = Reason::kVersion;
    error.number = {header.version, kVersion};
    return error;
  }
  if (header.size != packet.size() || header.request == 0 ||
      (header.flags & ~std::uint16_t{kOneWay}) != 0) {
    return error;
  }

  const auto body = packet.subspan(sizeof(header));
  switch (static_cast<Kind>(header.kind)) {
    case Kind::kHello:
      return decode_body<Hello>(header, body);
    case Kind::kMint:
      return decode_body<Mint>(header, body);
    case Kind::kFree:
      return decode_body<Free>(header, body);
    case Kind::kExport:
      return decode_body<Export>(header, body);
    case Kind::kWithdraw:
      return decode_body<Withdraw>(header, body);
    case Kind::kEndAll:
      return decode_body<EndAll>(header, body);
    case Kind::kEndRange:
      return decode_body<EndRange>(header, body);
    case Kind::kExportHandle:
      return decode_body<ExportHandle>(header, body);
    case Kind::kCharge:
      return decode_body<Charge>(header, body);
    case Kind::kImport:
      return decode_body<Import>(header, body);
    case Kind::kClose:
      return decode_body<Close>(header, body);
    case Kind::kListProcess:
      return decode_body<ListProcess>(header, body);
    case Kind::kListPid:
      return decode_body<ListPid>(header, body);
    case Kind::kStat:
      return decode_body<Stat>(header, body);
    case Kind::kReport:
      return decode_body<Report>(header, body);
    case Kind::kBye:
      return decode_body<Bye>(header, body);
    case Kind::kList:
      return decode_body<List>(header, body);
    case Kind::kUsage:
      return decode_body<Usage>(header, body);
    case Kind::kAttach:
      return decode_body<Attach>(header, body);
    case Kind::kWatch:
      return decode_body<Watch>(header, body);
    case Kind::kExportBatch:
      return decode_batch<Export>(header, body);
    case Kind::kImportBatch:
      return decode_batch<Import>(header, body);
    case Kind::kCloseBatch:
      return decode_batch<Close>(header, body);
    case Kind::kEvent:
      return error;  // Only a broker says that.
  }
  return error;
}

namespace internal {

std::optional<RawReply> decode_reply_header(std::span<const std::byte> packet, Kind kind) {
  Header header{};
  if (packet.size() < sizeof(header) || packet.size() > kMaxBatchMessage) return std::nullopt;
  std::memcpy(&header, packet.data(), sizeof(header));
  const bool ours = header.version == kVersion && header.size == packet.size() &&
                    header.kind == static_cast<std::uint16_t>(kind) && (header.flags & kReply) != 0;
  if (!ours || (header.flags & ~std::uint16_t{kReply | kRefused}) != 0) return std::nullopt;
  return RawReply{.request = header.request,
                  .refused = (header.flags & kRefused) != 0,
                  .body = packet.subspan(sizeof(header))};
}

bool well_formed(const HelloReply& reply) {
  constexpr std::uint32_t kMaxDevices = 64;
  return reply.session != 0 && reply.devices >= 1 && reply.devices <= kMaxDevices &&
         (reply.mode == 1 || reply.mode == 2) && reply.reserved == 0;
}

bool well_formed(const MintReply& reply) {
  return reply.count >= 1 && reply.count <= kMaxMint && reply.reserved == 0;
}

bool well_formed(const ImportReply& reply) {
  const auto page = page_size_of(reply.page);
  const bool access_known = reply.access == static_cast<std::uint32_t>(Access::kReadOnly) ||
                            reply.access == static_cast<std::uint32_t>(Access::kReadWrite);
  std::uint64_t end = 0;
  return page && access_known && reply.size != 0 && reply.slot != 0 && reply.slot < kStatusWords &&
         is_aligned(reply.offset, bytes_of(PageSize::k4KiB)) &&
         is_aligned(reply.size, bytes_of(PageSize::k4KiB)) &&
         !__builtin_add_overflow(reply.offset, reply.size, &end) && all_zero(reply.reserved);
}

bool well_formed(const ExportHandleReply& reply) { return reply.token != 0; }

bool well_formed(const ListReply& reply) { return reply.state <= ShareState::kExporterGone; }

bool well_formed(const Refusal& refusal) { return refusal.reason != 0 && refusal.reserved == 0; }

}  // namespace internal

Frame encode_event(const Event& event) { return encode(Kind::kEvent, kUnasked, 0, event); }

std::optional<Event> decode_event(std::span<const std::byte> packet) {
  Header header{};
  Event event{};
  if (packet.size() != sizeof(header) + sizeof(event)) return std::nullopt;
  std::memcpy(&header, packet.data(), sizeof(header));
  std::memcpy(&event, packet.data() + sizeof(header), sizeof(event));
  const bool ours = header.version == kVersion && header.size == packet.size() &&
                    header.kind == static_cast<std::uint16_t>(Kind::kEvent) &&
                    header.flags == kUnasked && header.request == 0;
  const bool known = event.what >= static_cast<std::uint32_t>(EventKind::kExportEnded) &&
                     event.what <= static_cast<std::uint32_t>(EventKind::kImported);
  if (!ours || !known) return std::nullopt;
  return event;
}

Frame encode_unnumbered(const Refusal& refusal) {
  return encode(Kind{}, kReply | kRefused, 0, refusal);
}

std::optional<Refusal> decode_unnumbered(std::span<const std::byte> packet) {
  const auto raw = internal::decode_reply_header(packet, Kind{});
  Refusal refusal{};
  if (!raw || raw->request != 0 || !raw->refused || raw->body.size() != sizeof(refusal)) {
    return std::nullopt;
  }
  std::memcpy(&refusal, raw->body.data(), sizeof(refusal));
  if (!internal::well_formed(refusal)) return std::nullopt;
  return refusal;
}

KeyText key_text(const char* text) {
  KeyText key{};
  const std::size_t length = ::strnlen(text, key.text.size() + 1);
  if (length > key.text.size()) {
    key.length = kOverlongForm;
    return key;
  }
  key.length = static_cast<std::uint8_t>(length);
  std::copy_n(text, length, key.text.begin());
  return key;
}

std::string_view view_of(const KeyText& key) {
  if (key.length == kFabricForm) return {key.text.data(), key.text.size()};
  if (key.length > key.text.size()) return {};
  return {key.text.data(), key.length};
}

KeyText text_of_token(std::uint64_t token) {
  KeyText key{};
  key.length = kTokenForm;
  std::memcpy(key.text.data(), &token, sizeof(token));
  return key;
}

std::optional<std::uint64_t> token_of(const KeyText& key) {
  if (key.length != kTokenForm) return std::nullopt;
  std::uint64_t token = 0;
  std::memcpy(&token, key.text.data(), sizeof(token));
  return token;
}

KeyText text_of_fabric(std::string_view sealed) {
  KeyText key{};
  key.length = kFabricForm;
  std::copy_n(sealed.begin(), std::min(sealed.size(), key.text.size()), key.text.begin());
  return key;
}

}  // namespace hufu::wire
