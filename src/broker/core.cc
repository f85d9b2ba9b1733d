#include "broker/core.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "broker/core_parts.h"
#include "os/memfd.h"

#include <sodium.h>

namespace hufu::broker {
namespace {

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
  const auto probe = os::HolderProbe::open(file->get(), Access::kReadWrite);
  if (!probe) return false;
  const auto alone = probe->held();
  const auto reader = os::reopen(file->get(), Access::kReadOnly);
  const auto watched = probe->held();
  return alone && !*alone && reader && watched && *watched;
}

audit::Type type_asked(wire::Kind kind) {
  switch (kind) {
    case wire::Kind::kExport:
    case wire::Kind::kExportBatch:
    case wire::Kind::kExportHandle:
      return audit::Type::kExport;
    case wire::Kind::kImport:
    case wire::Kind::kImportBatch:
      return audit::Type::kImport;
    case wire::Kind::kListPid:
    case wire::Kind::kListProcess:
      return audit::Type::kListAdd;
    case wire::Kind::kWithdraw:
    case wire::Kind::kEndAll:
    case wire::Kind::kEndRange:
      return audit::Type::kWithdraw;
    case wire::Kind::kClose:
    case wire::Kind::kCloseBatch:
      return audit::Type::kCloseClaimed;
    case wire::Kind::kFree:
      return audit::Type::kFreeClaimed;
    case wire::Kind::kHello:
    case wire::Kind::kAttach:
    case wire::Kind::kMint:
    case wire::Kind::kCharge:
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

Result<UniqueFd> dup_of(const UniqueFd& fd) {
  UniqueFd copy(::fcntl(fd.get(), F_DUPFD_CLOEXEC, 0));
  if (copy) return copy;
  Error error = fail_errno("F_DUPFD_CLOEXEC", errno);
  error.reason = Reason::kDescriptors;
  return error;
}

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
