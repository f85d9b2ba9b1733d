// Sessions: one process on one connection, from HELLO to the first of its ends; and the second
// connection on which it hears events.

#include <algorithm>
#include <cstring>
#include <utility>

#include "broker/core_parts.h"

#include <sodium.h>

namespace hufu::broker {
namespace {

// What is kept of a session's secret, here and by a keeper. Comparing hashes tells nobody, by the
// time it takes, how much of a guess was right.
SecretHash hash_of(const std::array<std::uint8_t, 16>& secret) {
  SecretHash hash{};
  ::crypto_generichash(hash.data(), hash.size(), secret.data(), secret.size(), nullptr, 0);
  return hash;
}

}  // namespace

std::optional<wire::Frame> Core::open(SessionId id, os::PeerIdentity who) {
  const std::uint64_t open = ledger_.usage_of(who.connected.uid).connections;
  const std::uint64_t limit = options_.limits.connections_per_uid();
  if (open >= limit) {
    return wire::encode_unnumbered(refusal_of(no(Reason::kTooManySessions, open, limit)));
  }
  // A client speaks as soon as it is connected, most often before it is accepted.
  const std::uint32_t uid = who.connected.uid;
  const auto silent = static_cast<std::uint64_t>(
      std::ranges::count_if(silent_, [uid](const Silent& one) { return one.uid == uid; }));
  if (silent >= options_.limits.silent_per_uid) {
    return wire::encode_unnumbered(
        refusal_of(no(Reason::kTooManySessions, silent, options_.limits.silent_per_uid)));
  }
  silent_.push_back({.session = id,
                     .uid = uid,
                     .due_ns = now_ns() + static_cast<std::uint64_t>(options_.silence.count())});
  ledger_.open_session(id, std::move(who));
  return std::nullopt;
}

void Core::heard(SessionId id) {
  std::erase_if(silent_, [id](const Silent& one) { return one.session == id; });
}

void Core::keep_time() {
  if (silent_.empty() && doubts_.empty()) return;
  const std::uint64_t now = now_ns();
  while (!silent_.empty() && silent_.front().due_ns <= now) {
    superseded_.push_back(silent_.front().session);
    silent_.pop_front();
  }
  std::erase_if(doubts_, [&](Doubt& doubt) { return doubt.due_ns <= now && ask_again(doubt); });
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
  heard(asking.session.id);
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
  heard(asking.session.id);
  owner->agent = asking.session.id;
  agents_.emplace(asking.session.id, owner->id);
  return reply<wire::Attach>(asking, {});
}

Answer Core::answer(Asking& /*asking*/, const wire::Bye& /*bye*/) { return {.hang_up = true}; }

void Core::end(SessionId id) {
  Session* session = ledger_.session(id);
  if (session == nullptr) return;
  if (const auto agent = agents_.find(id); agent != agents_.end()) {
    if (Session* owner = ledger_.session(agent->second)) owner->agent = 0;
    agents_.erase(agent);
  }
  heard(id);
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

std::vector<SessionId> Core::take_superseded() { return std::exchange(superseded_, {}); }

}  // namespace hufu::broker
