#include "broker/core.h"

#include <fcntl.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <utility>

#include "audit/chain.h"
#include "os/kernel_abi.h"
#include "os/memfd.h"

#include <sodium.h>

namespace hufu::broker {
namespace {

std::uint64_t now_ns() {
  timespec now{};
  ::clock_gettime(CLOCK_BOOTTIME, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000 +
         static_cast<std::uint64_t>(now.tv_nsec);
}

// How long a MINT that does not fit waits for what others give back (D11), and how many may.
constexpr std::uint64_t kReturnWaitNs = 20'000'000;
constexpr std::size_t kMostWaiting = 64;

policy::Verdict no(Reason reason, std::uint64_t n0 = 0, std::uint64_t n1 = 0, std::uint64_t n2 = 0,
                   std::uint64_t n3 = 0) {
  return {.reason = reason, .number = {n0, n1, n2, n3}};
}

// A block's probe stays open from one release to the next, because opening it costs more than
// asking; so many blocks' at most, as each is a descriptor.
constexpr std::size_t kProbesKept = 32;

wire::Refusal refusal_of(const policy::Verdict& verdict, int sys_errno = 0) {
  wire::Refusal body{};
  body.reason = static_cast<std::uint16_t>(verdict.reason);
  body.sys_errno = sys_errno;
  body.number = verdict.number;
  return body;
}

std::uint64_t number_of(std::int32_t pid) { return static_cast<std::uint32_t>(pid); }

Result<UniqueFd> dup_of(const UniqueFd& fd) {
  UniqueFd copy(::fcntl(fd.get(), F_DUPFD_CLOEXEC, 0));
  if (copy) return copy;
  Error error = fail_errno("F_DUPFD_CLOEXEC", errno);
  error.reason = Reason::kDescriptors;
  return error;
}

// Tells a request that came again from another one with the same number. Keyed, so that nobody can
// prepare two requests that look alike.
std::uint64_t digest_of(std::span<const std::byte> packet, const DigestKey& key) {
  std::uint64_t digest = 0;
  static_assert(sizeof(digest) == crypto_shorthash_BYTES);
  static_assert(sizeof(DigestKey) == crypto_shorthash_KEYBYTES);
  crypto_shorthash(reinterpret_cast<unsigned char*>(&digest),
                   reinterpret_cast<const unsigned char*>(packet.data()), packet.size(),
                   key.data());
  return digest;
}

// Leases on memfds are no documented promise, and can be switched off (fs.leases-enable): try.
bool try_leases() {
  const auto file = os::make_memfd("hufu-probe", bytes_of(PageSize::k4KiB), os::Backing::kShmem);
  if (!file) return false;
  const auto probe = os::HolderProbe::open(file->get());
  if (!probe) return false;
  const auto alone = probe->held();
  const auto reader = os::reopen(file->get(), Access::kReadOnly);
  const auto watched = probe->held();
  return alone && !*alone && reader && watched && *watched;
}

// What is kept of a session's secret, here and by a keeper. Comparing hashes tells nobody, by the
// time it takes, how much of a guess was right.
SecretHash hash_of(const std::array<std::uint8_t, 16>& secret) {
  SecretHash hash{};
  ::crypto_generichash(hash.data(), hash.size(), secret.data(), secret.size(), nullptr, 0);
  return hash;
}

audit::Type type_asked(wire::Kind kind) {
  switch (kind) {
    case wire::Kind::kExport:
    case wire::Kind::kExportBatch:
      return audit::Type::kExport;
    case wire::Kind::kImport:
    case wire::Kind::kImportBatch:
      return audit::Type::kImport;
    case wire::Kind::kListPid:
    case wire::Kind::kListProcess:
      return audit::Type::kListAdd;
    case wire::Kind::kWithdraw:
    case wire::Kind::kEndAll:
      return audit::Type::kWithdraw;
    case wire::Kind::kClose:
    case wire::Kind::kCloseBatch:
      return audit::Type::kCloseClaimed;
    case wire::Kind::kFree:
      return audit::Type::kFreeClaimed;
    case wire::Kind::kHello:
    case wire::Kind::kAttach:
    case wire::Kind::kMint:
    case wire::Kind::kStat:
    case wire::Kind::kWatch:
    case wire::Kind::kReport:
    case wire::Kind::kBye:
    case wire::Kind::kList:
    case wire::Kind::kUsage:
    case wire::Kind::kEvent:
      return audit::Type::kTripwire;
  }
  return audit::Type::kTripwire;
}

}  // namespace

struct Core::Asking {
  Session& session;
  std::uint64_t request;
  bool one_way;
  wire::Kind kind;
};

Core::Core(const CoreOptions& options, KeySeal seal, os::PublishedMemory life, audit::Log& log,
           Committer& committer, Reaper& reaper)
    : options_(options),
      seal_(std::move(seal)),
      log_(log),
      committer_(committer),
      reaper_(reaper),
      ledger_(options.devices, options.keeper),
      leases_work_(try_leases()),
      life_(std::move(life)) {
  crypto_shorthash_keygen(digest_key_.data());
}

std::optional<wire::Frame> Core::open(SessionId id, os::PeerIdentity who) {
  const std::uint64_t open = ledger_.usage_of(who.connected.uid).connections;
  const std::uint64_t limit = options_.limits.connections_per_uid();
  if (open >= limit) {
    return wire::encode_unnumbered(refusal_of(no(Reason::kTooManySessions, open, limit)));
  }
  ledger_.open_session(id, std::move(who));
  return std::nullopt;
}

Answer Core::handle(SessionId id, std::span<const std::byte> packet,
                    const os::Credentials& sender) {
  Session* session = ledger_.session(id);
  if (session == nullptr) return {.hang_up = true};
  auto decoded = wire::decode_request(packet);
  const auto* error = std::get_if<wire::DecodeError>(&decoded);
  const auto* request = std::get_if<wire::Request>(&decoded);
  Asking asking{
      .session = *session,
      .request = request != nullptr ? request->id : std::get<wire::DecodeError>(decoded).request,
      .one_way = request != nullptr && request->one_way,
      .kind = request != nullptr ? request->kind() : static_cast<wire::Kind>(error->kind)};

  // The session's pidfd is alive, so its number is nobody else's: equal numbers are one process. A
  // fork child, a passed socket and a changed uid all differ here.
  const os::Credentials& connected = session->who.connected;
  if (sender.pid != connected.pid || sender.uid != connected.uid) {
    Answer refused = refuse(asking, type_asked(asking.kind),
                            no(Reason::kIdentityChanged, number_of(connected.pid),
                               number_of(sender.pid), connected.uid, sender.uid));
    refused.hang_up = true;
    return refused;
  }
  if (error != nullptr) {
    const policy::Verdict verdict = no(error->reason, error->number[0], error->number[1]);
    Answer refused = refuse(asking, audit::Type::kTripwire, verdict);
    refused.hang_up = true;
    return refused;
  }
  const std::uint64_t digest = digest_of(packet, digest_key_);
  if (request->id <= session->answered.id) {
    const Answered& last = session->answered;
    if (request->id == last.id && digest == last.digest) return repeat(asking, *request);
    Answer refused = refuse(asking, audit::Type::kTripwire, no(Reason::kOutOfOrder));
    refused.hang_up = true;
    return refused;
  }
  const bool opens = asking.kind == wire::Kind::kHello || asking.kind == wire::Kind::kAttach;
  // An agent connection only listens.
  if (session->greeted == opens || agents_.contains(id)) {
    Answer refused = refuse(asking, audit::Type::kTripwire, no(Reason::kOutOfOrder));
    refused.hang_up = true;
    return refused;
  }
  Answer result = std::visit([&](const auto& body) { return answer(asking, body); }, request->body);
  if (result.later) {
    waiting_.back().digest = digest;
    return result;
  }
  if (request->one_way) result.frame.reset();
  session->answered = {.id = request->id, .digest = digest, .frame = result.frame};
  return result;
}

Answer Core::repeat(Asking& asking, const wire::Request& request) {
  const Session& session = asking.session;
  Answer again{.frame = session.answered.frame};
  if (!again.frame) return again;
  Result<void> taken;
  const auto take = [&](Result<UniqueFd> fd) {
    if (fd) {
      again.fds.push_back(std::move(*fd));
    } else {
      taken = fd.error();
    }
  };
  const auto reply_to = [&]<class R>(const R&) {
    const auto decoded = wire::decode_reply<R>(again.frame->view(), request.id);
    const auto* body = decoded ? std::get_if<0>(&*decoded) : nullptr;
    return body == nullptr ? std::nullopt : std::optional(*body);
  };
  if (const auto* hello = std::get_if<wire::Hello>(&request.body); hello && reply_to(*hello)) {
    take(session.board->reader());
    take(life_.reader());
    take(session.usage->writer());
  } else if (const auto* mint = std::get_if<wire::Mint>(&request.body)) {
    if (const auto minted = reply_to(*mint)) {
      for (std::uint32_t i = 0; i < minted->count; ++i) {
        const Block* block = ledger_.block(minted->blocks[i]);
        if (block == nullptr) {
          return decline(asking, no(Reason::kUnknownBlock, minted->blocks[i]));
        }
        take(dup_of(block->fd));
      }
    }
  } else if (const auto* import = std::get_if<wire::Import>(&request.body)) {
    if (const auto granted = reply_to(*import)) {
      // No descriptor leaves after WITHDRAW or FREE was answered, not even one granted before.
      const Share* share = ledger_.share(granted->share);
      if (share == nullptr || !share->live) return decline(asking, no(Reason::kExportEnded));
      take(os::reopen(ledger_.block(share->block)->fd.get(), static_cast<Access>(granted->access)));
    }
  } else if (const auto* imports = std::get_if<wire::Batch<wire::Import>>(&request.body)) {
    const auto outcomes = reply_to(*imports);
    for (std::size_t i = 0; outcomes && i < outcomes->items.size(); ++i) {
      const wire::Outcome<wire::Import>& outcome = outcomes->items[i];
      if (outcome.refusal.reason != 0) continue;
      const Share* share = ledger_.share(outcome.reply.share);
      if (share == nullptr || !share->live) return decline(asking, no(Reason::kExportEnded));
      take(os::reopen(ledger_.block(share->block)->fd.get(),
                      static_cast<Access>(outcome.reply.access)));
    }
  }
  if (!taken) return refuse_system(asking, audit::Type::kTripwire, taken.error());
  return again;
}

Answer Core::answer(Asking& asking, const wire::Hello& /*hello*/) {
  const std::uint32_t uid = asking.session.uid();
  const auto twin = ledger_.twin_of(asking.session);
  const bool replaces = twin && ledger_.session(*twin)->uid() == uid;
  const std::uint64_t others = ledger_.usage_of(uid).sessions - (replaces ? 1 : 0);
  if (others >= options_.limits.sessions_per_uid) {
    Answer refused = refuse(asking, audit::Type::kTripwire,
                            no(Reason::kTooManySessions, others, options_.limits.sessions_per_uid));
    refused.hang_up = true;
    return refused;
  }
  auto board = StatusBoard::make();
  if (!board) return refuse_system(asking, audit::Type::kTripwire, board.error());
  auto status = board->reader();
  if (!status) return refuse_system(asking, audit::Type::kTripwire, status.error());
  auto life = life_.reader();
  if (!life) return refuse_system(asking, audit::Type::kTripwire, life.error());
  auto usage = os::ReportedView::make("hufu-usage", wire::kUsagePageBytes);
  if (!usage) return refuse_system(asking, audit::Type::kTripwire, usage.error());
  auto writer = usage->writer();
  if (!writer) return refuse_system(asking, audit::Type::kTripwire, writer.error());
  std::array<std::uint8_t, 16> secret{};
  ::randombytes_buf(secret.data(), secret.size());
  ledger_.greet(asking.session, std::move(*board), hash_of(secret));
  asking.session.usage = std::make_unique<os::ReportedView>(std::move(*usage));
  if (twin) {
    end(*twin);
    superseded_.push_back(*twin);
  }
  wire::HelloReply body{};
  body.session = asking.session.id;
  body.secret = secret;
  body.instance = seal_.instance();
  body.device_capacity = options_.device_capacity;
  body.devices = options_.devices;
  body.peer_pid = asking.session.who.connected.pid;
  body.broker_pid = options_.pid;
  body.broker_uid = options_.uid;
  body.mode = static_cast<std::uint32_t>(options_.mode);
  Answer result = reply<wire::Hello>(asking, body);
  result.fds.push_back(std::move(*status));
  result.fds.push_back(std::move(*life));
  result.fds.push_back(std::move(*writer));
  return result;
}

Answer Core::answer(Asking& asking, const wire::Attach& attach) {
  Session* owner = ledger_.session(attach.session);
  const policy::Process caller = asking.session.process();
  const bool proven =
      owner != nullptr && owner->greeted && owner->secret_hash == hash_of(attach.secret) &&
      policy::same_process(
          caller,
          {.pid = owner->who.connected.pid, .pidfs_inode = owner->who.pidfs_inode, .alive = true});
  if (!proven) {
    Answer refused = refuse(asking, audit::Type::kTripwire, no(Reason::kOutOfOrder));
    refused.hang_up = true;
    return refused;
  }
  if (owner->agent != 0) {
    agents_.erase(owner->agent);
    superseded_.push_back(owner->agent);
  }
  owner->agent = asking.session.id;
  agents_.emplace(asking.session.id, owner->id);
  return reply<wire::Attach>(asking, {});
}

Answer Core::answer(Asking& asking, const wire::Watch& watch) {
  Session& session = asking.session;
  Found found;
  if (watch.share == 0) {
    found = find(watch.key);
  } else if (found.share = ledger_.share(watch.share); found.share == nullptr) {
    found.verdict = no(Reason::kExportEnded);
  }
  const bool concerned = found.share != nullptr && (found.share->exporter.session == session.id ||
                                                    found.share->holders.contains(session.id));
  if (!concerned) {
    // No record: nothing about anybody's memory was asked that the asker did not hold.
    return decline(asking, found.share == nullptr ? found.verdict : no(Reason::kNotImported));
  }
  switch (watch.mode) {
    case wire::WatchMode::kAsk:
      break;
    case wire::WatchMode::kStart:
      ledger_.watch(session, *found.share);
      break;
    case wire::WatchMode::kStop:
      ledger_.unwatch(session, *found.share);
      break;
  }
  return reply<wire::Watch>(asking, listing_of(*found.share));
}

void Core::tell(const Share& share, wire::EventKind what) {
  const bool last = what == wire::EventKind::kLastImporterLeft;  // Told before it has.
  const wire::Frame frame =
      wire::encode_event({.what = static_cast<std::uint32_t>(what),
                          .importers = last ? 0 : static_cast<std::uint32_t>(share.holders.size()),
                          .share = share.id});
  for (const SessionId watcher : share.watchers) {
    const Session* session = ledger_.session(watcher);
    if (session->agent != 0) tellings_.push_back({.agent = session->agent, .frame = frame});
  }
}

std::vector<Core::Telling> Core::take_tellings() { return std::exchange(tellings_, {}); }

Answer Core::answer(Asking& asking, const wire::Mint& mint) {
  if (mint.device >= options_.devices) {
    return decline(asking, no(Reason::kNoDevice, mint.device, options_.devices));
  }
  const policy::Verdict quota = quota_for(asking.session, mint);
  if (!quota.allowed()) return decline(asking, quota);
  const Room room = room_for(mint);
  if (room.enough()) return mint_now(asking, mint);
  const bool may_wait = room.asked <= options_.device_capacity && waiting_.size() < kMostWaiting;
  if (!may_wait || !ask_for_memory(asking.session.id)) return decline_for_room(asking, mint);
  waiting_.push_back({.session = asking.session.id,
                      .request = asking.request,
                      .digest = 0,
                      .mint = mint,
                      .due_ns = now_ns() + kReturnWaitNs});
  return {.later = true};
}

policy::Verdict Core::quota_for(const Session& session, const wire::Mint& mint) const {
  const Limits& limits = options_.limits;
  const std::uint64_t blocks = ledger_.usage_of(session.uid()).blocks;
  if (blocks + mint.count > limits.blocks_per_uid) {
    return no(Reason::kTooManyBlocks, blocks, limits.blocks_per_uid);
  }
  if (ledger_.blocks() + mint.count > limits.blocks) {
    return no(Reason::kDescriptors, ledger_.blocks(), limits.blocks);
  }
  return {};
}

Core::Room Core::room_for(const wire::Mint& mint) const {
  // Books that were rebuilt may hold more than a capacity that was lowered meanwhile.
  const std::uint64_t free =
      options_.device_capacity - std::min(options_.device_capacity, ledger_.used(mint.device));
  std::uint64_t asked = 0;
  for (std::uint32_t i = 0; i < mint.count; ++i) {
    if (__builtin_add_overflow(asked, mint.specs[i].size, &asked)) asked = ~std::uint64_t{0};
  }
  return {.asked = asked, .free = free};
}

Answer Core::decline_for_room(const Asking& asking, const wire::Mint& mint) const {
  const Room room = room_for(mint);
  return decline(
      asking, no(Reason::kCapacity, room.asked, room.free, options_.device_capacity, mint.device));
}

bool Core::ask_for_memory(SessionId asker) {
  const std::uint64_t now = now_ns();
  const wire::Frame frame = wire::encode_event(
      {.what = static_cast<std::uint32_t>(wire::EventKind::kReturn), .importers = 0, .share = 0});
  bool asked = false;
  for (const auto& [agent, owner] : agents_) {
    if (owner == asker) continue;  // It cannot say FREE before it has its answer.
    asked = true;
    // Whoever was asked within the time that the asker waits is still at it.
    Session& session = *ledger_.session(owner);
    if (now - session.asked_to_return_ns < kReturnWaitNs) continue;
    session.asked_to_return_ns = now;
    tellings_.push_back({.agent = agent, .frame = frame});
  }
  return asked;
}

std::vector<std::pair<SessionId, Answer>> Core::take_ready() {
  std::vector<std::pair<SessionId, Answer>> ready;
  if (waiting_.empty()) return ready;
  const std::uint64_t now = now_ns();
  std::vector<Waiting> still;
  for (const Waiting& waiting : waiting_) {
    const bool fits = room_for(waiting.mint).enough();
    if (!fits && now < waiting.due_ns) {
      still.push_back(waiting);
      continue;
    }
    Session& session = *ledger_.session(waiting.session);
    Asking asking{.session = session,
                  .request = waiting.request,
                  .one_way = false,
                  .kind = wire::Kind::kMint};
    // Others may have minted while it waited.
    const policy::Verdict quota = quota_for(session, waiting.mint);
    Answer result = !quota.allowed() ? decline(asking, quota)
                    : fits           ? mint_now(asking, waiting.mint)
                                     : decline_for_room(asking, waiting.mint);
    session.answered = {.id = waiting.request, .digest = waiting.digest, .frame = result.frame};
    ready.emplace_back(waiting.session, std::move(result));
  }
  waiting_ = std::move(still);
  return ready;
}

std::optional<std::chrono::nanoseconds> Core::next_due_in() const {
  if (waiting_.empty()) return std::nullopt;
  // The oldest is the first, and all wait equally long.
  const std::uint64_t due = waiting_.front().due_ns;
  const std::uint64_t now = now_ns();
  return std::chrono::nanoseconds(due > now ? due - now : 0);
}

Answer Core::mint_now(Asking& asking, const wire::Mint& mint) {
  // All or nothing: the blocks enter the books when every file is there.
  std::vector<Block> fresh;
  Answer result;
  for (std::uint32_t i = 0; i < mint.count; ++i) {
    const wire::MintSpec& spec = mint.specs[i];
    const PageSize page = *page_size_of(spec.page);
    const bool want_hugetlb = (spec.flags & wire::kWantHugetlb) != 0;
    auto file = os::make_block_file("hufu", spec.size, page, want_hugetlb);
    if (!file) return refuse_system(asking, audit::Type::kTripwire, file.error(), spec.size);
    // In system mode the inode is the broker's, so no importer needs a future-write seal and the
    // seals can be closed at once.
    if (options_.mode == policy::BrokerMode::kSystem) {
      if (auto sealed = os::add_seals(file->fd.get(), F_SEAL_SEAL); !sealed) {
        return refuse_system(asking, audit::Type::kTripwire, sealed.error());
      }
    }
    auto handed = dup_of(file->fd);
    if (!handed) return refuse_system(asking, audit::Type::kTripwire, handed.error());
    Block block;
    block.id = random_id();
    block.device = mint.device;
    block.size = spec.size;
    block.page = page;
    if (file->backing == os::Backing::kHugetlb) block.backing = wire::Backing::kHugetlb;
    block.fd = std::move(file->fd);
    fresh.push_back(std::move(block));
    result.fds.push_back(std::move(*handed));
  }
  wire::MintReply body{};
  body.count = mint.count;
  for (std::size_t i = 0; i < fresh.size(); ++i) {
    body.blocks[i] = fresh[i].id;
    body.backing[i] = fresh[i].backing;
    result.minted.push_back(fresh[i].id);
    ledger_.add_block(asking.session, std::move(fresh[i]));
  }
  result.frame = reply<wire::Mint>(asking, body).frame;
  return result;
}

Answer Core::answer(Asking& asking, const wire::Free& free) {
  Block* block = ledger_.block(free.block);
  if (block == nullptr || block->owner != asking.session.id) {
    return refuse(asking, audit::Type::kFreeClaimed, no(Reason::kUnknownBlock, free.block));
  }
  // Memory that never left its process is nobody's business and makes no record.
  if (block->sealed_for) {
    audit::Record record =
        record_of(audit::Type::kFreeClaimed, audit::Outcome::kInfo, asking.session, asking.request);
    record.size = block->size;
    record.page = static_cast<std::uint32_t>(bytes_of(block->page));
    record.refs_after = block->held;
    record.aux = block->shares.size();
    (void)recorded(record);  // A release is never refused, recorded or not.
  }
  for (const ShareId share : block->shares) {
    tell(*ledger_.share(share), wire::EventKind::kExportEnded);
  }
  std::vector<UniqueFd> gone;
  ledger_.free_block(asking.session, *block, gone);
  reaper_.take(std::move(gone));
  return reply<wire::Free>(asking, {});
}

policy::Verdict Core::seal_for_export(Block& block, Access access) {
  if (block.sealed_for || options_.mode == policy::BrokerMode::kSystem) return {};
  const auto failed = [](const Error& error) {
    return no(Reason::kSystem, static_cast<std::uint64_t>(error.sys_errno));
  };
  const auto seals = os::seals_of(block.fd.get());
  if (!seals) return failed(seals.error());
  constexpr int kExpected = F_SEAL_SHRINK | F_SEAL_GROW;
  if ((*seals & ~F_SEAL_EXEC) != kExpected) {
    return no(Reason::kSealsChanged, static_cast<std::uint64_t>(*seals), kExpected);
  }
  const int added = access == Access::kReadOnly ? F_SEAL_FUTURE_WRITE | F_SEAL_SEAL : F_SEAL_SEAL;
  if (auto sealed = os::add_seals(block.fd.get(), added); !sealed) return failed(sealed.error());
  return {};
}

Answer Core::answer(Asking& asking, const wire::Export& request) {
  Block* block = ledger_.block(request.block);
  if (block == nullptr || block->owner != asking.session.id) {
    return refuse(asking, audit::Type::kExport, no(Reason::kUnknownBlock, request.block));
  }
  const auto file = os::facts_of(block->fd.get());
  if (!file) return refuse_system(asking, audit::Type::kExport, file.error());

  audit::Record record =
      record_of(audit::Type::kExport, audit::Outcome::kAllow, asking.session, asking.request);
  record.offset = request.offset;
  record.size = request.size;
  record.page = static_cast<std::uint32_t>(bytes_of(block->page));
  const auto answer = policy::decide_export(
      request, {.size = file->size,
                .committed = file->committed,
                .page = block->page,
                .sealed = block->sealed_for.has_value(),
                .sealed_for = block->sealed_for.value_or(Access::kReadWrite)});
  if (!answer.verdict.allowed()) {
    return refuse(asking, audit::Type::kExport, answer.verdict, record);
  }
  if (asking.session.exported.size() >= options_.limits.exports_per_session) {
    return refuse(asking, audit::Type::kExport,
                  no(Reason::kTooManyExports, asking.session.exported.size(),
                     options_.limits.exports_per_session),
                  record);
  }
  if (const std::uint64_t shares = ledger_.usage_of(asking.session.uid()).shares;
      shares >= options_.limits.shares_per_uid) {
    return refuse(asking, audit::Type::kExport,
                  no(Reason::kTooManyShares, shares, options_.limits.shares_per_uid), record);
  }
  const Access access =
      (request.flags & wire::kReadOnly) != 0 ? Access::kReadOnly : Access::kReadWrite;
  if (const auto sealed = seal_for_export(*block, access); !sealed.allowed()) {
    return refuse(asking, audit::Type::kExport, sealed, record);
  }
  ledger_.seal_for(*block, access);

  const Session& session = asking.session;
  Share share;
  share.id = random_id();
  share.exporter = {.session = session.id,
                    .pid = session.who.connected.pid,
                    .pidfs_inode = session.who.pidfs_inode,
                    .uid = session.who.connected.uid,
                    .gid = session.who.connected.gid,
                    .name = session.who.name};
  share.range = answer.range;
  share.asked_size = request.size;
  share.flags = request.flags;
  share.access = access;
  share.created_ns = now_ns();
  const KeyBytes key = seal_.seal({.share = share.id,
                                   .offset = share.range.offset,
                                   .size = share.range.size,
                                   .flags = static_cast<std::uint8_t>(share.flags)});
  const audit::Id128 id = audit::key_id(key);
  std::memcpy(share.public_id.data(), id.data(), id.size());

  describe(record, share, *block);
  if (!recorded(record)) return decline(asking, no(Reason::kAuditFailed));

  wire::ExportReply body{};
  body.key = text_of(key);
  body.public_id = share.public_id;
  body.share = share.id;
  ledger_.add_share(asking.session, *block, std::move(share));
  return reply<wire::Export>(asking, body);
}

Core::Found Core::find(const wire::KeyText& text) {
  Found found;
  const auto key = key_from(wire::view_of(text));
  if (!key) {
    found.verdict = no(Reason::kKeyMalformed, text.length);
    return found;
  }
  found.key_id = audit::key_id(*key);
  const auto contents = seal_.open(*key);
  if (!contents) {
    found.verdict = no(Reason::kKeyUnknown);
    return found;
  }
  Share* share = ledger_.share(contents->share);
  // The sealed range is compared although nobody can alter it: a mistake of ours must not become
  // somebody's memory.
  const bool same = share != nullptr && share->range.offset == contents->offset &&
                    share->range.size == contents->size;
  if (!same) {
    found.verdict = no(Reason::kExportEnded);
    return found;
  }
  found.share = share;
  return found;
}

policy::ShareFacts Core::facts_of(const Share& share, const Block& block,
                                  std::vector<policy::Listed>& listed) const {
  listed.reserve(share.listed.size());
  for (const ListedProcess& process : share.listed) {
    listed.push_back({.pid = process.pid,
                      .pidfs_inode = process.pidfs_inode,
                      .alive = process.pidfd.valid() && !os::has_ended(process.pidfd.get())});
  }
  return {.live = share.live,
          .exporter = {.pid = share.exporter.pid,
                       .pidfs_inode = share.exporter.pidfs_inode,
                       .uid = share.exporter.uid,
                       .gid = share.exporter.gid,
                       .groups = {}},
          .any_process = (share.flags & wire::kAnyProcess) != 0,
          .listed = listed,
          .access = share.access,
          .whole_block = share.whole_block(block),
          .size = share.range.size,
          .block_size = block.size};
}

Answer Core::answer(Asking& asking, const wire::Import& import) {
  Session& session = asking.session;
  Found found = find(import.key);
  audit::Record record =
      record_of(audit::Type::kImport, audit::Outcome::kAllow, session, asking.request);
  record.key_id = found.key_id;
  if (found.share == nullptr) {
    return refuse(asking, audit::Type::kImport, found.verdict, record);
  }
  Share& share = *found.share;
  Block& block = *ledger_.block(share.block);
  describe(record, share, block);
  std::vector<policy::Listed> listed;
  const auto decided = policy::decide_import(
      session.process(), facts_of(share, block, listed),
      {.access = import.access, .as_anybody = (import.flags & wire::kAsAnybody) != 0},
      options_.mode, options_.overflow);
  if (!decided.verdict.allowed()) {
    return refuse(asking, audit::Type::kImport, decided.verdict, record);
  }
  const auto file = os::facts_of(block.fd.get());
  if (!file) return refuse_system(asking, audit::Type::kImport, file.error());
  if (file->size < share.range.offset + share.range.size) {
    return refuse(
        asking, audit::Type::kImport,
        no(Reason::kOutOfRange, share.range.offset, share.range.size, file->size, file->size),
        record);
  }
  auto fd = os::reopen(block.fd.get(), decided.access);
  if (!fd) return refuse_system(asking, audit::Type::kImport, fd.error());

  const bool repeat = session.held.contains(share.id);
  record.access = decided.access;
  record.refs_after = static_cast<std::uint32_t>(share.holders.size() + (repeat ? 0U : 1U));
  if (repeat) record.flags |= kRecordRepeat;
  if (const std::uint64_t holds = ledger_.usage_of(session.uid()).holds;
      !repeat && holds >= options_.limits.holds_per_uid) {
    return refuse(asking, audit::Type::kImport,
                  no(Reason::kTooManyHolds, holds, options_.limits.holds_per_uid), record);
  }
  const StatusBoard::Place* place = ledger_.hold(session, share);
  if (place == nullptr) {
    return refuse(asking, audit::Type::kImport,
                  no(Reason::kTooManyImports, session.held.size(), wire::kStatusWords - 1), record);
  }
  if (!recorded(record)) {
    std::vector<UniqueFd> gone;
    if (!repeat) ledger_.let_go(session, share, gone);
    return decline(asking, no(Reason::kAuditFailed));
  }

  wire::ImportReply body{};
  body.share = share.id;
  body.offset = share.range.offset;
  body.size = share.range.size;
  body.reported_size = share.asked_size;
  body.status = place->live;
  body.slot = place->slot;
  body.page = static_cast<std::uint32_t>(bytes_of(block.page));
  body.access = static_cast<std::uint32_t>(decided.access);
  body.device = block.device;
  body.exporter_pid = share.exporter.pid;
  body.backing = block.backing;
  body.public_id = share.public_id;
  Answer result = reply<wire::Import>(asking, body);
  result.fds.push_back(std::move(*fd));
  if (!repeat) {
    result.granted.push_back(share.id);
    tell(share, wire::EventKind::kImported);
  }
  return result;
}

Answer Core::answer(Asking& asking, const wire::Close& close) {
  Share* share = ledger_.share(close.share);
  if (share == nullptr || !asking.session.held.contains(close.share)) {
    return refuse(asking, audit::Type::kCloseClaimed, no(Reason::kNotImported));
  }
  audit::Record record =
      record_of(audit::Type::kCloseClaimed, audit::Outcome::kInfo, asking.session, asking.request);
  describe(record, *share, *ledger_.block(share->block));
  record.refs_after -= 1;
  release(asking.session, *share, {&record, 1});
  return reply<wire::Close>(asking, {});
}

Answer Core::answer(Asking& asking, const wire::Withdraw& withdraw) {
  Found found = find(withdraw.key);
  audit::Record record =
      record_of(audit::Type::kWithdraw, audit::Outcome::kInfo, asking.session, asking.request);
  record.key_id = found.key_id;
  if (found.share == nullptr) {
    return refuse(asking, audit::Type::kWithdraw, found.verdict, record);
  }
  const Block& block = *ledger_.block(found.share->block);
  describe(record, *found.share, block);
  std::vector<policy::Listed> listed;
  const auto verdict =
      policy::decide_withdraw(asking.session.process(), facts_of(*found.share, block, listed));
  if (!verdict.allowed()) return refuse(asking, audit::Type::kWithdraw, verdict, record);
  (void)recorded(record);
  tell(*found.share, wire::EventKind::kExportEnded);
  ledger_.end_share(*found.share);
  return reply<wire::Withdraw>(asking, {});
}

Answer Core::answer(Asking& asking, const wire::EndAll& end) {
  const Block* block = ledger_.block(end.block);
  if (block == nullptr || block->owner != asking.session.id) {
    return refuse(asking, audit::Type::kWithdraw, no(Reason::kUnknownBlock, end.block));
  }
  const std::vector<ShareId> live(block->shares.begin(), block->shares.end());
  for (const ShareId id : live) {
    Share& share = *ledger_.share(id);
    audit::Record record =
        record_of(audit::Type::kWithdraw, audit::Outcome::kInfo, asking.session, asking.request);
    describe(record, share, *block);
    (void)recorded(record);
    tell(share, wire::EventKind::kExportEnded);
    ledger_.end_share(share);
  }
  return reply<wire::EndAll>(asking, {});
}

Answer Core::answer(Asking& asking, const wire::ListPid& list) {
  // 0 and the exporter's own pid are skipped, as the device runtime does.
  std::vector<ListedProcess> wanted;
  for (std::uint32_t i = 0; i < list.count; ++i) {
    const std::int32_t pid = list.pids[i];
    if (pid == 0 || pid == asking.session.who.connected.pid) continue;
    ListedProcess process{.pid = pid};
    if (auto pidfd = os::open_pidfd(pid)) {
      process.pidfs_inode = os::pidfs_inode_of(pidfd->get());
      if (process.pidfs_inode == 0) {
        process.start_time = os::start_time_of(pid);
        process.pidfd = std::move(*pidfd);
      }
    }
    wanted.push_back(std::move(process));
  }
  return list_processes(asking, list.key, std::move(wanted));
}

Answer Core::answer(Asking& asking, const wire::ListProcess& list) {
  std::vector<ListedProcess> wanted;
  wanted.push_back({.pid = 0, .pidfs_inode = list.pidfs_inode, .start_time = 0, .pidfd = {}});
  return list_processes(asking, list.key, std::move(wanted));
}

Answer Core::list_processes(Asking& asking, const wire::KeyText& key,
                            std::vector<ListedProcess> wanted) {
  Session& session = asking.session;
  Found found = find(key);
  audit::Record record =
      record_of(audit::Type::kListAdd, audit::Outcome::kAllow, session, asking.request);
  record.key_id = found.key_id;
  if (found.share == nullptr) {
    return refuse(asking, audit::Type::kListAdd, found.verdict, record);
  }
  Share& share = *found.share;
  const Block& block = *ledger_.block(share.block);
  describe(record, share, block);
  std::vector<policy::Listed> facts;
  const auto verdict = policy::decide_list(session.process(), facts_of(share, block, facts),
                                           static_cast<std::uint32_t>(wanted.size()));
  if (!verdict.allowed()) return refuse(asking, audit::Type::kListAdd, verdict, record);

  // All or nothing.
  std::vector<ListedProcess> fresh;
  for (ListedProcess& listed : wanted) {
    if (listed.pidfs_inode == 0 && !listed.pidfd) {
      return refuse(asking, audit::Type::kListAdd,
                    no(Reason::kNoSuchProcess, number_of(listed.pid)), record);
    }
    const policy::Process process{
        .pid = listed.pid, .pidfs_inode = listed.pidfs_inode, .groups = {}};
    const auto known = [&](const policy::Listed& entry) {
      return policy::same_process(process, entry);
    };
    if (std::ranges::any_of(facts, known)) continue;
    facts.push_back({.pid = listed.pid, .pidfs_inode = listed.pidfs_inode, .alive = true});
    fresh.push_back(std::move(listed));
  }
  if (const std::uint64_t entries = ledger_.usage_of(share.exporter.uid).listed;
      entries + fresh.size() > options_.limits.listed_per_uid) {
    return refuse(asking, audit::Type::kListAdd,
                  no(Reason::kTooManyListed, entries, options_.limits.listed_per_uid), record);
  }
  for (const ListedProcess& process : fresh) {
    const bool by_inode = process.pid == 0;
    record.aux = by_inode ? process.pidfs_inode : number_of(process.pid);
    if (by_inode) record.flags |= kRecordByInode;
    if (!recorded(record)) return decline(asking, no(Reason::kAuditFailed));
  }
  const wire::ListPidReply body{
      .added = static_cast<std::uint32_t>(fresh.size()),
      .listed = static_cast<std::uint32_t>(share.listed.size() + fresh.size())};
  ledger_.list(share, std::move(fresh));
  Answer result;  // Under the kind that was asked.
  result.frame = wire::encode(asking.kind, wire::kReply, asking.request, body);
  return result;
}

Answer Core::answer(Asking& asking, const wire::Stat& stat) {
  if (stat.device >= options_.devices) {
    return decline(asking, no(Reason::kNoDevice, stat.device, options_.devices));
  }
  const Session& session = asking.session;
  return reply<wire::Stat>(asking, {.capacity = options_.device_capacity,
                                    .used = ledger_.used(stat.device),
                                    .used_here = session.bytes,
                                    .blocks_here = session.blocks.size(),
                                    .exports_here = session.exported.size(),
                                    .imports_here = session.held.size()});
}

Answer Core::answer(Asking& asking, const wire::Report& report) {
  const auto reason = static_cast<Reason>(report.reason);
  audit::Record record =
      record_of(audit::Type::kDeny, audit::Outcome::kDeny, asking.session, asking.request);
  record.size = report.size;
  record.flags = kRecordClientClaim;
  const audit::Type asked =
      reason == Reason::kUnregistered ? audit::Type::kIllegalAddress : audit::Type::kExport;
  Answer result = refuse(asking, asked, no(reason, report.address), record);
  result.frame = reply<wire::Report>(asking, {}).frame;
  return result;
}

Answer Core::answer(Asking& asking, const wire::List& list) {
  const std::uint32_t uid = asking.session.who.connected.uid;
  wire::ListReply body{};
  ShareId after = list.after;
  const Share* share = ledger_.share_after(after);
  while (share != nullptr && share->exporter.uid != uid && uid != 0) {
    share = ledger_.share_after(share->id);
  }
  if (share != nullptr) body = listing_of(*share);
  return reply<wire::List>(asking, body);
}

wire::ListReply Core::listing_of(const Share& share) {
  wire::ListReply body{};
  body.share = share.id;
  body.public_id = share.public_id;
  body.offset = share.range.offset;
  body.size = share.asked_size;
  body.age_ns = now_ns() - share.created_ns;
  body.page = static_cast<std::uint32_t>(bytes_of(ledger_.block(share.block)->page));
  body.access = static_cast<std::uint32_t>(share.access);
  body.flags = share.flags;
  body.listed = static_cast<std::uint32_t>(share.listed.size());
  body.importers = static_cast<std::uint32_t>(share.holders.size());
  body.owner_uid = share.exporter.uid;
  body.owner_pid = share.exporter.pid;
  body.state = share.live ? wire::ShareState::kLive
               : ledger_.session(share.exporter.session) != nullptr
                   ? wire::ShareState::kEnded
                   : wire::ShareState::kExporterGone;
  body.owner_name = share.exporter.name;
  body.imports = share.imports;
  return body;
}

Answer Core::answer(Asking& asking, const wire::Usage& usage) {
  const std::uint32_t uid = asking.session.uid();
  // The next device of the session asked about last, then the sessions behind it.
  std::uint32_t device = usage.session == 0 ? 0 : usage.device + 1;
  const Session* session = ledger_.greeted_from(usage.session);
  for (; session != nullptr; session = ledger_.greeted_from(session->id + 1)) {
    if (session->id != usage.session) device = 0;
    const bool visible = session->uid() == uid || uid == 0;
    for (; visible && device < options_.devices; ++device) {
      const wire::UsageReply body = usage_of(*session, device);
      const wire::UsageCounts none{};
      const bool used = body.charged != 0 || std::memcmp(&body.counts, &none, sizeof(none)) != 0;
      if (used) return reply<wire::Usage>(asking, body);
    }
  }
  return reply<wire::Usage>(asking, wire::UsageReply{});
}

wire::UsageReply Core::usage_of(const Session& session, std::uint32_t device) const {
  wire::UsageReply body{};
  body.session = session.id;
  body.device = device;
  body.pid = session.who.connected.pid;
  body.uid = session.uid();
  body.name = session.who.name;
  body.charged = ledger_.charged(session, device);
  if (session.usage == nullptr) return body;  // A session from before the broker's restart.
  std::array<std::uint64_t, wire::kUsageCounts> words{};
  for (std::size_t i = 0; i < words.size(); ++i)
    words[i] = session.usage->word(device * wire::kUsageCounts + i);
  body.counts = std::bit_cast<wire::UsageCounts>(words);
  return body;
}

// Each as if it had come alone, so that nothing is judged in two places.
template <class R>
Answer Core::answer(Asking& asking, const wire::Batch<R>& batch) {
  wire::Batch<wire::Outcome<R>> outcomes;
  outcomes.items.reserve(batch.items.size());
  Answer result;
  for (const R& item : batch.items) {
    Asking one{.session = asking.session,
               .request = asking.request,
               .one_way = asking.one_way,
               .kind = wire::Protocol<R>::kKind};
    Answer single = answer(one, item);
    const auto decoded = wire::decode_reply<R>(single.frame->view(), asking.request);
    wire::Outcome<R>& outcome = outcomes.items.emplace_back();
    if (const auto* refusal = std::get_if<wire::Refusal>(&*decoded)) {
      outcome.refusal = *refusal;
    } else if constexpr (!std::is_same_v<R, wire::Close>) {
      outcome.reply = std::get<typename wire::Protocol<R>::Reply>(*decoded);
    }
    std::ranges::move(single.fds, std::back_inserter(result.fds));
    std::ranges::copy(single.granted, std::back_inserter(result.granted));
  }
  result.frame = wire::encode(asking.kind, wire::kReply, asking.request, outcomes);
  return result;
}

Answer Core::answer(Asking& /*asking*/, const wire::Bye& /*bye*/) { return {.hang_up = true}; }

void Core::undelivered(SessionId id, const Answer& answer) {
  Session* session = ledger_.session(id);
  if (session == nullptr) return;
  std::vector<UniqueFd> gone;
  for (const BlockId minted : answer.minted) {
    if (Block* block = ledger_.block(minted)) ledger_.free_block(*session, *block, gone);
  }
  for (const ShareId granted : answer.granted) {
    Share* share = ledger_.share(granted);
    if (share == nullptr) continue;
    audit::Record record =
        record_of(audit::Type::kGrantUndelivered, audit::Outcome::kInfo, *session, 0);
    describe(record, *share, *ledger_.block(share->block));
    record.refs_after -= 1;
    (void)recorded(record);
    if (share->holders.size() == 1) tell(*share, wire::EventKind::kLastImporterLeft);
    ledger_.let_go(*session, *share, gone);
  }
  reaper_.take(std::move(gone));
}

void Core::end(SessionId id) {
  Session* session = ledger_.session(id);
  if (session == nullptr) return;
  if (const auto agent = agents_.find(id); agent != agents_.end()) {
    if (Session* owner = ledger_.session(agent->second)) owner->agent = 0;
    agents_.erase(agent);
  }
  std::erase_if(waiting_, [&](const Waiting& waiting) { return waiting.session == id; });
  if (session->agent != 0) {
    agents_.erase(session->agent);
    superseded_.push_back(std::exchange(session->agent, 0));
  }
  const std::uint64_t suppressed = refusals_.take_suppressed(session->who.connected.uid);
  if (suppressed != 0) {
    audit::Record record = record_of(audit::Type::kSuppressed, audit::Outcome::kInfo, *session, 0);
    record.aux = suppressed;
    (void)recorded(record);
  }
  if (!session->held.empty() || !session->exported.empty()) {
    audit::Record record = record_of(audit::Type::kProcessExit, audit::Outcome::kInfo, *session, 0);
    record.aux = session->held.size();
    record.size = session->bytes;
    (void)recorded(record);
  }
  while (!session->held.empty())
    release(*session, *ledger_.share(session->held.begin()->first), {});
  for (const ShareId share : session->exported) {
    tell(*ledger_.share(share), wire::EventKind::kExporterGone);
  }
  std::vector<UniqueFd> gone;
  ledger_.end_session(*session, gone);
  reaper_.take(std::move(gone));
}

void Core::release(Session& session, Share& share, std::span<const audit::Record> claim) {
  std::vector<audit::Record> records(claim.begin(), claim.end());
  Block& block = *ledger_.block(share.block);
  // With other holders left the kernel could only say "somebody", which is known.
  if (block.held == 1) {
    if (auto proof = proof_of_release(session, share, block)) records.push_back(*proof);
  }
  (void)recorded(records);  // A release is never refused, recorded or not.
  if (share.holders.size() == 1) tell(share, wire::EventKind::kLastImporterLeft);
  std::vector<UniqueFd> gone;
  ledger_.let_go(session, share, gone);
  reaper_.take(std::move(gone));
}

std::optional<audit::Record> Core::proof_of_release(const Session& session, const Share& share,
                                                    Block& block) {
  if (!leases_work_) return std::nullopt;  // Then the records claim no more than the importer did.
  if (!block.probe) {
    auto probe = os::HolderProbe::open(block.fd.get());
    if (!probe) return std::nullopt;
    block.probe = std::move(*probe);
    probed_.push_back(block.id);
    if (probed_.size() > kProbesKept) {
      if (Block* oldest = ledger_.block(probed_.front())) oldest->probe.reset();
      probed_.pop_front();
    }
  }
  const auto held = block.probe->held();
  if (!held) return std::nullopt;
  // Whoever may open the inode by its mode may keep an O_PATH descriptor, which no lease sees: the
  // inode's own user, and root. Only of others is silence a proof.
  const std::uint32_t uid = session.who.connected.uid;
  const bool proof = uid != options_.uid && uid != 0;
  const auto type = *held   ? audit::Type::kStillHeld
                    : proof ? audit::Type::kReleaseVerified
                            : audit::Type::kReleaseProbed;
  audit::Record record = record_of(type, audit::Outcome::kInfo, session, 0);
  describe(record, share, block);
  record.refs_after -= 1;
  return record;
}

std::vector<SessionId> Core::take_superseded() { return std::exchange(superseded_, {}); }

Answer Core::refuse(Asking& asking, audit::Type asked, const policy::Verdict& verdict,
                    audit::Record record) {
  const std::uint32_t uid = asking.session.who.connected.uid;
  const auto budget = refusals_.ask(uid, now_ns());
  if (budget.suppressed_before != 0) {
    audit::Record suppressed =
        record_of(audit::Type::kSuppressed, audit::Outcome::kInfo, asking.session, asking.request);
    suppressed.aux = budget.suppressed_before;
    (void)recorded(suppressed);
  }
  if (budget.write) {
    const bool illegal = asked == audit::Type::kIllegalAddress;
    record.type = illegal ? audit::Type::kIllegalAddress : audit::Type::kDeny;
    record.outcome = audit::Outcome::kDeny;
    record.reason = verdict.reason;
    record.acl_code = acl_code_of(verdict.reason);
    record.aux = illegal ? verdict.number[0] : static_cast<std::uint64_t>(asked);
    (void)recorded(record);  // A refusal stands, recorded or not.
  }
  return decline(asking, verdict);
}

Answer Core::refuse(Asking& asking, audit::Type asked, const policy::Verdict& verdict) {
  return refuse(asking, asked, verdict,
                record_of(asked, audit::Outcome::kDeny, asking.session, asking.request));
}

Answer Core::refuse_system(Asking& asking, audit::Type asked, const Error& error,
                           std::uint64_t bytes) {
  policy::Verdict verdict = no(Reason::kSystem, static_cast<std::uint64_t>(error.sys_errno));
  if (error.reason == Reason::kDescriptors) {
    verdict = no(Reason::kDescriptors, ledger_.blocks(), options_.limits.blocks);
  } else if (error.reason == Reason::kMemory || error.reason == Reason::kSizeTooLarge) {
    verdict = no(error.reason, bytes);
  }
  if (asked == audit::Type::kTripwire) return decline(asking, verdict, error.sys_errno);
  return refuse(asking, asked, verdict);
}

Answer Core::decline(const Asking& asking, const policy::Verdict& verdict, int sys_errno) {
  const wire::Refusal body = refusal_of(verdict, sys_errno);
  Answer result;
  result.frame = asking.request == 0 ? wire::encode_unnumbered(body)
                                     : wire::encode(asking.kind, wire::kReply | wire::kRefused,
                                                    asking.request, body);
  return result;
}

template <class Request>
Answer Core::reply(const Asking& asking, const typename wire::Protocol<Request>::Reply& body) {
  Answer result;
  result.frame = wire::encode(wire::Protocol<Request>::kKind, wire::kReply, asking.request, body);
  return result;
}

bool Core::recorded(std::span<audit::Record> records) {
  if (records.empty()) return true;
  const auto grants = [](const audit::Record& record) {
    return record.outcome == audit::Outcome::kAllow;
  };
  // A log that was altered before this run records on, but nothing is granted on its word.
  if (std::ranges::any_of(records, grants) && log_.state() != audit::Log::State::kOpen) {
    return false;
  }
  if (!log_.append(records)) return false;
  committer_.nudge();
  return true;
}

}  // namespace hufu::broker
