// The protocol against its golden bytes and its document.
//
// tests/golden/wire holds one session, message by message, as hexadecimal text. A difference means
// that a library and a broker of two releases no longer understand each other: then the version
// number changes too. docs/wire.md shows some of these bytes, and a table of each body; both are
// compared here, so the document cannot drift. After a change that is meant,
// HUFU_UPDATE_GOLDEN=1 in the environment writes the files anew.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <optional>
#include <span>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "base/reason.h"
#include "base/result.h"
#include "base/units.h"
#include "wire/codec.h"

namespace hufu::wire {
namespace {

const std::string kRoot = HUFU_SOURCE_DIR;
constexpr std::string_view kKey =
    "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8gISIjJCUmJygpKissLS4v";
constexpr std::uint64_t kShare = 0x5348415245000001;
constexpr std::uint64_t kBlock = 0x424c4f434b000001;
// The first 16 bytes of SHA-256("hufu-keyid/1" || 00 01 .. 2f).
constexpr std::array<std::uint8_t, 16> kPublicId = {0x9a, 0x82, 0xb5, 0xf3, 0x37, 0xaa, 0xa0, 0x9a,
                                                    0x88, 0xba, 0x6d, 0x9f, 0xf4, 0xe4, 0x1c, 0x74};

std::string text_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

// 16 bytes in a line.
std::string hex(std::span<const std::byte> bytes) {
  std::string text;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    const bool last = i + 1 == bytes.size() || i % 16 == 15;
    text += fmt::format("{:02x}{}", static_cast<unsigned>(bytes[i]), last ? "\n" : " ");
  }
  return text;
}

std::vector<std::byte> bytes_of_hex(const std::string& text) {
  std::vector<std::byte> bytes;
  std::istringstream words(text);
  for (std::string word; words >> word;)
    bytes.push_back(static_cast<std::byte>(std::stoul(word, nullptr, 16)));
  return bytes;
}

template <std::size_t N>
std::array<std::uint8_t, N> counting_from(std::uint8_t first) {
  std::array<std::uint8_t, N> bytes{};
  for (std::size_t i = 0; i < N; ++i)
    bytes[i] = static_cast<std::uint8_t>(first + i);
  return bytes;
}

// ---- The session --------------------------------------------------------------------------------

struct Said {
  std::string name;
  Frame frame;
  // Decodes and encodes again; nothing when the bytes are refused.
  std::optional<Frame> (*again)(std::span<const std::byte>, std::uint64_t request);
};

std::optional<Frame> request_again(std::span<const std::byte> packet, std::uint64_t /*request*/) {
  const auto decoded = decode_request(packet);
  const auto* request = std::get_if<Request>(&decoded);
  if (request == nullptr) return std::nullopt;
  const std::uint16_t flags = request->one_way ? kOneWay : 0;
  return std::visit(
      [&]<class T>(const T& body) {
        if constexpr (kBodySize<T> == 0) {
          return encode(request->kind(), flags, request->id, Empty{});
        } else {
          return encode(request->kind(), flags, request->id, body);
        }
      },
      request->body);
}

template <class R>
std::optional<Frame> reply_again(std::span<const std::byte> packet, std::uint64_t request) {
  const auto answer = decode_reply<R>(packet, request);
  if (!answer) return std::nullopt;
  if (const auto* refusal = std::get_if<Refusal>(&*answer)) {
    return encode(Protocol<R>::kKind, kReply | kRefused, request, *refusal);
  }
  return encode(Protocol<R>::kKind, kReply, request,
                std::get<typename Protocol<R>::Reply>(*answer));
}

std::optional<Frame> event_again(std::span<const std::byte> bytes, std::uint64_t /*request*/) {
  const auto event = decode_event(bytes);
  return event ? std::optional(encode_event(*event)) : std::nullopt;
}

// The exporter's requests have the numbers 1 to 7, the importer's 1 to 5, a listing tool's 9.
std::vector<Said> the_session() {
  std::vector<Said> said;
  const auto ask = [&]<class R>(const std::string& name, std::uint64_t request, const R& body,
                                std::uint16_t flags = 0) {
    said.push_back({name, encode(Protocol<R>::kKind, flags, request, body), request_again});
  };
  const auto reply = [&]<class R>(const std::string& name, std::uint64_t request,
                                  const typename Protocol<R>::Reply& body, R /*to*/) {
    said.push_back({name, encode(Protocol<R>::kKind, kReply, request, body), reply_again<R>});
  };
  const KeyText key = key_text(std::string(kKey).c_str());

  ask("hello_request", 1, Hello{});
  reply("hello_reply", 1,
        HelloReply{.session = 1,
                   .secret = counting_from<16>(0x50),
                   .instance = counting_from<16>(0xa0),
                   .device_capacity = 4 * kGiB,
                   .devices = 4,
                   .peer_pid = 4001,
                   .broker_pid = 4000,
                   .broker_uid = 1000,
                   .mode = 1,
                   .reserved = 0},
        Hello{});

  ask("attach_request", 1, Attach{.session = 1, .secret = counting_from<16>(0x50)});
  reply("attach_reply", 1, Empty{}, Attach{});

  Mint mint{};
  mint.device = 1;
  mint.count = 2;
  mint.specs[0] = {.size = 8192, .page = 4096, .flags = 0};
  mint.specs[1] = {.size = 2 * kMiB, .page = 2 * kMiB, .flags = kWantHugetlb};
  ask("mint_request", 2, mint);
  MintReply minted{};
  minted.blocks = {kBlock, kBlock + 1};
  minted.backing = {Backing::kShmem, Backing::kHugetlb};
  minted.count = 2;
  reply("mint_reply", 2, minted, Mint{});

  ask("export_request", 3,
      Export{.block = kBlock,
             .offset = 4096,
             .size = 4000,
             .reported_size = 8192,
             .flags = 0,
             .reserved = 0});
  ExportReply exported{};
  std::copy(kKey.begin(), kKey.end(), exported.key.begin());
  exported.public_id = kPublicId;
  exported.share = kShare;
  reply("export_reply", 3, exported, Export{});

  ask("export_handle_request", 12,
      ExportHandle{.block = kBlock + 1, .flags = kReadOnly, .reserved = 0});
  constexpr std::uint64_t kToken = 0x1f2e3d4c5b6a7988;
  ExportHandleReply handle{};
  std::copy(kKey.begin(), kKey.end(), handle.key.begin());
  handle.public_id = kPublicId;
  handle.share = kShare + 1;
  handle.token = kToken;
  reply("export_handle_reply", 12, handle, ExportHandle{});
  ask("import_token_request", 6, Import{.key = text_of_token(kToken), .access = 0, .flags = 0});
  ask("import_fabric_request", 7, Import{.key = text_of_fabric(kKey), .access = 0, .flags = 0});
  ask("charge_request", 13, Charge{.block = kBlock + 2, .bytes = 3 * kChargeUnit});
  reply("charge_reply", 13, ChargeReply{.charged = 3 * kChargeUnit}, Charge{});

  ListPid list{};
  list.key = key;
  list.count = 1;
  list.pids[0] = 4002;
  ask("list_pid_request", 4, list);
  reply("list_pid_reply", 4, ListPidReply{.added = 1, .listed = 1}, ListPid{});

  ask("list_process_request", 5, ListProcess{.key = key, .pidfs_inode = 0x1122334455});
  reply("list_process_reply", 5, ListPidReply{.added = 1, .listed = 2}, ListProcess{});

  ask("import_request", 2, Import{.key = key, .access = 0, .flags = 0});
  const ImportReply imported = {.share = kShare,
                                .offset = 4096,
                                .size = 4096,
                                .reported_size = 4000,
                                .status = status_word(3, StatusState::kLive),
                                .slot = 1,
                                .page = 4096,
                                .access = static_cast<std::uint32_t>(Access::kReadWrite),
                                .device = 1,
                                .exporter_pid = 4001,
                                .backing = Backing::kShmem,
                                .reserved = {},
                                .public_id = kPublicId};
  reply("import_reply", 2, imported, Import{});
  said.push_back({"import_refusal",
                  encode(Kind::kImport, kReply | kRefused, 2,
                         Refusal{.reason = static_cast<std::uint16_t>(Reason::kNotListed),
                                 .reserved = 0,
                                 .sys_errno = 0,
                                 .number = {4003, 4001, 1, 0}}),
                  reply_again<Import>});
  ask("close_request", 3, Close{.share = kShare}, kOneWay);
  reply("close_reply", 3, Empty{}, Close{});

  ask("report_request", 4,
      Report{.reason = static_cast<std::uint32_t>(Reason::kUnregistered),
             .reserved = 0,
             .address = 0x7f0000001000,
             .size = 4096},
      kOneWay);
  reply("report_reply", 4, Empty{}, Report{});

  ask("stat_request", 5, Stat{.device = 1, .reserved = 0});
  reply("stat_reply", 5,
        StatReply{.capacity = 4 * kGiB,
                  .used = 8192 + 2 * kMiB,
                  .used_here = 8192 + 2 * kMiB,
                  .blocks_here = 2,
                  .exports_here = 1,
                  .imports_here = 0},
        Stat{});

  ask("list_request", 9, List{.after = 0});
  const ListReply listed{.share = kShare,
                         .public_id = kPublicId,
                         .offset = 4096,
                         .size = 4096,
                         .age_ns = 1'500'000'000,
                         .page = 4096,
                         .access = static_cast<std::uint32_t>(Access::kReadWrite),
                         .flags = 0,
                         .listed = 1,
                         .importers = 1,
                         .owner_uid = 1000,
                         .owner_pid = 4001,
                         .state = ShareState::kLive,
                         .owner_name = {'l', 'o', 'a', 'd', 'e', 'r'},
                         .imports = 3};
  reply("list_reply", 9, listed, List{});

  ask("usage_request", 11, Usage{.session = 1, .device = 0, .reserved = 0});
  reply("usage_reply", 11,
        UsageReply{.session = 2,
                   .device = 1,
                   .pid = 4001,
                   .uid = 1000,
                   .reserved = 0,
                   .name = {'l', 'o', 'a', 'd', 'e', 'r'},
                   .charged = 8192 + 2 * kMiB,
                   .counts = {.requested = 8000 + 2 * kMiB,
                              .reserved = 8192 + 2 * kMiB,
                              .blocks = 2,
                              .pieces = 192,
                              .chunks = 256 * kKiB,
                              .warm = 4096,
                              .spare = 4096,
                              .fallbacks = 1}},
        Usage{});

  ask("watch_request", 10, Watch{.key = key, .share = 0, .mode = WatchMode::kStart, .reserved = 0});
  reply("watch_reply", 10, listed, Watch{});
  said.push_back({"event",
                  encode_event({.what = static_cast<std::uint32_t>(EventKind::kLastImporterLeft),
                                .importers = 0,
                                .share = kShare}),
                  event_again});

  ask("withdraw_request", 5, Withdraw{.key = key});
  reply("withdraw_reply", 5, Empty{}, Withdraw{});
  ask("end_all_request", 11, EndAll{.block = kBlock});
  reply("end_all_reply", 11, Empty{}, EndAll{});
  ask("end_range_request", 14, EndRange{.block = kBlock + 2, .offset = 8192, .size = 4096});
  reply("end_range_reply", 14, Empty{}, EndRange{});
  ask("free_request", 6, Free{.block = kBlock});
  reply("free_reply", 6, Empty{}, Free{});
  // Two of each, the second of which is refused.
  const Refusal unknown{.reason = static_cast<std::uint16_t>(Reason::kKeyUnknown)};
  const Export range{.block = kBlock, .offset = 4096, .size = 4000, .reported_size = 8192};
  ask("export_batch_request", 11, Batch<Export>{{range, {.block = 1, .size = 1}}});
  reply(
      "export_batch_reply", 11,
      Batch<Outcome<Export>>{
          {{.refusal = {}, .reply = exported},
           {.refusal = {.reason = static_cast<std::uint16_t>(Reason::kUnknownBlock), .number = {1}},
            .reply = {}}}},
      Batch<Export>{});
  ask("import_batch_request", 12, Batch<Import>{{{.key = key}, {.key = key_text("x")}}});
  reply("import_batch_reply", 12,
        Batch<Outcome<Import>>{
            {{.refusal = {}, .reply = imported}, {.refusal = unknown, .reply = {}}}},
        Batch<Import>{});
  ask("close_batch_request", 13, Batch<Close>{{{.share = kShare}, {.share = kShare + 1}}}, kOneWay);
  reply("close_batch_reply", 13,
        Batch<Outcome<Close>>{
            {{.refusal = {}},
             {.refusal = {.reason = static_cast<std::uint16_t>(Reason::kNotImported)}}}},
        Batch<Close>{});
  said.push_back({"bye_request", encode(Kind::kBye, kOneWay, 7, Empty{}), request_again});
  return said;
}

TEST(GoldenBytes, TheEncoderMakesThem) {
  for (const Said& said : the_session()) {
    const std::string path = kRoot + "/tests/golden/wire/" + said.name + ".hex";
    if (std::getenv("HUFU_UPDATE_GOLDEN") != nullptr) {
      std::ofstream(path) << hex(said.frame.view());
    }
    EXPECT_EQ(hex(said.frame.view()), text_of(path)) << path;
  }
}

TEST(GoldenBytes, TheDecoderReadsThemAndNothingGetsLost) {
  for (const Said& said : the_session()) {
    const auto bytes = bytes_of_hex(text_of(kRoot + "/tests/golden/wire/" + said.name + ".hex"));
    ASSERT_GE(bytes.size(), sizeof(Header)) << said.name;
    Header header{};
    std::memcpy(&header, bytes.data(), sizeof(header));
    const auto again = said.again(bytes, header.request);
    ASSERT_TRUE(again.has_value()) << said.name;
    EXPECT_EQ(hex(again->view()), hex(bytes)) << said.name;
  }
}

std::map<std::string, Kind> every_kind() {
  return {
      {"HELLO", Kind::kHello},
      {"ATTACH", Kind::kAttach},
      {"MINT", Kind::kMint},
      {"FREE", Kind::kFree},
      {"EXPORT", Kind::kExport},
      {"WITHDRAW", Kind::kWithdraw},
      {"IMPORT", Kind::kImport},
      {"CLOSE", Kind::kClose},
      {"LIST_PID", Kind::kListPid},
      {"STAT", Kind::kStat},
      {"WATCH", Kind::kWatch},
      {"REPORT", Kind::kReport},
      {"BYE", Kind::kBye},
      {"LIST", Kind::kList},
      {"EVENT", Kind::kEvent},
      {"USAGE", Kind::kUsage},
      {"END_ALL", Kind::kEndAll},
      {"LIST_PROCESS", Kind::kListProcess},
      {"EXPORT_HANDLE", Kind::kExportHandle},
      {"CHARGE", Kind::kCharge},
      {"END_RANGE", Kind::kEndRange},
      {"EXPORT_BATCH", Kind::kExportBatch},
      {"IMPORT_BATCH", Kind::kImportBatch},
      {"CLOSE_BATCH", Kind::kCloseBatch},
  };
}

TEST(GoldenBytes, ThereAreSomeOfEveryKindAndOfItsReply) {
  std::map<std::uint16_t, int> requests;
  std::map<std::uint16_t, int> replies;
  for (const Said& said : the_session()) {
    Header header{};
    std::memcpy(&header, said.frame.view().data(), sizeof(header));
    ++((header.flags & kReply) != 0 ? replies : requests)[header.kind];
  }
  for (const auto& [name, kind] : every_kind()) {
    const auto number = static_cast<std::uint16_t>(kind);
    EXPECT_GT(requests[number], 0) << name;
    // BYE is answered by the end, an event not at all.
    if (kind != Kind::kBye && kind != Kind::kEvent) {
      EXPECT_GT(replies[number], 0) << name;
    }
  }
}

// ---- The document -------------------------------------------------------------------------------

const std::string& document() {
  static const std::string text = text_of(kRoot + "/docs/wire.md");
  return text;
}

std::string_view trimmed(std::string_view text) {
  const auto from = text.find_first_not_of(" `");
  if (from == std::string_view::npos) return {};
  return text.substr(from, text.find_last_not_of(" `") - from + 1);
}

// The cells of each row of the first table behind `heading`, without its two head lines.
std::vector<std::vector<std::string>> table_behind(const std::string& heading) {
  const auto at = document().find("\n" + heading + "\n");
  if (at == std::string::npos) return {};
  std::istringstream lines(document().substr(at + heading.size() + 2));
  std::vector<std::vector<std::string>> rows;
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with('|')) {
      if (rows.empty()) continue;
      break;
    }
    std::vector<std::string> cells;
    std::istringstream parts(line.substr(1));
    for (std::string cell; std::getline(parts, cell, '|');)
      cells.emplace_back(trimmed(cell));
    rows.push_back(std::move(cells));
  }
  rows.erase(rows.begin(), rows.begin() + std::min<std::ptrdiff_t>(2, std::ssize(rows)));
  return rows;
}

