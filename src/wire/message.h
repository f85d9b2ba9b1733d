#pragma once

// The protocol between libhufu and hufud: what may be said, and in which bytes.
//
// One message is one SOCK_SEQPACKET packet of at most 256 bytes (batches, at the end, are longer):
// a 16-byte Header and a body of a fixed size for its kind. There are no strings, no pointers, no
// optional parts: the bodies below ARE the layout (little endian, no padding, asserted), so
// encoding is a copy. Descriptors travel only from the broker to a client, beside the message.
//
//   client                              broker
//   Header{kind, request=7} body   -->
//                                  <--  Header{kind, request=7, kReply} reply body
//                               or <--  Header{kind, request=7, kReply|kRefused} Refusal
//
// wire/codec.h has the one door from bytes to these types; docs/wire.md is the same for readers in
// other languages.

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <vector>

namespace hufu::wire {

static_assert(std::endian::native == std::endian::little, "the wire is little endian, by copy");

inline constexpr std::uint16_t kVersion = 1;
inline constexpr std::size_t kMaxMessage = 256;

enum class Kind : std::uint16_t {
  kHello = 1,     // Opens a session. First message on a connection.
  kAttach = 2,    // Makes this connection the agent of a session. First message on it.
  kMint = 3,      // New blocks of memory; the reply carries their descriptors.
  kFree = 4,      // Gives a block back.
  kExport = 5,    // A key for a range of a block.
  kWithdraw = 6,  // Ends an export: no new imports.
  kImport = 7,    // A descriptor for an exported range.
  kClose = 8,     // The importer has unmapped it.
  kListPid = 9,   // Adds processes to an export's whitelist.
  kStat = 10,     // Counters of one device.
  kWatch = 11,    // What an export is now, and its events from now on, to the agent.
  kReport = 12,   // The client refused something by itself; for the record.
  kBye = 13,      // Ends a session in good order.
  kList = 14,     // Walks the live exports that the asker may see.
  kEvent = 15,    // Broker to agent, without being asked.
  kUsage = 16,    // Walks what the processes that the asker may see say they use.
  // Many of one kind in one message; each is judged as if it came alone.
  kExportBatch = 17,
  kImportBatch = 18,
  kCloseBatch = 19,
  kListProcess = 20,   // Adds a process to an export's whitelist, by its inode.
  kEndAll = 21,        // Ends all exports of a block, which its owner goes on using for a while.
  kExportHandle = 22,  // A token and a key for a whole block: a shareable handle.
  kCharge = 23,        // How much of a sparse block is in use from now on.
  kEndRange = 24,      // Ends the exports of a part of a block, which is given to other uses.
};

enum Flag : std::uint16_t {
  kOneWay = 1,   // Request: no answer is wanted. Only FREE, CLOSE, REPORT and BYE.
  kReply = 2,    // Set in every answer.
  kRefused = 4,  // Answer: the body is a Refusal.
  kUnasked = 8,  // Event: `request` is 0, and there is no answer.
};

struct Header {
  std::uint16_t version;
  std::uint16_t kind;
  std::uint16_t size;  // Of the whole message, this header included.
  std::uint16_t flags;
  std::uint64_t request;  // Chosen by the client, echoed in the answer; 0 is not used.
};

// A key as the user handed it over, good or bad: judging it is the broker's business, so that a
// bad one is recorded too. A shareable handle takes a key's place wherever one is asked for, and
// opens nothing but a handle's export, as a key opens nothing but a key's: `length` says which.
enum KeyForm : std::uint8_t {
  kFabricForm = 253,    // A handle's sealed key: `text` is its 64 characters.
  kTokenForm = 254,     // A handle's token: in the first 8 bytes of `text`, the rest is zero.
  kOverlongForm = 255,  // Longer than a key can be.
};

struct KeyText {
  std::uint8_t length;  // Of a key: 0..64; else a KeyForm.
  std::array<std::uint8_t, 7> reserved;
  std::array<char, 64> text;  // Zero behind `length`.
};

struct Hello {
  std::uint64_t session;  // 0: a new session. Else: resume (reserved, refused today).
  std::array<std::uint8_t, 16> secret;
  std::uint32_t features;  // Reserved, 0.
  std::uint32_t reserved;
};

struct HelloReply {
  std::uint64_t session;
  std::array<std::uint8_t, 16> secret;    // Proves to ATTACH (and to a resume) that it is ours.
  std::array<std::uint8_t, 16> instance;  // Of this broker; a key of another one never opens.
  std::uint64_t device_capacity;          // Bytes, the same for every device.
  std::uint32_t devices;
  std::int32_t peer_pid;  // The pid under which the broker sees the client.
  std::int32_t broker_pid;
  std::uint32_t broker_uid;
  std::uint32_t mode;  // 1 personal, 2 system.
  std::uint32_t reserved;
};

// ---- Status memory: what the broker says without being asked ----
//
// Three descriptors come with HELLO's reply, in this order:
//   the session's status memory, kStatusBytes of 64-bit words, one for each of its imports (word 0
//   is not used): generation in the upper 48 bits, StatusState in the lower 16. IMPORT's reply
//   names the word and the value it has while the import is good; a cached import compares it
//   whole;
//   the broker's life page: its first 32 bits are a robust lock held by the broker; the kernel sets
//   FUTEX_OWNER_DIED in it when the broker ends;
//   the session's usage page, writable: kUsageCounts 64-bit words for each device, in which the
//   client says what it uses its memory for (UsageCounts). The broker passes them on and believes
//   nothing.
inline constexpr std::uint32_t kStatusWords = 8192;
inline constexpr std::size_t kStatusBytes = kStatusWords * sizeof(std::uint64_t);
inline constexpr std::size_t kLifePageBytes = 4096;
inline constexpr std::size_t kUsagePageBytes = 4096;
inline constexpr std::size_t kUsageCounts = 8;
inline constexpr std::size_t kHelloDescriptors = 3;

enum class StatusState : std::uint16_t { kFree = 0, kLive = 1, kEnded = 2, kRevoked = 3 };

constexpr std::uint64_t status_word(std::uint64_t generation, StatusState state) {
  return generation << 16 | static_cast<std::uint16_t>(state);
}

// The second connection of a session: the broker talks, the client listens. The same process must
// open it.
struct Attach {
  std::uint64_t session;
  std::array<std::uint8_t, 16> secret;
};

enum class EventKind : std::uint32_t {
  kExportEnded = 1,   // Withdrawn, or its block was freed.
  kExporterGone = 2,  // Its process ended.
  kRevoked = 3,       // Reserved.
  kLastImporterLeft = 4,
  kReturn = 5,    // Memory is short: give back what is held in reserve. No share.
  kImported = 6,  // By a process that did not hold it.
};

struct Event {
  std::uint32_t what;       // EventKind
  std::uint32_t importers;  // Sessions that hold it now.
  std::uint64_t share;
};

enum class WatchMode : std::uint32_t { kAsk = 0, kStart = 1, kStop = 2 };

// The exporter's and the importers' only. Watching twice is watching once.
struct Watch {
  KeyText key;          // Zero when `share` is not.
  std::uint64_t share;  // From an earlier answer, so that nobody need keep a key; else 0.
  WatchMode mode;
  std::uint32_t reserved;
};

inline constexpr std::size_t kMaxMint = 8;

enum MintFlag : std::uint32_t {
  // Of reserved huge pages (hugetlb) if the machine has enough available. The reply says what it
  // became.
  kWantHugetlb = 1,
  // Charged by use and not by size: nothing at first, then what CHARGE says. Of any page but 1 GiB,
  // a multiple of kChargeUnit, never hugetlb.
  kSparse = 2,
};
inline constexpr std::uint64_t kChargeUnit = std::uint64_t{2} << 20;

struct MintSpec {
  std::uint64_t size;   // Bytes, a multiple of `page`.
  std::uint32_t page;   // 4096, 2 MiB or 1 GiB.
  std::uint32_t flags;  // MintFlag
};

struct Mint {
  std::uint32_t device;
  std::uint32_t count;  // 1..kMaxMint; specs behind it are zero.
  std::array<MintSpec, kMaxMint> specs;
};

enum class Backing : std::uint8_t { kNone = 0, kShmem = 1, kHugetlb = 2 };

// All or nothing: `count` equals the request's, and so many descriptors come with it, in order.
struct MintReply {
  std::array<std::uint64_t, kMaxMint> blocks;
  std::array<Backing, kMaxMint> backing;
  std::uint32_t count;
  std::uint32_t reserved;
};

struct Free {
  std::uint64_t block;
};

enum ExportFlag : std::uint32_t {
  kAnyProcess = 1,  // No whitelist (ACL_RT_IPC_MEM_EXPORT_FLAG_DISABLE_PID_VALIDATION).
  kReadOnly = 2,    // Importers may read, enforced by the kernel.
  // Only in what the broker tells: the export is EXPORT_HANDLE's. No request has it.
  kHandle = 4,
};

struct Export {
  std::uint64_t block;
  std::uint64_t offset;         // Bytes from the block's start, as the user asked: judged here.
  std::uint64_t size;           // Bytes, as the user asked.
  std::uint64_t reported_size;  // What the client tells its user about the block (padded; D6).
  std::uint32_t flags;
  std::uint32_t reserved;
};

struct ExportReply {
  std::array<char, 64> key;
  std::array<std::uint8_t, 16> public_id;
  std::uint64_t share;  // The export's number in records; says nothing to anybody else.
};

// The whole block; it has one handle at a time.
struct ExportHandle {
  std::uint64_t block;
  std::uint32_t flags;  // ExportFlag: kAnyProcess, kReadOnly.
  std::uint32_t reserved;
};

// Token and key name the same export: the token is short and tells nothing, the key is for who
// wants a sealed structure. Both die with the export.
struct ExportHandleReply {
  std::array<char, 64> key;
  std::array<std::uint8_t, 16> public_id;
  std::uint64_t share;
  std::uint64_t token;  // Not 0, and no other living export's.
};

// Of a sparse block, in place of what was said before. More must be said before it is used, and may
// be refused for want of memory; less, after it was given back.
struct Charge {
  std::uint64_t block;
  std::uint64_t bytes;  // A multiple of kChargeUnit, at most the block's size.
};

struct ChargeReply {
  std::uint64_t charged;  // More than was said when the file has more memory than that.
};

struct Withdraw {
  KeyText key;
};

enum ImportFlag : std::uint32_t {
  kAsAnybody = 1,  // The exporting process asks to be judged like any other (HUFU_STRICT=cann).
};

struct EndAll {
  std::uint64_t block;
};

// Those that lie wholly in it.
struct EndRange {
  std::uint64_t block;
  std::uint64_t offset;
  std::uint64_t size;
};

struct Import {
  KeyText key;
  std::uint32_t access;  // hufu::Access; 0: whatever the export grants.
  std::uint32_t flags;   // ImportFlag
};

struct ImportReply {
  std::uint64_t share;          // Names this import in CLOSE.
  std::uint64_t offset;         // Where the range starts in the descriptor, a multiple of 4096.
  std::uint64_t size;           // Bytes to map, a multiple of 4096.
  std::uint64_t reported_size;  // What the exporter asked for; `size` rounds it up.
  std::uint64_t status;         // The word's value while the export is live.
  std::uint32_t slot;           // Which word of the status memory: 1..kStatusWords-1.
  std::uint32_t page;
  std::uint32_t access;
  std::uint32_t device;
  std::int32_t exporter_pid;
  Backing backing;
  std::array<std::uint8_t, 3> reserved;
  std::array<std::uint8_t, 16> public_id;
};

struct Close {
  std::uint64_t share;
};

inline constexpr std::size_t kMaxListPids = 31;

struct ListPid {
  KeyText key;
  std::uint32_t count;  // 1..kMaxListPids; pids behind it are zero.
  std::array<std::int32_t, kMaxListPids> pids;
};

// Numbers of pidfs are one for all namespaces and never used twice, so nothing needs to be held and
// nothing can be checked: a number that no process has lists nobody.
struct ListProcess {
  KeyText key;
  std::uint64_t pidfs_inode;
};

struct ListPidReply {
  std::uint32_t added;   // New on the list by this call.
  std::uint32_t listed;  // On the list now.
};

struct Stat {
  std::uint32_t device;
  std::uint32_t reserved;
};

struct StatReply {
  std::uint64_t capacity;
  std::uint64_t used;         // By everybody.
  std::uint64_t used_here;    // By this session.
  std::uint64_t blocks_here;  // The counts below are this session's too.
  std::uint64_t exports_here;
  std::uint64_t imports_here;
};

struct Report {
  std::uint32_t reason;  // hufu::Reason
  std::uint32_t reserved;
  std::uint64_t address;
  std::uint64_t size;
};

struct List {
  std::uint64_t after;  // 0 to begin; then the `share` of the last reply.
};

// An ended one is still held by importers.
enum class ShareState : std::uint32_t { kEnded = 0, kLive = 1, kExporterGone = 2 };

struct ListReply {
  std::uint64_t share;  // 0: no more, and the rest is zero.
  std::array<std::uint8_t, 16> public_id;
  std::uint64_t offset;
  std::uint64_t size;  // What the exporter asked for.
  std::uint64_t age_ns;
  std::uint32_t page;
  std::uint32_t access;
  std::uint32_t flags;  // ExportFlag
  std::uint32_t listed;
  std::uint32_t importers;
  std::uint32_t owner_uid;
  std::int32_t owner_pid;
  ShareState state;
  std::array<char, 16> owner_name;
  std::uint64_t imports;  // So far, also by those who have let go since.
};

// What one process says it uses one device's memory for. Bytes where nothing else is said.
struct UsageCounts {
  std::uint64_t requested;  // By the program, in blocks.
  std::uint64_t reserved;   // Of those blocks.
  std::uint64_t blocks;     // How many.
  std::uint64_t pieces;     // Of small requests, rounded to their strides.
  std::uint64_t chunks;     // That those are cut from.
  std::uint64_t warm;       // Of freed blocks that are kept for reuse.
  std::uint64_t spare;      // Of blocks minted ahead.
  std::uint64_t
      fallbacks;  // How many blocks so far were to be of huge pages and are of small ones.
};

struct Usage {
  std::uint64_t session;  // 0 to begin; then the `session` and `device` of the last reply.
  std::uint32_t device;
  std::uint32_t reserved;
};

struct UsageReply {
  std::uint64_t session;  // 0: no more, and the rest is zero.
  std::uint32_t device;
  std::int32_t pid;
  std::uint32_t uid;
  std::uint32_t reserved;
  std::array<char, 16> name;
  std::uint64_t charged;  // Bytes of the session's blocks there, by the broker's own books.
  UsageCounts counts;     // The process's word.
};

// BYE has no body, and neither have the answers to FREE, WITHDRAW, CLOSE and BYE.
struct Empty {};

struct Refusal {
  std::uint16_t reason;  // hufu::Reason, which also says what the numbers mean.
  std::uint16_t reserved;
  std::int32_t sys_errno;
  std::array<std::uint64_t, 4> number;
};

template <class T>
inline constexpr std::size_t kBodySize = std::is_empty_v<T> ? 0 : sizeof(T);

// A body is bytes and nothing else: no padding that could carry somebody's memory.
template <class T>
concept Body = std::is_trivially_copyable_v<T> &&
                   (std::is_empty_v<T> ||
                    std::has_unique_object_representations_v<T>)&&sizeof(Header) +
                   kBodySize<T> <=
               kMaxMessage;

static_assert(sizeof(Header) == 16);
static_assert(sizeof(KeyText) == 72);
static_assert(Body<Hello> && sizeof(Hello) == 32);
static_assert(Body<HelloReply> && sizeof(HelloReply) == 72);
static_assert(Body<Attach> && sizeof(Attach) == 24);
static_assert(Body<Event> && sizeof(Event) == 16);
static_assert(Body<Watch> && sizeof(Watch) == 88);
static_assert(Body<Mint> && sizeof(Mint) == 136);
static_assert(Body<MintReply> && sizeof(MintReply) == 80);
static_assert(Body<Free> && sizeof(Free) == 8);
static_assert(Body<Export> && sizeof(Export) == 40);
static_assert(Body<ExportReply> && sizeof(ExportReply) == 88);
static_assert(Body<ExportHandle> && sizeof(ExportHandle) == 16);
static_assert(Body<ExportHandleReply> && sizeof(ExportHandleReply) == 96);
static_assert(Body<Charge> && sizeof(Charge) == 16);
static_assert(Body<ChargeReply> && sizeof(ChargeReply) == 8);
static_assert(Body<Withdraw> && sizeof(Withdraw) == 72);
static_assert(Body<EndAll> && sizeof(EndAll) == 8);
static_assert(Body<EndRange> && sizeof(EndRange) == 24);
static_assert(Body<Import> && sizeof(Import) == 80);
static_assert(Body<ImportReply> && sizeof(ImportReply) == 80);
static_assert(Body<Close> && sizeof(Close) == 8);
static_assert(Body<ListPid> && sizeof(ListPid) == 200);
static_assert(Body<ListProcess> && sizeof(ListProcess) == 80);
static_assert(Body<ListPidReply> && sizeof(ListPidReply) == 8);
static_assert(Body<Stat> && sizeof(Stat) == 8);
static_assert(Body<StatReply> && sizeof(StatReply) == 48);
static_assert(Body<Report> && sizeof(Report) == 24);
static_assert(Body<List> && sizeof(List) == 8);
static_assert(Body<ListReply> && sizeof(ListReply) == 104);
static_assert(sizeof(UsageCounts) == kUsageCounts * sizeof(std::uint64_t));
static_assert(64 * sizeof(UsageCounts) == kUsagePageBytes, "every device has its counts");
static_assert(Body<Usage> && sizeof(Usage) == 16);
static_assert(Body<UsageReply> && sizeof(UsageReply) == 112);
static_assert(Body<Refusal> && sizeof(Refusal) == 40);
static_assert(Body<Empty>);

// Which reply belongs to which request, and under which kind both travel.
template <class Request>
struct Protocol;
template <>
struct Protocol<Hello> {
  static constexpr Kind kKind = Kind::kHello;
  using Reply = HelloReply;
};
template <>
struct Protocol<Mint> {
  static constexpr Kind kKind = Kind::kMint;
  using Reply = MintReply;
};
template <>
struct Protocol<Free> {
  static constexpr Kind kKind = Kind::kFree;
  using Reply = Empty;
};
template <>
struct Protocol<Export> {
  static constexpr Kind kKind = Kind::kExport;
  using Reply = ExportReply;
};
template <>
struct Protocol<ExportHandle> {
  static constexpr Kind kKind = Kind::kExportHandle;
  using Reply = ExportHandleReply;
};
template <>
struct Protocol<Charge> {
  static constexpr Kind kKind = Kind::kCharge;
  using Reply = ChargeReply;
};
template <>
struct Protocol<Withdraw> {
  static constexpr Kind kKind = Kind::kWithdraw;
  using Reply = Empty;
};
template <>
struct Protocol<EndAll> {
  static constexpr Kind kKind = Kind::kEndAll;
  using Reply = Empty;
};
template <>
struct Protocol<EndRange> {
  static constexpr Kind kKind = Kind::kEndRange;
  using Reply = Empty;
};
template <>
struct Protocol<Import> {
  static constexpr Kind kKind = Kind::kImport;
  using Reply = ImportReply;
};
template <>
struct Protocol<Close> {
  static constexpr Kind kKind = Kind::kClose;
  using Reply = Empty;
};
template <>
struct Protocol<ListProcess> {
  static constexpr Kind kKind = Kind::kListProcess;
  using Reply = ListPidReply;
};
template <>
struct Protocol<ListPid> {
  static constexpr Kind kKind = Kind::kListPid;
  using Reply = ListPidReply;
};
template <>
struct Protocol<Stat> {
  static constexpr Kind kKind = Kind::kStat;
  using Reply = StatReply;
};
template <>
struct Protocol<Report> {
  static constexpr Kind kKind = Kind::kReport;
  using Reply = Empty;
};
template <>
struct Protocol<List> {
  static constexpr Kind kKind = Kind::kList;
  using Reply = ListReply;
};
template <>
struct Protocol<Attach> {
  static constexpr Kind kKind = Kind::kAttach;
  using Reply = Empty;
};
template <>
struct Protocol<Watch> {
  static constexpr Kind kKind = Kind::kWatch;
  using Reply = ListReply;
};
template <>
struct Protocol<Usage> {
  static constexpr Kind kKind = Kind::kUsage;
  using Reply = UsageReply;
};
struct Bye {};
template <>
struct Protocol<Bye> {
  static constexpr Kind kKind = Kind::kBye;
  using Reply = Empty;
};

// ---- Batches: the only messages above kMaxMessage ----
//
//   request   Header | BatchHead{count} | count requests
//   reply     Header | BatchHead{count} | count outcomes, in the requests' order
//
// Nothing is all or nothing here: each request is decided, recorded and counted as if it came
// alone, and one that is refused does not keep the next from being granted. The descriptors of an
// IMPORT_BATCH are those of its granted imports, in order.
inline constexpr std::size_t kMaxBatch = 64;

struct BatchHead {
  std::uint32_t count;  // 1..kMaxBatch
  std::uint32_t reserved;
};

template <class R>
struct Batch {
  using Item = R;
  std::vector<R> items;
};

// Either: `refusal.reason` is 0 and the reply counts, or the reply is zero.
template <class R>
struct Outcome {
  Refusal refusal;
  typename Protocol<R>::Reply reply;
};
template <>
struct Outcome<Close> {
  Refusal refusal;
};

static_assert(sizeof(BatchHead) == 8);
static_assert(sizeof(Outcome<Export>) == 128);
static_assert(sizeof(Outcome<Import>) == 120);
static_assert(sizeof(Outcome<Close>) == 40);
inline constexpr std::size_t kMaxBatchMessage =
    sizeof(Header) + sizeof(BatchHead) + kMaxBatch * sizeof(Outcome<Export>);

template <>
struct Protocol<Batch<Export>> {
  static constexpr Kind kKind = Kind::kExportBatch;
  using Reply = Batch<Outcome<Export>>;
};
template <>
struct Protocol<Batch<Import>> {
  static constexpr Kind kKind = Kind::kImportBatch;
  using Reply = Batch<Outcome<Import>>;
};
template <>
struct Protocol<Batch<Close>> {
  static constexpr Kind kKind = Kind::kCloseBatch;
  using Reply = Batch<Outcome<Close>>;
};

}  // namespace hufu::wire
