// What is asked and told without changing anything: the books' rows, what a client has to report,
// and events for those who watch a share.

#include <bit>
#include <cstring>
#include <utility>

#include "broker/core_parts.h"

namespace hufu::broker {

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

Answer Core::answer(Asking& asking, const wire::Report& report) {
  const auto reason = static_cast<Reason>(report.reason);
  audit::Record record =
      record_of(audit::Type::kDeny, audit::Outcome::kDeny, asking.session, asking.request);
  record.size = report.size;
  record.flags = kRecordClientClaim;
  const audit::Type asked =
      reason == Reason::kUnregistered ? audit::Type::kIllegalAddress : audit::Type::kExport;
  // Imported memory is exported by nobody but its owner: whose it is, and by which key it came,
  // belongs into the record of who tried.
  if (const Share* share = ledger_.share(report.address); reason == Reason::kImportedMemory &&
                                                          share != nullptr &&
                                                          asking.session.held.contains(share->id)) {
    describe(record, *share, *ledger_.block(share->block));
  }
  Answer result = refuse(asking, asked, no(reason, report.address), record);
  result.frame = reply<wire::Report>(asking, {}).frame;
  return result;
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

}  // namespace hufu::broker
