// Books, their slots, and the books again.

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "broker/ledger.h"
#include "broker/ledger_check.h"

namespace hufu::broker {
namespace {

UniqueFd dup_of(int fd) { return UniqueFd(::fcntl(fd, F_DUPFD_CLOEXEC, 0)); }

ino_t inode_of(const UniqueFd& fd) {
  struct stat status {};
  return ::fstat(fd.get(), &status) == 0 ? status.st_ino : 0;
}

// Keeps everything in memory, and every call, so that a history can be cut anywhere.
class MemoryKeeper : public Keeper {
 public:
  void store(std::uint32_t number, const SlotBytes& bytes) override {
    calls_.push_back({.what = Call::kStore, .number = number, .bytes = bytes});
  }
  void keep(std::uint32_t number, int fd) override {
    calls_.push_back({.what = Call::kKeep, .number = number, .fd = dup_of(fd)});
  }
  void drop(std::uint32_t number) override {
    calls_.push_back({.what = Call::kDrop, .number = number});
  }

  std::size_t calls() const { return calls_.size(); }
  // What a keeper has after the first `count` calls.
  std::vector<KeptSlot> after(std::size_t count) const {
    std::map<std::uint32_t, KeptSlot> kept;
    for (std::size_t i = 0; i < count; ++i) {
      const Call& call = calls_[i];
      switch (call.what) {
        case Call::kStore:
          kept[call.number].number = call.number;
          kept[call.number].bytes = call.bytes;
          break;
        case Call::kKeep:
          EXPECT_TRUE(kept.contains(call.number)) << "a descriptor of no slot";
          kept[call.number].fd = dup_of(call.fd.get());
          break;
        case Call::kDrop:
          EXPECT_EQ(kept.erase(call.number), 1U) << "dropped what is not kept";
          break;
      }
    }
    std::vector<KeptSlot> slots;
    for (auto& [number, slot] : kept)
      slots.push_back(std::move(slot));
    return slots;
  }
  std::vector<KeptSlot> now() const { return after(calls_.size()); }
  // Everything from here on happens to a keeper that has these already.
  void begin_with(const std::vector<KeptSlot>& slots) {
    for (const KeptSlot& slot : slots) {
      store(slot.number, slot.bytes);
      if (slot.fd) keep(slot.number, slot.fd.get());
    }
  }

 private:
  struct Call {
    enum What : std::uint8_t { kStore, kKeep, kDrop } what;
    std::uint32_t number = 0;
    SlotBytes bytes{};
    UniqueFd fd{};
  };
  std::vector<Call> calls_;
};

// Random histories of a ledger.
class History {
 public:
  History(Ledger& ledger, std::uint64_t seed, std::uint64_t first_id)
      : ledger_(ledger), random_(seed), next_(first_id) {}

  void step() {
    switch (random_() % 10) {
      case 0:
        if (ledger_.sessions() < 6) join();
        break;
      case 1:
      case 2:
        if (Session* session = any_session()) mint(*session);
        break;
      case 3:
      case 4:
        if (Block* block = any(ledger_.all_blocks())) {
          charge(*block);
          export_from(*block);
        }
        break;
      case 5:
        if (Share* share = any(ledger_.all_shares())) list(*share);
        break;
      case 6:
        if (Share* share = any(ledger_.all_shares()); share != nullptr && share->live) {
          if (Session* session = any_session()) ledger_.hold(*session, *share);
        }
        break;
      case 7:
        if (Share* share = any(ledger_.all_shares())) {
          if (random_() % 2 == 0) {
            ledger_.end_share(*share);
          } else if (!share->holders.empty()) {
            ledger_.let_go(*ledger_.session(*share->holders.begin()), *share, gone_);
          }
        }
        break;
      case 8:
        if (Block* block = any(ledger_.all_blocks()); block != nullptr && block->owner != 0) {
          ledger_.free_block(*ledger_.session(block->owner), *block, gone_);
        }
        break;
      case 9:
        if (random_() % 6 == 0) {
          if (Session* session = any_session()) ledger_.end_session(*session, gone_);
        }
        break;
    }
  }

 private:
  template <class Map>
  typename Map::mapped_type* any(const Map& from) {
    if (from.empty()) return nullptr;
    auto at = from.begin();
    std::advance(at, static_cast<std::ptrdiff_t>(random_() % from.size()));
    return const_cast<typename Map::mapped_type*>(&at->second);
  }
  Session* any_session() {
    Session* session = any(ledger_.all_sessions());
    return session != nullptr && session->greeted ? session : nullptr;
  }