struct Field {
  const char* name;
  std::size_t offset;
  std::size_t size;
};

// A macro, because a member's name and its offset have no other common spelling.
#define FIELD(type, member) \
  Field { #member, offsetof(type, member), sizeof(type::member) }

struct Layout {
  const char* name;
  std::size_t size;
  std::vector<Field> fields;
};

std::vector<Layout> every_layout() {
  return {
      {"Header",
       sizeof(Header),
       {FIELD(Header, version), FIELD(Header, kind), FIELD(Header, size), FIELD(Header, flags),
        FIELD(Header, request)}},
      {"KeyText",
       sizeof(KeyText),
       {FIELD(KeyText, length), FIELD(KeyText, reserved), FIELD(KeyText, text)}},
      {"Refusal",
       sizeof(Refusal),
       {FIELD(Refusal, reason), FIELD(Refusal, reserved), FIELD(Refusal, sys_errno),
        FIELD(Refusal, number)}},
      {"Hello",
       sizeof(Hello),
       {FIELD(Hello, session), FIELD(Hello, secret), FIELD(Hello, features),
        FIELD(Hello, reserved)}},
      {"HelloReply",
       sizeof(HelloReply),
       {FIELD(HelloReply, session), FIELD(HelloReply, secret), FIELD(HelloReply, instance),
        FIELD(HelloReply, device_capacity), FIELD(HelloReply, devices), FIELD(HelloReply, peer_pid),
        FIELD(HelloReply, broker_pid), FIELD(HelloReply, broker_uid), FIELD(HelloReply, mode),
        FIELD(HelloReply, reserved)}},
      {"Attach", sizeof(Attach), {FIELD(Attach, session), FIELD(Attach, secret)}},
      {"Watch",
       sizeof(Watch),
       {FIELD(Watch, key), FIELD(Watch, share), FIELD(Watch, mode), FIELD(Watch, reserved)}},
      {"Event", sizeof(Event), {FIELD(Event, what), FIELD(Event, importers), FIELD(Event, share)}},
      {"BatchHead", sizeof(BatchHead), {FIELD(BatchHead, count), FIELD(BatchHead, reserved)}},
      {"ExportOutcome",
       sizeof(Outcome<Export>),
       {FIELD(Outcome<Export>, refusal), FIELD(Outcome<Export>, reply)}},
      {"ImportOutcome",
       sizeof(Outcome<Import>),
       {FIELD(Outcome<Import>, refusal), FIELD(Outcome<Import>, reply)}},
      {"CloseOutcome", sizeof(Outcome<Close>), {FIELD(Outcome<Close>, refusal)}},
      {"MintSpec",
       sizeof(MintSpec),
       {FIELD(MintSpec, size), FIELD(MintSpec, page), FIELD(MintSpec, flags)}},
      {"Mint", sizeof(Mint), {FIELD(Mint, device), FIELD(Mint, count), FIELD(Mint, specs)}},
      {"MintReply",
       sizeof(MintReply),
       {FIELD(MintReply, blocks), FIELD(MintReply, backing), FIELD(MintReply, count),
        FIELD(MintReply, reserved)}},
      {"Free", sizeof(Free), {FIELD(Free, block)}},
      {"Export",
       sizeof(Export),
       {FIELD(Export, block), FIELD(Export, offset), FIELD(Export, size),
        FIELD(Export, reported_size), FIELD(Export, flags), FIELD(Export, reserved)}},
      {"ExportReply",
       sizeof(ExportReply),
       {FIELD(ExportReply, key), FIELD(ExportReply, public_id), FIELD(ExportReply, share)}},
      {"ExportHandle",
       sizeof(ExportHandle),
       {FIELD(ExportHandle, block), FIELD(ExportHandle, flags), FIELD(ExportHandle, reserved)}},
      {"ExportHandleReply",
       sizeof(ExportHandleReply),
       {FIELD(ExportHandleReply, key), FIELD(ExportHandleReply, public_id),
        FIELD(ExportHandleReply, share), FIELD(ExportHandleReply, token)}},
      {"Charge", sizeof(Charge), {FIELD(Charge, block), FIELD(Charge, bytes)}},
      {"ChargeReply", sizeof(ChargeReply), {FIELD(ChargeReply, charged)}},
      {"Withdraw", sizeof(Withdraw), {FIELD(Withdraw, key)}},
      {"EndAll", sizeof(EndAll), {FIELD(EndAll, block)}},
      {"EndRange",
       sizeof(EndRange),
       {FIELD(EndRange, block), FIELD(EndRange, offset), FIELD(EndRange, size)}},
      {"Import", sizeof(Import), {FIELD(Import, key), FIELD(Import, access), FIELD(Import, flags)}},
      {"ImportReply",
       sizeof(ImportReply),
       {FIELD(ImportReply, share), FIELD(ImportReply, offset), FIELD(ImportReply, size),
        FIELD(ImportReply, reported_size), FIELD(ImportReply, status), FIELD(ImportReply, slot),
        FIELD(ImportReply, page), FIELD(ImportReply, access), FIELD(ImportReply, device),
        FIELD(ImportReply, exporter_pid), FIELD(ImportReply, backing), FIELD(ImportReply, reserved),
        FIELD(ImportReply, public_id)}},
      {"Close", sizeof(Close), {FIELD(Close, share)}},
      {"ListPid",
       sizeof(ListPid),
       {FIELD(ListPid, key), FIELD(ListPid, count), FIELD(ListPid, pids)}},
      {"ListProcess",
       sizeof(ListProcess),
       {FIELD(ListProcess, key), FIELD(ListProcess, pidfs_inode)}},
      {"ListPidReply",
       sizeof(ListPidReply),
       {FIELD(ListPidReply, added), FIELD(ListPidReply, listed)}},
      {"Stat", sizeof(Stat), {FIELD(Stat, device), FIELD(Stat, reserved)}},
      {"StatReply",
       sizeof(StatReply),
       {FIELD(StatReply, capacity), FIELD(StatReply, used), FIELD(StatReply, used_here),
        FIELD(StatReply, blocks_here), FIELD(StatReply, exports_here),
        FIELD(StatReply, imports_here)}},
      {"Report",
       sizeof(Report),
       {FIELD(Report, reason), FIELD(Report, reserved), FIELD(Report, address),
        FIELD(Report, size)}},
      {"Usage",
       sizeof(Usage),
       {FIELD(Usage, session), FIELD(Usage, device), FIELD(Usage, reserved)}},
      {"UsageCounts",
       sizeof(UsageCounts),
       {FIELD(UsageCounts, requested), FIELD(UsageCounts, reserved), FIELD(UsageCounts, blocks),
        FIELD(UsageCounts, pieces), FIELD(UsageCounts, chunks), FIELD(UsageCounts, warm),
        FIELD(UsageCounts, spare), FIELD(UsageCounts, fallbacks)}},
      {"UsageReply",
       sizeof(UsageReply),
       {FIELD(UsageReply, session), FIELD(UsageReply, device), FIELD(UsageReply, pid),
        FIELD(UsageReply, uid), FIELD(UsageReply, reserved), FIELD(UsageReply, name),
        FIELD(UsageReply, charged), FIELD(UsageReply, counts)}},
      {"List", sizeof(List), {FIELD(List, after)}},
      {"ListReply",
       sizeof(ListReply),
       {FIELD(ListReply, share), FIELD(ListReply, public_id), FIELD(ListReply, offset),
        FIELD(ListReply, size), FIELD(ListReply, age_ns), FIELD(ListReply, page),
        FIELD(ListReply, access), FIELD(ListReply, flags), FIELD(ListReply, listed),
        FIELD(ListReply, importers), FIELD(ListReply, owner_uid), FIELD(ListReply, owner_pid),
        FIELD(ListReply, state), FIELD(ListReply, owner_name), FIELD(ListReply, imports)}},
  };
}
#undef FIELD

TEST(WireDocument, GivesEachFieldItsPlace) {
  for (const Layout& layout : every_layout()) {
    const auto rows = table_behind(fmt::format("`{}`, {} bytes:", layout.name, layout.size));
    ASSERT_EQ(rows.size(), layout.fields.size()) << layout.name;
    std::size_t end = 0;
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const Field& field = layout.fields[i];
      ASSERT_GE(rows[i].size(), 4U) << layout.name;
      EXPECT_EQ(rows[i][0], std::to_string(field.offset)) << layout.name << " " << field.name;
      EXPECT_EQ(rows[i][1], std::to_string(field.size)) << layout.name << " " << field.name;
      EXPECT_EQ(rows[i][2], field.name) << layout.name;
      EXPECT_EQ(field.offset, end) << layout.name << "::" << field.name << " leaves a gap";
      end = field.offset + field.size;
    }
    EXPECT_EQ(end, layout.size) << layout.name << " has a field that is not listed above";
  }
}

