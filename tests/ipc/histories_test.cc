// Random histories of two processes that allocate, map, export, import, close and free, against a
// model of what each call must say; and a scanner for what must never be seen (P7, P8).
//
// Memory is of aclrtMalloc, shared by key, or made and mapped by the program, shared by handle.
// What is unmapped may leave its addresses, at which new memory is mapped later.
//
// Every owner fills each of its allocations with a tag of its own: process and number, in every 8
// bytes. Whoever imports a range looks at all of it: the owner's tag as far as the block was
// reported, zeros behind it to the page's end and in the guard page, nothing readable behind that.
// An owner looks at its own memory before it frees it.
//
//   HUFU_HISTORY_STEPS=n   how long a history is (default 10,000; a soak takes 100,000)

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "acl_peer.h"
#include "base/units.h"
#include "support/wire_session.h"

namespace hufu::test {
namespace {

constexpr std::uint64_t kGuard = 4 * kKiB;
constexpr std::size_t kMostAllocations = 60;
constexpr std::size_t kMostShares = 100;
constexpr std::size_t kMostKept = 5;
constexpr std::uint64_t kUnit = 2 * kMiB;  // Of physical memory.

int steps() {
  const char* text = std::getenv("HUFU_HISTORY_STEPS");
  return text == nullptr ? rounds(10'000) : std::atoi(text);
}

struct Allocation {
  std::uint64_t base = 0;
  std::uint64_t reported = 0;
  std::uint64_t file = 0;  // Bytes of the memory file: pages for what was asked.
  std::uint64_t page = 0;
  std::uint64_t tag = 0;
  bool piece = false;
  std::uint64_t handle = 0;  // Of memory that the program made and mapped.
  bool handed_out = false;   // It has had its handle: there is only one.

  // What belongs to it: a block's last page does to its end, and padding beyond that.
  std::uint64_t extent() const { return piece ? reported : std::max(reported, file); }
};

struct Share {
  std::size_t owner = 0;
  std::string key;  // Or a shareable handle's token.
  bool by_token = false;
  std::uint64_t block_base = 0;  // Of the allocation, while it lives.
  std::uint64_t tag = 0;
  std::uint64_t tagged = 0;  // Bytes of the range that the owner wrote.
  std::uint64_t mapped = 0;
  bool live = true;
  std::size_t opens = 0;     // By the other process.
  std::uint64_t handle = 0;  // There, of a token.
  std::uint64_t at = 0;      // There.
};

std::uint64_t round_up_to(std::uint64_t n, std::uint64_t unit) {
  return (n + unit - 1) / unit * unit;
}

class Histories : public testing::Test {
 protected:
  void run(std::uint32_t seed) {
    random_.seed(seed);
    for (step_ = 0; step_ < steps() && !HasFailure(); ++step_) {
      const std::size_t who = pick(2);
      switch (pick(10)) {
        case 0:
        case 1:
          pick(8) == 0 ? map_one(who) : allocate(who);
          break;
        case 2:
          free_one(who);
          break;
        case 3:
        case 4:
          export_one(who);
          break;
        case 5:
        case 6:
          import_one();
          break;
        case 7:
          close_one();
          break;
        case 8:
          withdraw_one();
          break;
        default:
          ask_about_an_address(who);
          break;
      }
    }
    if (!HasFailure()) end_everything();
  }

  std::uint64_t pick(std::uint64_t n) { return random_() % n; }

  // Most are small, some are of many pages, a few are large, and very few very large.
  std::uint64_t some_size() {
    if (pick(20'000) == 0) return 1 + pick(kGiB);
    const std::uint64_t kind = pick(1000);
    if (kind == 0) return 1 + pick(64 * kMiB);
    if (kind < 10) return 1 + pick(4 * kMiB);
    if (kind < 600) return 1 + pick(64 * kKiB);
    return 1 + pick(std::uint64_t{1} << (1 + pick(12)));
  }

  void allocate(std::size_t who) {
    if (allocations_[who].size() >= kMostAllocations) return free_one(who);
    const std::uint64_t size = some_size();
    const auto policy = pick(20) == 0 ? ACL_MEM_MALLOC_HUGE_FIRST : ACL_MEM_MALLOC_NORMAL_ONLY;
    Allocation made;
    const auto got = peers_[who].run(fmt::format("malloc {} {}", size, static_cast<int>(policy)));
    // A machine may not have room for the largest; for what is usual it has.
    if (size > 64 * kMiB && got.code == ACL_ERROR_RT_MEMORY_ALLOCATION) return;
    ASSERT_TRUE(got.ok()) << got.text;
    made.base = got.value();
    const auto range = peers_[who].must(fmt::format("range {}", made.base));
    ASSERT_EQ(range.value(0), made.base);
    made.reported = range.value(1);
    ASSERT_GE(made.reported, size);
    made.page = peers_[who].must(fmt::format("attributes {}", made.base)).value(2);
    made.file = round_up_to(size, made.page);
    made.piece = made.reported < 4 * kKiB && made.page == 4 * kKiB;
    ASSERT_EQ(made.base % 4096 == 0, !made.piece) << "the documents' test for what can be exported";
    made.tag = (who + 1) << 56U | ++tags_ << 8U | 0x5aU;
    const auto next = allocations_[who].lower_bound(made.base);
    ASSERT_TRUE(next == allocations_[who].end() || made.base + made.extent() <= next->first);
    ASSERT_TRUE(next == allocations_[who].begin() ||
                std::prev(next)->first + std::prev(next)->second.extent() <= made.base);
    peers_[who].must(fmt::format("tag {} {} {}", made.base, made.reported, made.tag));
    allocations_[who].emplace(made.base, made);
    ++done_["allocated"];
  }

  void map_one(std::size_t who) {
    if (allocations_[who].size() >= kMostAllocations) return free_one(who);
    Allocation made{.page = kUnit};
    auto& kept = kept_[who];
    if (!kept.empty() && pick(2) == 0) {
      made.base = kept.back().base;
      made.file = kept.back().size;
      kept.pop_back();
      ++done_["mapped again"];
    } else {
      made.file = kUnit * (1 + pick(3));
      made.base = peers_[who].must(fmt::format("vmm-reserve {}", made.file)).value();
      ++done_["mapped"];
    }
    made.handle = peers_[who].must(fmt::format("vmm-malloc {}", made.file)).value();
    peers_[who].must(fmt::format("vmm-map {} {} {}", made.base, made.file, made.handle));
    made.reported = made.file;
    ASSERT_EQ(made.base % kUnit, 0U);
    made.tag = (who + 1) << 56U | ++tags_ << 8U | 0x5aU;
    peers_[who].must(fmt::format("tag {} {} {}", made.base, made.reported, made.tag));
    allocations_[who].emplace(made.base, made);
  }

  Allocation* some_allocation(std::size_t who) {
    if (allocations_[who].empty()) return nullptr;
    return &std::next(allocations_[who].begin(),
                      static_cast<std::ptrdiff_t>(pick(allocations_[who].size())))
                ->second;
  }

  void free_one(std::size_t who) {
    const Allocation* found = some_allocation(who);
    if (found == nullptr) return;
    const Allocation ending = *found;
    expect_nothing_foreign(who, ending.base, ending.reported, 0, ending.tag);
    if (ending.handle == 0) {
      peers_[who].free(ending.base);
    } else {
      const bool keep = kept_[who].size() < kMostKept && pick(2) == 0;
      unmap(who, ending.base, ending.handle, keep);
      if (keep) kept_[who].push_back({.base = ending.base, .size = ending.file});
    }
    allocations_[who].erase(ending.base);
    for (Share& share : shares_) {
      if (share.owner == who && share.block_base == ending.base) {
        share.live = false;
        share.block_base = 0;
      }
    }
    EXPECT_FALSE(peers_[who].run(fmt::format("range {}", ending.base)).ok());
    EXPECT_FALSE(peers_[who].run(fmt::format("free {}", ending.base)).ok());
    ++done_["freed"];
  }

  void export_one(std::size_t who) {
    Allocation* from = some_allocation(who);
    if (from == nullptr || shares_.size() >= kMostShares) return;
    if (from->handle != 0 && pick(2) == 0) return hand_out(who, *from);
    // Mostly what may be exported: whole, or from one of its pages.
    const std::uint64_t pages = from->file / from->page;
    std::uint64_t offset = pick(2) == 0 ? 0 : pick(pages) * from->page;
    if (pick(10) == 0) offset += 1 + pick(from->page - 1);
    if (offset >= from->reported) return;
    const std::uint64_t room = from->extent() - offset;
    const std::uint64_t size = pick(10) == 0 ? room + 1 : pick(3) == 0 ? room : 1 + pick(room);
    const auto answer = peers_[who].export_key(from->base + offset, size, 1);
    // The one rule: from a page of a block's file, and no more than there is.
    const bool may =
        !from->piece && offset % from->page == 0 && size <= room && offset < from->file;
    ASSERT_EQ(answer.ok(), may) << answer.text << "; offset " << offset << " size " << size
                                << " of " << from->reported << " in pages of " << from->page;
    ++done_[may ? "exported" : "refused to export"];
    if (!may) return;
    Share share;
    share.owner = who;
    share.key = answer.words.at(0);
    share.block_base = from->base;
    share.tag = from->tag;
    share.mapped = std::min(round_up_to(size, from->page), from->file - offset);
    share.tagged = std::min(share.mapped, from->reported - offset);
    shares_.push_back(share);
  }

  // The two orders that there are.
  void unmap(std::size_t who, std::uint64_t base, std::uint64_t handle, bool keep_addresses) {
    const bool handle_first = pick(2) == 0;
    if (handle_first) peers_[who].must(fmt::format("vmm-free {}", handle));
    peers_[who].must(fmt::format("vmm-unmap {}", base));
    if (!handle_first) peers_[who].must(fmt::format("vmm-free {}", handle));
    if (!keep_addresses) peers_[who].must(fmt::format("vmm-release {}", base));
  }

  // A handle stands for all of its memory, and has one token.
  void hand_out(std::size_t who, Allocation& from) {
    const auto answer = peers_[who].run(fmt::format("vmm-export {} {}", from.handle,
                                                    ACL_RT_VMM_EXPORT_FLAG_DISABLE_PID_VALIDATION));
    ASSERT_EQ(answer.ok(), !from.handed_out) << answer.text;
    ++done_[answer.ok() ? "handed out" : "refused to hand out"];
    if (!answer.ok()) return;
    from.handed_out = true;
    shares_.push_back({.owner = who,
                       .key = answer.words.at(0),
                       .by_token = true,
                       .block_base = from.base,
                       .tag = from.tag,
                       .tagged = from.file,
                       .mapped = from.file});
  }

  // Answers with the address.
  AclPeer::Answer import(std::size_t importer, Share& share) {
    AclPeer& peer = peers_[importer];
    if (!share.by_token) return peer.import(share.key);
    auto answer = peer.run(fmt::format("vmm-import {} 0", share.key));
    if (!answer.ok()) return answer;
    share.handle = answer.value();
    answer = peer.must(fmt::format("vmm-reserve {}", share.mapped));
    peer.must(fmt::format("vmm-map {} {} {}", answer.value(), share.mapped, share.handle));
    return answer;
  }

  void close(std::size_t importer, const Share& share) {
    if (share.by_token) return unmap(importer, share.at, share.handle, /*keep_addresses=*/false);
    ASSERT_TRUE(peers_[importer].close(share.key).ok());
  }

  // Of the range that was imported, and what the importer must find behind it: a mapping has
  // nothing of its own there.
  static std::uint64_t zeros_behind(const Share& share) {
    return share.by_token ? 0 : share.mapped - share.tagged + kGuard;
  }

  Share* some_share() { return shares_.empty() ? nullptr : &shares_[pick(shares_.size())]; }

  void import_one() {
    Share* share = some_share();
    if (share == nullptr) return;
    const std::size_t importer = 1 - share->owner;
    if (share->by_token && share->opens != 0)
      return;  // A second import is left open by the contract.
    const auto answer = import(importer, *share);
    ASSERT_EQ(answer.ok(), share->live) << answer.text;
    ++done_[share->live ? "imported" : "refused to import"];
    if (!share->live) return;
    const std::uint64_t at = answer.value();
    if (share->opens++ != 0) {
      ASSERT_EQ(at, share->at);
    }
    share->at = at;
    // What another import or allocation wrote there would be seen by the scan below.
    expect_nothing_foreign(importer, at, share->tagged, zeros_behind(*share), share->tag);
    if (!share->by_token) {
      EXPECT_EQ(
          peers_[importer].must(fmt::format("can-read {}", at + share->mapped + kGuard)).words,
          Words{"no"});
    }
    EXPECT_FALSE(peers_[importer].export_key(at, 1, 1).ok()) << "an import was exported";
    EXPECT_FALSE(peers_[importer].run(fmt::format("free {}", at)).ok()) << "an import was freed";
  }

  void close_one() {
    Share* share = some_share();
    if (share == nullptr || share->opens == 0) return;
    const std::size_t importer = 1 - share->owner;
    // Also after its exporter has freed it and used the memory for something else.
    expect_nothing_foreign(importer, share->at, share->tagged, zeros_behind(*share), share->tag);
    close(importer, *share);
    if (--share->opens == 0) {
      EXPECT_FALSE(peers_[importer].run(fmt::format("range {}", share->at)).ok());
    }
    ++done_["closed"];
    forget_if_over(share);
  }

  void withdraw_one() {
    Share* share = some_share();
    if (share == nullptr) return;
    if (share->live && !share->by_token && pick(3) == 0) {
      ASSERT_TRUE(peers_[share->owner].close(share->key).ok());
      share->live = false;
      ++done_["withdrawn"];
    }
    forget_if_over(share);
  }

  void forget_if_over(Share* share) {
    if (share->live || share->opens != 0) return;
    EXPECT_FALSE(import(1 - share->owner, *share).ok());
    *share = shares_.back();
    shares_.pop_back();
  }

  // Anywhere in or near what there is.
  void ask_about_an_address(std::size_t who) {
    const Allocation* near = some_allocation(who);
    if (near == nullptr) return;
    const std::uint64_t address = near->base - 64 + pick(near->reported + 128);
    const auto next = allocations_[who].upper_bound(address);
    const Allocation* there =
        next == allocations_[who].begin() ? nullptr : &std::prev(next)->second;
    if (there != nullptr && address >= there->base + there->extent()) there = nullptr;
    const auto answer = peers_[who].run(fmt::format("range {}", address));
    if (there == nullptr) {
      // Then it may still lie in an import.
      const bool imported = std::any_of(shares_.begin(), shares_.end(), [&](const Share& share) {
        return share.owner != who && share.opens != 0 && share.at <= address &&
               address < share.at + share.mapped + 32;
      });
      ASSERT_TRUE(imported || !answer.ok()) << answer.text;
    } else {
      ASSERT_TRUE(answer.ok()) << answer.text;
      ASSERT_EQ(answer.value(0), there->base);
      ASSERT_EQ(answer.value(1), there->reported);
    }
    ++done_["asked"];
  }

  void expect_nothing_foreign(std::size_t who, std::uint64_t at, std::uint64_t tagged,
                              std::uint64_t zeros, std::uint64_t tag) {
    const auto seen = peers_[who].must(fmt::format("foreign {} {} {} {}", at, tagged, zeros, tag));
    ASSERT_EQ(seen.value(), 0U) << "step " << step_ << ": foreign bytes in [" << at << ", +"
                                << tagged << " +" << zeros << ")";
    scanned_ += tagged + zeros;
  }

  void end_everything() {
    while (!shares_.empty()) {
      Share& share = shares_.back();
      for (; share.opens != 0; --share.opens)
        close(1 - share.owner, share);
      shares_.pop_back();
    }
    for (const std::size_t who : {0U, 1U}) {
      while (!allocations_[who].empty())
        free_one(who);
    }
    peers_.clear();  // With what they held in reserve.
    WireSession observer(broker.socket());
    const auto deadline = std::chrono::steady_clock::now() + kDeadline;
    while (observer.stat().used != 0 && std::chrono::steady_clock::now() < deadline) {
    }
    EXPECT_EQ(observer.stat().used, 0U);
    // Not vacuous.
    for (const char* what : {"allocated", "freed", "exported", "refused to export", "imported",
                             "refused to import", "closed", "withdrawn", "asked"}) {
      EXPECT_GT(done_[what], steps() / 200) << what;
    }
    for (const char* what : {"mapped", "mapped again", "handed out", "refused to hand out"}) {
      EXPECT_GT(done_[what], steps() / 2000) << what;
    }
    EXPECT_GT(scanned_, static_cast<std::uint64_t>(steps()) * 1000);
  }

  static std::vector<AclPeer> two_peers(const TestBroker& broker) {
    std::vector<AclPeer> peers;
    peers.push_back(AclPeer::ready(broker));
    peers.push_back(AclPeer::ready(broker));
    return peers;
  }

  TestBroker broker{{.capacity = "3G", .devices = 1}};
  std::vector<AclPeer> peers_ = two_peers(broker);
  std::mt19937_64 random_;
  std::array<std::map<std::uint64_t, Allocation>, 2> allocations_;  // By base.
  std::vector<Share> shares_;
  // Addresses that were kept when what was mapped there went.
  struct Kept {
    std::uint64_t base;
    std::uint64_t size;
  };
  std::array<std::vector<Kept>, 2> kept_;
  std::map<std::string, int> done_;
  std::uint64_t tags_ = 0;
  std::uint64_t scanned_ = 0;
  int step_ = 0;
};

TEST_F(Histories, OfTwoProcessesAgreeWithAModelAndShowNoForeignByte) { run(20261130); }

}  // namespace
}  // namespace hufu::test