  void join() {
    os::PeerIdentity who;
    who.connected = {.pid = static_cast<std::int32_t>(next_),
                     .uid = static_cast<std::uint32_t>(1000 + random_() % 3),
                     .gid = 100};
    who.pidfs_inode = 5000 + next_;
    SecretHash hash{};
    hash[0] = static_cast<std::uint8_t>(next_);
    Session& session = ledger_.open_session(next_++, std::move(who));
    ledger_.greet(session, std::move(*StatusBoard::make()), hash);
  }
  void mint(Session& owner) {
    Block block;
    block.id = next_++;
    block.size = 4096 * (1 + random_() % 8);
    block.device = static_cast<std::uint32_t>(random_() % 2);
    block.fd = UniqueFd(::memfd_create("block", MFD_CLOEXEC));
    block.sparse = random_() % 4 == 0;
    if (block.sparse) block.size = wire::kChargeUnit * (1 + random_() % 4);
    ledger_.add_block(owner, std::move(block));
  }
  void charge(Block& block) {
    if (!block.sparse || block.owner == 0) return;
    ledger_.charge(block, wire::kChargeUnit * (random_() % (block.size / wire::kChargeUnit + 1)));
  }
  void export_from(Block& block) {
    if (block.owner == 0) return;
    const Access access =
        block.sealed_for.value_or(random_() % 2 == 0 ? Access::kReadOnly : Access::kReadWrite);
    ledger_.seal_for(block, access);
    const std::uint64_t pages = block.size / 4096;
    const std::uint64_t first = random_() % pages;
    const std::uint64_t count = 1 + random_() % (pages - first);
    Session& owner = *ledger_.session(block.owner);
    Share share;
    share.id = next_++;
    share.exporter = {.session = owner.id,
                      .pid = owner.who.connected.pid,
                      .pidfs_inode = owner.who.pidfs_inode,
                      .uid = owner.uid(),
                      .gid = owner.who.connected.gid};
    share.range = {.offset = first * 4096, .size = count * 4096};
    share.asked_size = share.range.size - random_() % 4096;
    share.access = access;
    share.flags = access == Access::kReadOnly ? wire::kReadOnly : 0U;
    share.public_id[3] = static_cast<std::uint8_t>(share.id);
    if (random_() % 3 == 0) {
      share.flags |= wire::kHandle;
      share.token = next_++;
    }
    ledger_.add_share(owner, block, std::move(share));
  }
  void list(Share& share) {
    if (!share.live) return;
    std::vector<ListedProcess> more(1 + random_() % 3);
    for (ListedProcess& process : more)
      process = {.pid = static_cast<std::int32_t>(next_), .pidfs_inode = next_++, .pidfd = {}};
    ledger_.list(share, std::move(more));
  }