TEST(WireDocument, NumbersTheKindsAsTheCodeDoes) {
  const auto kinds = every_kind();
  const auto rows = table_behind("## Kinds");
  ASSERT_EQ(rows.size(), kinds.size());
  for (const auto& row : rows) {
    const auto kind = kinds.find(row[1]);
    ASSERT_NE(kind, kinds.end()) << row[1];
    EXPECT_EQ(row[0], std::to_string(static_cast<int>(kind->second))) << row[1];
  }
}

TEST(WireDocument, NumbersTheEventsAsTheCodeDoes) {
  const std::map<std::string, EventKind> events = {
      {"EXPORT_ENDED", EventKind::kExportEnded},
      {"EXPORTER_GONE", EventKind::kExporterGone},
      {"REVOKED", EventKind::kRevoked},
      {"LAST_IMPORTER_LEFT", EventKind::kLastImporterLeft},
      {"RETURN", EventKind::kReturn},
      {"IMPORTED", EventKind::kImported},
  };
  const auto rows = table_behind("#### Events");
  ASSERT_EQ(rows.size(), events.size());
  for (const auto& row : rows) {
    const auto event = events.find(row[1]);
    ASSERT_NE(event, events.end()) << row[1];
    EXPECT_EQ(row[0], std::to_string(static_cast<int>(event->second))) << row[1];
  }
}

