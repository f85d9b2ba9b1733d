#include "broker/ledger.h"

#include <fcntl.h>

#include <memory>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "os/memfd.h"

namespace hufu::broker {
namespace {

class Books : public ::testing::Test {
 protected:
  Session& join(SessionId id) {
    os::PeerIdentity who;
    who.pidfs_inode = 1000 + id;
    Session& session = ledger.open_session(id, std::move(who));
    ledger.greet(session, std::move(*StatusBoard::make()), {});
    return session;
  }
  Block& mint(Session& owner, BlockId id, std::uint64_t size = 4096) {
    Block block;
    block.id = id;
    block.size = size;
    block.fd = UniqueFd(::open("/dev/null", O_RDONLY | O_CLOEXEC));
    return ledger.add_block(owner, std::move(block));
  }
  Share& export_all(Session& owner, Block& block, ShareId id) {
    Share share;
    share.id = id;
    share.exporter.session = owner.id;
    share.range = {.offset = 0, .size = block.size};
    return ledger.add_share(owner, block, std::move(share));
  }

  Ledger ledger{4};
  std::vector<UniqueFd> gone;
};

TEST_F(Books, AFreedBlockIsGoneAtOnceWhenNobodyHoldsIt) {
  Session& owner = join(1);
  Block& block = mint(owner, 10);
  EXPECT_EQ(ledger.used(0), 4096U);
  ledger.free_block(owner, block, gone);
  EXPECT_EQ(ledger.used(0), 0U);
  EXPECT_EQ(gone.size(), 1U);
  EXPECT_EQ(owner.bytes, 0U);
}

TEST_F(Books, WhoLetsGoWatchesNoLonger) {
  Session& owner = join(1);
  Session& importer = join(2);
  Share& share = export_all(owner, mint(owner, 10), 100);
  ledger.hold(importer, share);
  ledger.watch(importer, share);
  ledger.watch(owner, share);
  EXPECT_EQ(share.watchers, (std::set<SessionId>{1, 2}));
  ledger.let_go(importer, share, gone);
  EXPECT_EQ(share.watchers, std::set<SessionId>{1});
  EXPECT_TRUE(importer.watched.empty());
}

TEST_F(Books, NobodyWatchesAShareThatIsForgottenOrASessionThatIsOver) {
  Session& owner = join(1);
  Session& importer = join(2);
  Share& first = export_all(owner, mint(owner, 10), 100);
  Share& second = export_all(owner, mint(owner, 11), 101);
  ledger.watch(owner, first);
  ledger.end_share(first);
  EXPECT_TRUE(owner.watched.empty());
  ledger.hold(importer, second);
  ledger.watch(importer, second);
  ledger.watch(owner, second);
  ledger.end_session(owner, gone);
  ASSERT_NE(ledger.share(101), nullptr);
  EXPECT_EQ(ledger.share(101)->watchers, std::set<SessionId>{2});
  ledger.end_session(importer, gone);
  EXPECT_EQ(ledger.share(101), nullptr);
}

TEST_F(Books, AnImporterKeepsTheBlockAfterItsOwnerLetGo) {
  Session& owner = join(1);
  Session& importer = join(2);
  Share& share = export_all(owner, mint(owner, 10), 100);
  ledger.hold(importer, share);
  ledger.end_session(owner, gone);
  EXPECT_TRUE(gone.empty());
  EXPECT_EQ(ledger.used(0), 4096U);
  ASSERT_NE(ledger.share(100), nullptr);
  EXPECT_FALSE(ledger.share(100)->live);
  ledger.let_go(importer, *ledger.share(100), gone);
  EXPECT_EQ(gone.size(), 1U);
  EXPECT_EQ(ledger.used(0), 0U);
  EXPECT_EQ(ledger.share(100), nullptr);
}

TEST_F(Books, HoldingTwiceCountsOnce) {
  Session& owner = join(1);
  Session& importer = join(2);
  Share& share = export_all(owner, mint(owner, 10), 100);
  ledger.hold(importer, share);
  ledger.hold(importer, share);
  ledger.let_go(importer, share, gone);
  EXPECT_TRUE(share.holders.empty());
}

TEST_F(Books, AHoldersStatusWordEndsWithTheShare) {
  Session& owner = join(1);
  Session& importer = join(2);
  Share& share = export_all(owner, mint(owner, 10), 100);
  const auto* place = ledger.hold(importer, share);
  ASSERT_NE(place, nullptr);
  const auto reader = importer.board->reader();
  ASSERT_TRUE(reader);
  const auto view = os::PublishedView::map(reader->get(), wire::kStatusBytes);
  ASSERT_TRUE(view);
  const StatusBoard::Place before = *place;
  EXPECT_EQ(view->word(before.slot), before.live);
  ledger.end_share(share);
  EXPECT_NE(view->word(before.slot), before.live);
  ledger.let_go(importer, *ledger.share(100), gone);
  EXPECT_EQ(view->word(before.slot), 0U);

  // The word is used again, and never says what it said before.
  Share& next = export_all(owner, *ledger.block(10), 101);
  const auto* again = ledger.hold(importer, next);
  EXPECT_EQ(again->slot, before.slot);
  EXPECT_NE(again->live, before.live);
}

TEST_F(Books, AWithdrawnShareNobodyHoldsIsForgotten) {
  Session& owner = join(1);
  Block& block = mint(owner, 10);
  ledger.end_share(export_all(owner, block, 100));
  EXPECT_EQ(ledger.share(100), nullptr);
  EXPECT_TRUE(owner.exported.empty());
  EXPECT_NE(ledger.block(10), nullptr);
}

TEST_F(Books, ATwinIsTheSameProcessAgain) {
  Session& first = join(1);
  os::PeerIdentity same;
  same.pidfs_inode = first.who.pidfs_inode;
  EXPECT_EQ(ledger.twin_of(ledger.open_session(2, std::move(same))), SessionId{1});
  EXPECT_FALSE(ledger.twin_of(join(3)).has_value());
}

// Random histories, checked against sums computed from scratch after every step.
TEST_F(Books, RandomHistoriesKeepTheSumsRight) {
  std::mt19937_64 random(20261130);
  std::vector<SessionId> sessions;
  std::vector<BlockId> blocks;
  std::vector<ShareId> shares;
  std::uint64_t next = 1;
  const auto any = [&](const auto& from) { return from[random() % from.size()]; };
  for (int step = 0; step < 5'000; ++step) {
    switch (random() % 7) {
      case 0:
        if (sessions.size() < 8) {
          join(next);
          sessions.push_back(next++);
        }
        break;
      case 1:
      case 2:
        if (!sessions.empty()) {
          mint(*ledger.session(any(sessions)), next, 4096 * (1 + random() % 8));
          blocks.push_back(next++);
        }
        break;
      case 3:
        if (!blocks.empty()) {
          Block* block = ledger.block(any(blocks));
          if (block != nullptr && block->owner != 0) {
            export_all(*ledger.session(block->owner), *block, next);
            shares.push_back(next++);
          }
        }
        break;
      case 4:
        if (!shares.empty() && !sessions.empty()) {
          Share* share = ledger.share(any(shares));
          Session& session = *ledger.session(any(sessions));
          if (share != nullptr && share->live) ledger.hold(session, *share);
        }
        break;
      case 5:
        if (!shares.empty() && !sessions.empty()) {
          Share* share = ledger.share(any(shares));
          if (share != nullptr) ledger.let_go(*ledger.session(any(sessions)), *share, gone);
        }
        break;
      case 6:
        if (random() % 4 == 0 && !sessions.empty()) {
          const std::size_t i = random() % sessions.size();
          ledger.end_session(*ledger.session(sessions[i]), gone);
          sessions.erase(sessions.begin() + static_cast<std::ptrdiff_t>(i));
        } else if (!blocks.empty()) {
          Block* block = ledger.block(any(blocks));
          if (block != nullptr && block->owner != 0) {
            ledger.free_block(*ledger.session(block->owner), *block, gone);
          }
        }
        break;
    }
    std::uint64_t sum = 0;
    for (const BlockId id : blocks) {
      if (const Block* block = ledger.block(id)) {
        sum += block->size;
        ASSERT_TRUE(block->owner != 0 || block->held > 0);
      }
    }
    ASSERT_EQ(ledger.used(0), sum) << "step " << step;
  }
  while (!sessions.empty()) {
    ledger.end_session(*ledger.session(sessions.back()), gone);
    sessions.pop_back();
  }
  EXPECT_EQ(ledger.used(0), 0U);
  EXPECT_EQ(ledger.blocks(), 0U);
  EXPECT_EQ(ledger.shares(), 0U);
}

}  // namespace
}  // namespace hufu::broker