  Ledger& ledger_;
  std::mt19937_64 random_;
  std::uint64_t next_;
  std::vector<UniqueFd> gone_;
};

void expect_equal(const Block& before, const Block& after) {
  EXPECT_EQ(after.owner, before.owner);
  EXPECT_EQ(after.uid, before.uid);
  EXPECT_EQ(after.device, before.device);
  EXPECT_EQ(after.size, before.size);
  EXPECT_EQ(after.sparse, before.sparse);
  EXPECT_EQ(after.charged, before.charged);
  EXPECT_EQ(after.page, before.page);
  EXPECT_EQ(after.backing, before.backing);
  EXPECT_EQ(after.sealed_for, before.sealed_for);
  EXPECT_EQ(after.shares, before.shares);
  EXPECT_EQ(inode_of(after.fd), inode_of(before.fd));
}

void expect_equal(const Share& before, const Share& after) {
  EXPECT_EQ(after.block, before.block);
  EXPECT_EQ(after.range, before.range);
  EXPECT_EQ(after.asked_size, before.asked_size);
  EXPECT_EQ(after.flags, before.flags);
  EXPECT_EQ(after.access, before.access);
  EXPECT_EQ(after.public_id, before.public_id);
  EXPECT_EQ(after.live, before.live);
  EXPECT_EQ(after.token, before.token);
  EXPECT_EQ(after.exporter.uid, before.exporter.uid);
  if (!before.live) return;  // Of an ended one nobody asks who made it.
  EXPECT_EQ(after.exporter.session, before.exporter.session);
  EXPECT_EQ(after.exporter.pid, before.exporter.pid);
  EXPECT_EQ(after.exporter.pidfs_inode, before.exporter.pidfs_inode);
  EXPECT_EQ(after.exporter.gid, before.exporter.gid);
  const auto list_of = [](const Share& share) {
    std::set<std::pair<std::int32_t, std::uint64_t>> list;
    for (const ListedProcess& process : share.listed)
      list.emplace(process.pid, process.pidfs_inode);
    return list;
  };
  EXPECT_EQ(list_of(after), list_of(before));
}

std::size_t slots_of(const Ledger& ledger) {
  std::size_t listed = 0;
  for (const auto& [id, share] : ledger.all_shares())
    listed += share.listed.size();
  return ledger.sessions() + ledger.blocks() + ledger.shares() + ledger.all_tokens().size() +
         listed;
}

// Everything but what holders hold.
void expect_equal(const Ledger& before, const Ledger& after) {
  ASSERT_EQ(after.all_sessions().size(), before.all_sessions().size());
  for (const auto& [id, session] : before.all_sessions()) {
    const Session& again = after.all_sessions().at(id);
    EXPECT_EQ(again.secret_hash, session.secret_hash);
    EXPECT_EQ(again.who.connected.uid, session.who.connected.uid);
    EXPECT_EQ(again.who.pidfs_inode, session.who.pidfs_inode);
    EXPECT_EQ(again.blocks, session.blocks);
    EXPECT_EQ(again.exported, session.exported);
    EXPECT_EQ(again.bytes, session.bytes);
  }
  ASSERT_EQ(after.all_blocks().size(), before.all_blocks().size());
  for (const auto& [id, block] : before.all_blocks())
    expect_equal(block, after.all_blocks().at(id));
  ASSERT_EQ(after.all_shares().size(), before.all_shares().size());
  for (const auto& [id, share] : before.all_shares())
    expect_equal(share, after.all_shares().at(id));
  for (std::uint32_t device = 0; device < before.devices(); ++device)
    EXPECT_EQ(after.used(device), before.used(device));
}

// By a broker that finds these at its keeper.
Ledger rebuilt(std::vector<KeptSlot> kept, MemoryKeeper& keeper) {
  keeper.begin_with(kept);
  return Ledger::rebuild(2, std::move(kept), keeper);
}

// The processes come back and say what they hold.
void resume_all(const Ledger& before, Ledger& after) {
  for (const auto& [id, session] : before.all_sessions()) {
    Session& again = *after.session(id);
    after.greet(again, std::move(*StatusBoard::make()), session.secret_hash);
    for (const auto& [share, place] : session.held)
      ASSERT_NE(after.hold(again, *after.share(share)), nullptr);
  }
}

TEST(RebuiltBooks, AreTheBooks) {
  int listed = 0;
  int freed_but_held = 0;
  int ended_but_held = 0;
  std::size_t tokens = 0;
  std::uint64_t charged_by_use = 0;
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE(seed);
    MemoryKeeper keeper;
    Ledger ledger(2, &keeper);
    History history(ledger, seed, 1);
    for (int step = 0; step < 200; ++step)
      history.step();
    ASSERT_EQ(contradiction_in(ledger), "");
    ASSERT_EQ(keeper.now().size(), slots_of(ledger)) << "nothing is kept for ever";
    for (const auto& [id, share] : ledger.all_shares()) {
      listed += static_cast<int>(share.listed.size());
      ended_but_held += share.live ? 0 : 1;
    }
    for (const auto& [id, block] : ledger.all_blocks())
      freed_but_held += block.owner == 0 ? 1 : 0;
    tokens += ledger.all_tokens().size();
    for (const auto& [id, block] : ledger.all_blocks())
      charged_by_use += block.sparse ? block.charged : 0;

    MemoryKeeper next_keeper;
    Ledger again = rebuilt(keeper.now(), next_keeper);
    expect_equal(ledger, again);
    resume_all(ledger, again);
    std::vector<UniqueFd> gone;
    again.drop_unclaimed(gone);
    EXPECT_TRUE(gone.empty()) << "every block was claimed";
    ASSERT_EQ(contradiction_in(again), "");
    if (::testing::Test::HasFailure()) return;

    // Life goes on, and can be rebuilt once more.
    History more(again, seed, 1'000'000);
    for (int step = 0; step < 100; ++step)
      more.step();
    ASSERT_EQ(contradiction_in(again), "");
    MemoryKeeper last_keeper;
    expect_equal(again, rebuilt(next_keeper.now(), last_keeper));
    if (::testing::Test::HasFailure()) return;
  }
  // The histories were about something.
  EXPECT_GT(listed, 100);
  EXPECT_GT(freed_but_held, 20);
  EXPECT_GT(ended_but_held, 20);
  EXPECT_GT(tokens, 50U);
  EXPECT_GT(charged_by_use, 50 * wire::kChargeUnit);
}

// A broker may die between any two calls.
TEST(RebuiltBooks, AreSoundWhereverTheHistoryIsCut) {
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    MemoryKeeper keeper;
    Ledger ledger(2, &keeper);
    History history(ledger, seed, 1);
    for (int step = 0; step < 150; ++step)
      history.step();
    for (std::size_t cut = 0; cut <= keeper.calls(); ++cut) {
      MemoryKeeper next_keeper;
      Ledger again = rebuilt(keeper.after(cut), next_keeper);
      std::vector<UniqueFd> gone;
      again.drop_unclaimed(gone);
      ASSERT_EQ(contradiction_in(again), "") << "seed " << seed << " cut " << cut;
    }
  }
}