TEST(WireDocument, ListsEveryReason) {
  std::map<std::string, std::string> listed;
  for (const auto& row : table_behind("## Reasons"))
    listed[row[0]] = row[1];
  std::map<std::string, std::string> known;
  for (std::uint32_t number = 0; number <= 0xffff; ++number) {
    const auto name = name_of(static_cast<Reason>(number));
    if (name != "unknown") known[std::to_string(number)] = name;
  }
  EXPECT_GT(known.size(), 40U);
  EXPECT_EQ(listed, known);
}

// Shown as "<!-- golden: NAME -->" and, behind it, a block of code.
TEST(WireDocument, ShowsTheGoldenBytes) {
  constexpr std::string_view kMark = "<!-- golden: ";
  constexpr std::string_view kFence = "```\n";
  std::size_t shown = 0;
  for (auto at = document().find(kMark); at != std::string::npos;
       at = document().find(kMark, at + 1)) {
    const auto name_at = at + kMark.size();
    const std::string name = document().substr(name_at, document().find(' ', name_at) - name_at);
    const auto block = document().find(kFence, at) + kFence.size();
    const auto end = document().find(kFence, block);
    EXPECT_EQ(document().substr(block, end - block),
              text_of(kRoot + "/tests/golden/wire/" + name + ".hex"))
        << name;
    ++shown;
  }
  EXPECT_GE(shown, 8U);
}

}  // namespace
}  // namespace hufu::wire
