// Blocks: memory is made when it fits, given back at once, and waited for in between (D11).

#include <fcntl.h>

#include <algorithm>
#include <utility>

#include "broker/core_parts.h"
#include "os/memfd.h"

namespace hufu::broker {
namespace {

// How long a MINT or CHARGE that does not fit waits for what others give back (D11), and how many
// may.
constexpr std::uint64_t kReturnWaitNs = 20'000'000;
constexpr std::size_t kMostWaiting = 64;

// What a sparse block's owner says it uses, or what its file has if that is more: an importer's
// stray pointer may have brought pages back that its owner had given up.
std::uint64_t charge_due(const Block& block, std::uint64_t said) {
  const auto file = os::facts_of(block.fd.get());
  const std::uint64_t committed = file ? std::min(file->committed, block.size) : 0;
  return std::max(said, (committed + wire::kChargeUnit - 1) & ~(wire::kChargeUnit - 1));
}

}  // namespace

Answer Core::answer(Asking& asking, const wire::Mint& mint) {
  if (mint.device >= options_.devices) {
    return decline(asking, no(Reason::kNoDevice, mint.device, options_.devices));
  }
  for (std::uint32_t i = 0; i < mint.count; ++i) {
    const wire::MintSpec& spec = mint.specs[i];
    const bool sparse = (spec.flags & wire::kSparse) != 0;
    // One that could never be used up is a mistake, and costs the importers address space.
    if (sparse && spec.size > options_.device_capacity) {
      return decline(asking, no(Reason::kSizeTooLarge, spec.size, options_.device_capacity));
    }
  }
  return when_it_fits(asking, mint);
}

Answer Core::answer(Asking& asking, const wire::Charge& charge) {
  const Block* block = ledger_.block(charge.block);
  if (block == nullptr || block->owner != asking.session.id) {
    return decline(asking, no(Reason::kUnknownBlock, charge.block));
  }
  const std::uint64_t most = block->sparse ? block->size : 0;
  if (!block->sparse || charge.bytes > most) {
    return decline(asking, no(Reason::kBadCharge, charge.bytes, most));
  }
  return when_it_fits(asking, charge);
}

template <class R>
Answer Core::when_it_fits(Asking& asking, const R& request) {
  const policy::Verdict quota = quota_for(asking.session, request);
  if (!quota.allowed()) return decline(asking, quota);
  const Room room = room_for(request);
  if (room.enough()) return carry_out(asking, request);
  const bool may_wait = room.asked <= options_.device_capacity && waiting_.size() < kMostWaiting;
  if (!may_wait || !ask_for_memory(asking.session.id)) return decline_for_room(asking, room);
  waiting_.push_back({.session = asking.session.id,
                      .request = asking.request,
                      .digest = 0,
                      .wanted = request,
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

Core::Room Core::room_on(std::uint32_t device, std::uint64_t asked) const {
  // Books that were rebuilt may hold more than a capacity that was lowered meanwhile.
  const std::uint64_t free =
      options_.device_capacity - std::min(options_.device_capacity, ledger_.used(device));
  return {.asked = asked, .free = free, .device = device};
}

Core::Room Core::room_for(const wire::Mint& mint) {
  std::uint64_t asked = 0;
  for (std::uint32_t i = 0; i < mint.count; ++i) {
    const bool sparse = (mint.specs[i].flags & wire::kSparse) != 0;
    if (sparse) continue;
    if (__builtin_add_overflow(asked, mint.specs[i].size, &asked)) asked = ~std::uint64_t{0};
  }
  return room_on(mint.device, asked);
}

Core::Room Core::room_for(const wire::Charge& charge) {
  const Block& block = *ledger_.block(charge.block);
  // Whoever wants no more than he is charged for is not refused, whatever the file has.
  const bool grows = charge.bytes > block.charged;
  return room_on(block.device, grows ? charge_due(block, charge.bytes) - block.charged : 0);
}

Answer Core::decline_for_room(const Asking& asking, const Room& room) const {
  return decline(
      asking, no(Reason::kCapacity, room.asked, room.free, options_.device_capacity, room.device));
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
    const Room room =
        std::visit([&](const auto& wanted) { return room_for(wanted); }, waiting.wanted);
    if (!room.enough() && now < waiting.due_ns) {
      still.push_back(waiting);
      continue;
    }
    Session& session = *ledger_.session(waiting.session);
    Answer result = std::visit(
        [&]<class R>(const R& wanted) {
          Asking asking{.session = session,
                        .request = waiting.request,
                        .one_way = false,
                        .kind = wire::Protocol<R>::kKind};
          // Others may have minted while it waited.
          const policy::Verdict quota = quota_for(session, wanted);
          if (!quota.allowed()) return decline(asking, quota);
          return room.enough() ? carry_out(asking, wanted) : decline_for_room(asking, room);
        },
        waiting.wanted);
    session.answered = {.id = waiting.request, .digest = waiting.digest, .frame = result.frame};
    ready.emplace_back(waiting.session, std::move(result));
  }
  waiting_ = std::move(still);
  return ready;
}

std::optional<std::chrono::nanoseconds> Core::next_due_in() const {
  // Of those who wait and those who are silent the oldest is the first: all have equally long.
  std::uint64_t due = ~std::uint64_t{0};
  if (!waiting_.empty()) due = waiting_.front().due_ns;
  if (!silent_.empty()) due = std::min(due, silent_.front().due_ns);
  for (const Doubt& doubt : doubts_)
    due = std::min(due, doubt.due_ns);
  if (due == ~std::uint64_t{0}) return std::nullopt;
  const std::uint64_t now = now_ns();
  return std::chrono::nanoseconds(due > now ? due - now : 0);
}

Answer Core::carry_out(Asking& asking, const wire::Charge& charge) {
  Block& block = *ledger_.block(charge.block);
  ledger_.charge(block, charge_due(block, charge.bytes));
  return reply<wire::Charge>(asking, {.charged = block.charged});
}

Answer Core::carry_out(Asking& asking, const wire::Mint& mint) {
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
    block.sparse = (spec.flags & wire::kSparse) != 0;
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

}  // namespace hufu::broker