TEST(RebuiltBooks, AreSoundWhateverSlotsAreMissingOrDamaged) {
  std::mt19937_64 random(7);
  MemoryKeeper keeper;
  Ledger ledger(2, &keeper);
  History history(ledger, 7, 1);
  for (int step = 0; step < 200; ++step)
    history.step();
  for (int round = 0; round < 500; ++round) {
    std::vector<KeptSlot> kept = keeper.now();
    std::erase_if(kept, [&](const KeptSlot&) { return random() % 8 == 0; });
    for (KeptSlot& slot : kept) {
      if (random() % 8 == 0) slot.bytes[random() % kSlotBytes] ^= std::byte{0x40};
      if (random() % 8 == 0) slot.fd.reset();
    }
    MemoryKeeper next_keeper;
    Ledger again = rebuilt(std::move(kept), next_keeper);
    std::vector<UniqueFd> gone;
    again.drop_unclaimed(gone);
    ASSERT_EQ(contradiction_in(again), "") << round;
    // What could not be used is not kept for ever.
    ASSERT_EQ(next_keeper.now().size(), slots_of(again));
  }
}

TEST(RebuiltBooks, ABlockOfWhichNobodyClaimsAnythingGoes) {
  MemoryKeeper keeper;
  Ledger ledger(1, &keeper);
  os::PeerIdentity who;
  Session& owner = ledger.open_session(1, std::move(who));
  ledger.greet(owner, std::move(*StatusBoard::make()), {});
  Block block;
  block.id = 10;
  block.size = 4096;
  block.fd = UniqueFd(::memfd_create("block", MFD_CLOEXEC));
  Block& made = ledger.add_block(owner, std::move(block));
  ledger.seal_for(made, Access::kReadWrite);
  Share share;
  share.id = 100;
  share.exporter.session = 1;
  share.range = {.offset = 0, .size = 4096};
  share.asked_size = 4096;
  ledger.hold(owner, ledger.add_share(owner, made, std::move(share)));
  std::vector<UniqueFd> gone;
  ledger.free_block(owner, made, gone);
  ASSERT_TRUE(gone.empty());

  MemoryKeeper next_keeper;
  Ledger again = rebuilt(keeper.now(), next_keeper);
  EXPECT_EQ(again.used(0), 4096U);
  again.end_session(*again.session(1), gone);
  EXPECT_EQ(again.used(0), 4096U) << "who held it may still resume";
  again.drop_unclaimed(gone);
  EXPECT_EQ(again.used(0), 0U);
  EXPECT_EQ(gone.size(), 1U);
}

TEST(RebuiltBooks, OfTwoSlotsOfOneThingTheLaterCounts) {
  const SessionSlot early{.id = 1, .secret_hash = {1}, .uid = 5};
  const SessionSlot late{.id = 1, .secret_hash = {2}, .uid = 5};
  for (const bool swapped : {false, true}) {
    std::vector<KeptSlot> kept(2);
    kept[0] = {.number = 1, .bytes = encode({.generation = 4, .body = early}), .fd = {}};
    kept[1] = {.number = 2, .bytes = encode({.generation = 9, .body = late}), .fd = {}};
    if (swapped) std::swap(kept[0], kept[1]);
    MemoryKeeper keeper;
    Ledger ledger = rebuilt(std::move(kept), keeper);
    EXPECT_EQ(ledger.session(1)->secret_hash[0], 2U);
    EXPECT_EQ(keeper.now().size(), 1U);
    EXPECT_EQ(ledger.usage_of(5).connections, 1U);
  }
}

}  // namespace
}  // namespace hufu::broker
