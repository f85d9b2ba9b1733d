#include "memory/heap.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <future>
#include <map>
#include <random>
#include <string_view>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

namespace hufu::memory {
namespace {

constexpr std::uint64_t kPage = 4096;
constexpr std::uint32_t kHugeFirst = 0;
constexpr std::uint32_t kHugeOnly = 1;
constexpr std::uint32_t kNormalOnly = 2;

std::uintptr_t address_of(const void* pointer) { return reinterpret_cast<std::uintptr_t>(pointer); }

bool mentions(const Error& error, std::string_view word) {
  return error.what().find(word) != std::string_view::npos;
}

Plan plan(std::uint64_t size, std::uint32_t policy, AllocCall call = AllocCall::kMalloc) {
  return *plan_allocation({call, size, policy});
}

// Remembers what came back; its session can be ended.
class CountingSource final : public PageSource {
 public:
  Result<Minted> mint(const BlockSpec& spec) override {
    ++mints;
    return source_.mint(spec);
  }
  Result<void> charge(std::uint64_t id, std::uint64_t bytes) override {
    return source_.charge(id, bytes);
  }
  void end_keys(std::uint64_t id) override { source_.end_keys(id); }
  void give_back(std::uint64_t id, Lent lent) override {
    given_back.push_back(id);
    source_.give_back(id, lent);
  }
  Result<Capacity> capacity(int device) override { return source_.capacity(device); }
  std::uint64_t session() const override { return number; }
  bool reserve_begins() override {
    ++reserves_begun;
    return listens;
  }

  std::vector<std::uint64_t> given_back;
  int mints = 0;
  int reserves_begun = 0;
  bool listens = true;
  std::uint64_t number = 1;

 private:
  LocalSource source_{{.count = 1, .capacity = 512 * kMiB}};
};

class HeapTest : public testing::Test {
 protected:
  void* allocate(std::uint64_t size, std::uint32_t policy = kNormalOnly) {
    auto made = heap_.allocate(0, plan(size, policy));
    EXPECT_TRUE(made) << made.error().what();
    return made ? *made : nullptr;
  }

  LocalSource source_{{.count = 2, .capacity = 512 * kMiB}};
  Heap heap_{source_, 2};
};

TEST_F(HeapTest, ABlockStartsAtItsPageAndIsDescribed) {
  void* pointer = allocate(1 * kMiB, kHugeFirst);
  EXPECT_TRUE(is_aligned(address_of(pointer), 2 * kMiB));
  const auto region = heap_.describe(static_cast<char*>(pointer) + 12345);
  ASSERT_TRUE(region);
  EXPECT_EQ(region->base, address_of(pointer));
  EXPECT_EQ(region->reported, 1 * kMiB + 32);
  EXPECT_EQ(region->page, PageSize::k2MiB);
  EXPECT_EQ(region->kind, RegionKind::kBlock);
  EXPECT_TRUE(heap_.deallocate(pointer));
  EXPECT_FALSE(heap_.describe(pointer));
}

TEST_F(HeapTest, APieceIsDescribedAsItselfNotAsItsChunk) {
  void* pointer = allocate(100);
  const auto region = heap_.describe(static_cast<char*>(pointer) + 99);
  ASSERT_TRUE(region);
  EXPECT_EQ(region->base, address_of(pointer));
  EXPECT_EQ(region->reported, 160U);
  EXPECT_EQ(region->kind, RegionKind::kSlab);
  EXPECT_TRUE(heap_.deallocate(pointer));
  EXPECT_FALSE(heap_.describe(pointer));
}

TEST_F(HeapTest, CapacityComesBackToTheByte) {
  const std::uint64_t before = heap_.capacity(0)->free;
  std::vector<void*> pointers;
  for (const std::uint64_t size : {64U, 1000U, 4000U, 4096U, 100000U, 3000000U}) {
    pointers.push_back(allocate(size, kHugeFirst));
  }
  EXPECT_LT(heap_.capacity(0)->free, before);
  EXPECT_EQ(heap_.capacity(1)->free, before) << "another device was charged";
  for (void* pointer : pointers)
    EXPECT_TRUE(heap_.deallocate(pointer));
  EXPECT_EQ(heap_.capacity(0)->free, before);
}

TEST_F(HeapTest, AHugeWishFallsBackAndAHugeNeedFails) {
  LocalSource tight({.count = 1, .capacity = 3 * kMiB});
  Heap heap(tight, 1);
  const auto first = heap.allocate(0, plan(1 * kMiB, kHugeFirst));
  const auto second = heap.allocate(0, plan(1 * kMiB, kHugeFirst));
  ASSERT_TRUE(first && second);
  EXPECT_EQ(heap.describe(*first)->page, PageSize::k2MiB);
  EXPECT_EQ(heap.describe(*second)->page, PageSize::k4KiB);
  const auto third = heap.allocate(0, plan(1, kHugeOnly));
  ASSERT_FALSE(third);
  EXPECT_EQ(third.error().code, Errc::kOutOfMemory);
  EXPECT_TRUE(mentions(third.error(), "3145728")) << third.error().what();
}

TEST_F(HeapTest, DoubleFreeIsNamed) {
  for (const std::uint64_t size : {100U, 8192U}) {
    void* pointer = allocate(size);
    ASSERT_TRUE(heap_.deallocate(pointer));
    const auto again = heap_.deallocate(pointer);
    ASSERT_FALSE(again);
    EXPECT_EQ(again.error().code, Errc::kInvalidValue);
    EXPECT_TRUE(mentions(again.error(), "free")) << again.error().what();
  }
}

TEST_F(HeapTest, InteriorFreeNamesTheBlock) {
  for (const std::uint64_t size : {200U, 8160U}) {
    void* pointer = allocate(size);
    const auto wrong = heap_.deallocate(static_cast<char*>(pointer) + 64);
    ASSERT_FALSE(wrong);
    EXPECT_EQ(wrong.error().code, Errc::kInvalidValue);
    EXPECT_TRUE(mentions(wrong.error(), "lies 64 bytes into")) << wrong.error().what();
    EXPECT_TRUE(mentions(wrong.error(), fmt::format("[{:#x}, ", address_of(pointer))));
    EXPECT_TRUE(heap_.deallocate(pointer)) << "the block must have survived";
  }
}

TEST_F(HeapTest, AForeignAddressIsUnregisteredButAFreedOneIsNot) {
  int local = 0;
  EXPECT_EQ(heap_.deallocate(&local).error().code, Errc::kUnregistered);
  void* pointer = allocate(8192);
  ASSERT_TRUE(heap_.deallocate(pointer));
  EXPECT_EQ(heap_.deallocate(pointer).error().code, Errc::kInvalidValue);
}

TEST_F(HeapTest, AlternatingFreeAndAllocateBehaves) {
  for (int round = 0; round < 1000; ++round) {
    auto* piece = static_cast<char*>(allocate(64));
    auto* block = static_cast<char*>(allocate(4096));
    std::memset(piece, round, 64);
    std::memset(block, round, 4096);
    EXPECT_EQ(piece[63], static_cast<char>(round));
    EXPECT_TRUE(heap_.deallocate(piece));
    EXPECT_TRUE(heap_.deallocate(block));
  }
}

TEST_F(HeapTest, TheBooksAreNotInMemoryThatUsersCanWrite) {
  std::vector<char*> pieces;
  pieces.reserve(100);
  for (int i = 0; i < 100; ++i)
    pieces.push_back(static_cast<char*>(allocate(64)));
  for (std::size_t i = 0; i < 100; i += 2)
    EXPECT_TRUE(heap_.deallocate(pieces[i]));
  const auto chunk = heap_.registry().find(address_of(pieces[1]));
  ASSERT_TRUE(chunk);
  std::memset(reinterpret_cast<void*>(chunk->base), 0xff, chunk->mapped);
  for (std::size_t i = 0; i < 100; i += 2)
    pieces[i] = static_cast<char*>(allocate(64));
  for (char* piece : pieces)
    EXPECT_TRUE(heap_.deallocate(piece));
}

// The property behind the documents' test `pointer % 4096 == 0`, and behind no two allocations
// sharing a byte.
TEST_F(HeapTest, TenToTheFifthRandomSizesKeepTheirPromises) {
  std::mt19937_64 random(20240501);
  struct Live {
    std::uint64_t size;
    char mark;
  };
  std::map<std::uintptr_t, Live> live;
  std::uint64_t pieces = 0;
  std::uint64_t blocks = 0;
  const auto holds = [](std::uintptr_t base, const Live& l) {
    const auto* bytes = reinterpret_cast<const char*>(base);
    return bytes[0] == l.mark && bytes[l.size - 1] == l.mark;
  };
  const auto release = [&](std::map<std::uintptr_t, Live>::iterator it) {
    ASSERT_TRUE(holds(it->first, it->second)) << "somebody else wrote into it";
    ASSERT_TRUE(heap_.deallocate(reinterpret_cast<void*>(it->first)));
    live.erase(it);
  };

  for (int round = 0; round < 100000; ++round) {
    // Mostly pieces; one block in 50, or the test would measure the kernel.
    const std::uint64_t limit = round % 50 == 0 ? 40000 : 4064;
    const std::uint64_t size = 1 + random() % limit;
    const auto call = random() % 2 == 0 ? AllocCall::kMalloc : AllocCall::kMallocAlign32;
    const auto made = heap_.allocate(0, plan(size, kNormalOnly, call));
    ASSERT_TRUE(made) << made.error().what();
    const std::uintptr_t base = address_of(*made);
    const auto region = heap_.describe(*made);
    ASSERT_TRUE(region);
    ASSERT_EQ(region->base, base);
    ASSERT_GE(region->reported, size);
    ASSERT_TRUE(is_aligned(base, 64));
    if (region->kind == RegionKind::kSlab) {
      ++pieces;
      ASSERT_FALSE(is_aligned(base, 4096)) << "a piece of " << size << " looks exportable";
    } else {
      ++blocks;
      ASSERT_TRUE(is_aligned(base, bytes_of(region->page)));
    }
    const auto next = live.lower_bound(base);
    ASSERT_TRUE(next == live.end() || base + region->reported <= next->first);
    ASSERT_TRUE(next == live.begin() ||
                std::prev(next)->first + std::prev(next)->second.size <= base);
    const char mark = static_cast<char>(random());
    static_cast<char*>(*made)[0] = mark;
    static_cast<char*>(*made)[size - 1] = mark;
    live.emplace(base, Live{.size = size, .mark = mark});
    if (live.size() > 2000) {
      auto victim = live.lower_bound(base - 4096 * (random() % 64));
      release(victim == live.end() ? live.begin() : victim);
    }
  }
  EXPECT_GT(pieces, 50000U);
  EXPECT_GT(blocks, 500U);
  while (!live.empty())
    release(live.begin());
}

TEST_F(HeapTest, MemoryOfAFreshChunkIsZero) {
  for (const std::uint64_t size : {64U, 500U, 4000U}) {
    const auto* bytes = static_cast<const char*>(allocate(size));
    EXPECT_EQ(std::count(bytes, bytes + size, 0), static_cast<std::ptrdiff_t>(size));
  }
}

TEST_F(HeapTest, ManyThreadsAllocateAndFree) {
  constexpr int kThreads = 8;
  const std::uint64_t before = heap_.capacity(0)->free;
  std::vector<std::thread> threads;
  threads.reserve(kThreads);
  std::array<int, kThreads> failures{};
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([this, t, &failures] {
      std::mt19937_64 random(static_cast<std::uint64_t>(t));
      std::vector<std::pair<char*, std::uint64_t>> mine;
      const auto release = [&] {
        const auto [pointer, size] = mine.back();
        const char mark = static_cast<char>(t);
        if (pointer[0] != mark || pointer[size - 1] != mark)
          ++failures[static_cast<std::size_t>(t)];
        if (!heap_.deallocate(pointer)) ++failures[static_cast<std::size_t>(t)];
        mine.pop_back();
      };
      for (int round = 0; round < 2000; ++round) {
        const std::uint64_t size = 1 + random() % (round % 20 == 0 ? 20000 : 2000);
        const auto made = heap_.allocate(0, plan(size, kNormalOnly));
        if (!made) {
          ++failures[static_cast<std::size_t>(t)];
          continue;
        }
        auto* pointer = static_cast<char*>(*made);
        pointer[0] = pointer[size - 1] = static_cast<char>(t);
        mine.emplace_back(pointer, size);
        if (!heap_.describe(pointer)) ++failures[static_cast<std::size_t>(t)];
        if (mine.size() > 20) release();
      }
      while (!mine.empty())
        release();
    });
  }
  for (std::thread& thread : threads)
    thread.join();
  for (const int count : failures)
    EXPECT_EQ(count, 0);
  EXPECT_EQ(heap_.capacity(0)->free, before);
}

TEST_F(HeapTest, OfManyFreesExactlyOneSucceeds) {
  for (int round = 0; round < 200; ++round) {
    void* pointer = allocate(round % 2 == 0 ? 8192 : 100);
    std::vector<std::future<bool>> tries;
    tries.reserve(4);
    for (int t = 0; t < 4; ++t) {
      tries.push_back(std::async(
          std::launch::async, [this, pointer] { return heap_.deallocate(pointer).has_value(); }));
    }
    int won = 0;
    for (auto& one : tries)
      won += one.get() ? 1 : 0;
    EXPECT_EQ(won, 1);
  }
}

TEST_F(HeapTest, ExportNeedsAPageOfABlock) {
  auto* block = static_cast<char*>(allocate(3 * kPage));
  auto* piece = static_cast<char*>(allocate(1024));
  int local = 0;

  const auto whole = heap_.exportable(block, 3 * kPage + 32);
  ASSERT_TRUE(whole) << whole.error().what();
  EXPECT_EQ(whole->offset, 0U);
  const auto part = heap_.exportable(block + 4096, 4096);
  ASSERT_TRUE(part);
  EXPECT_EQ(part->offset, 4096U);

  EXPECT_EQ(heap_.exportable(block + 64, 64).error().reason, Reason::kNotAligned);
  EXPECT_TRUE(
      mentions(heap_.exportable(block + 64, 64).error(), fmt::format("{:#x}", address_of(block))));
  EXPECT_TRUE(mentions(heap_.exportable(block + 64, 64).error(), "4 KiB"));
  EXPECT_EQ(heap_.exportable(block, 3 * kPage + 33).error().reason, Reason::kOutOfRange);
  EXPECT_EQ(heap_.exportable(block + 4096, 3 * kPage).error().reason, Reason::kOutOfRange);
  EXPECT_EQ(heap_.exportable(block, 0).error().reason, Reason::kEmptyRange);
  EXPECT_EQ(heap_.exportable(block, 0).error().code, Errc::kInvalidValue);
  EXPECT_EQ(heap_.exportable(piece, 1024).error().reason, Reason::kSlabPiece);
  EXPECT_EQ(heap_.exportable(piece, 1024).error().code, Errc::kRefused);
  EXPECT_EQ(heap_.exportable(&local, 4).error().code, Errc::kUnregistered);
}

TEST_F(HeapTest, AHugeBlockIsJudgedByItsOwnPage) {
  auto* block = static_cast<char*>(allocate(4 * kMiB, kHugeOnly));
  EXPECT_EQ(heap_.exportable(block + 4096, 4096).error().reason, Reason::kNotAligned);
  EXPECT_TRUE(heap_.exportable(block + 2 * kMiB, 4096));
}

TEST_F(HeapTest, FreeWaitsForAnExportOnItsWay) {
  void* block = allocate(4096);
  auto hold = heap_.begin_export(block, 4096);
  ASSERT_TRUE(hold);
  std::optional<Heap::ExportHold> held(std::move(*hold));
  auto freed = std::async(std::launch::async, [&] { return heap_.deallocate(block).has_value(); });
  // Once the free has begun, no export can begin; until it has, one may.
  while (heap_.begin_export(block, 4096))
    std::this_thread::yield();
  EXPECT_TRUE(heap_.describe(block)) << "it went although an export was on its way";
  held.reset();
  EXPECT_TRUE(freed.get());
  EXPECT_FALSE(heap_.describe(block));
}

TEST_F(HeapTest, RetiredMemoryIsDeadToEveryCallAndKeepsItsBytes) {
  const std::uint64_t before = heap_.capacity(0)->free;
  for (const std::uint64_t size : {100U, 8192U}) {
    auto* pointer = static_cast<char*>(allocate(size));
    std::memset(pointer, 0x5a, size);
    auto retired = heap_.retire(pointer);
    ASSERT_TRUE(retired);
    EXPECT_FALSE(heap_.describe(pointer));
    EXPECT_FALSE(heap_.exportable(pointer, size));
    const auto again = heap_.deallocate(pointer);
    ASSERT_FALSE(again);
    EXPECT_EQ(again.error().code, Errc::kInvalidValue);
    EXPECT_TRUE(mentions(again.error(), "free")) << again.error().what();
    // Work that was queued before goes on using it, and nobody else gets it.
    std::vector<void*> others;
    others.reserve(100);
    for (int i = 0; i < 100; ++i)
      others.push_back(allocate(size));
    EXPECT_EQ(std::count(others.begin(), others.end(), pointer), 0);
    for (void* other : others)
      std::memset(other, 0, size);
    EXPECT_EQ(std::count(pointer, pointer + size, 0x5a), static_cast<std::ptrdiff_t>(size));
    EXPECT_FALSE(retired->lent());
    for (void* other : others)
      EXPECT_TRUE(heap_.deallocate(other));
    EXPECT_LT(heap_.capacity(0)->free, before);
    { const Retired end = std::move(*retired); }
    EXPECT_EQ(heap_.capacity(0)->free, before);
  }
}

TEST_F(HeapTest, RetiredMemoryKnowsThatItWasLent) {
  void* block = allocate(4096);
  EXPECT_EQ(heap_.state_of(block), BlockState::kLive);
  {
    const auto hold = heap_.begin_export(block, 4096);
    ASSERT_TRUE(hold);
    EXPECT_EQ(heap_.state_of(block), BlockState::kExporting);
  }
  EXPECT_EQ(heap_.state_of(block), BlockState::kExported);
  const auto retired = heap_.retire(block);
  ASSERT_TRUE(retired);
  EXPECT_EQ(heap_.state_of(block), BlockState::kDead);
  EXPECT_TRUE(retired->lent());
}

TEST_F(HeapTest, AFreedBlockIsUsedAgainForOneOfItsKind) {
  const auto* first = allocate(20000);
  ASSERT_TRUE(heap_.deallocate(first));
  const auto* other_size = allocate(30000);
  EXPECT_NE(other_size, first);
  EXPECT_EQ(allocate(20000), first);
  EXPECT_NE(allocate(20000), first);
}

TEST_F(HeapTest, ABlockThatWasLentIsNeverUsedAgain) {
  CountingSource source;
  Heap heap(source, 1);
  const auto block = heap.allocate(0, plan(20000, kNormalOnly));
  const std::uint64_t id = heap.describe(*block)->id;
  ASSERT_TRUE(heap.begin_export(*block, 4096));
  ASSERT_TRUE(heap.deallocate(*block));
  EXPECT_EQ(source.given_back, std::vector<std::uint64_t>{id});
  EXPECT_NE(heap.describe(*heap.allocate(0, plan(20000, kNormalOnly)))->id, id);
}

TEST_F(HeapTest, AnImporterSeesNothingOfWhatABlockHeldBefore) {
  auto* before = static_cast<char*>(allocate(8000));
  std::memset(before, 0x77, 8000);
  ASSERT_TRUE(heap_.deallocate(before));
  auto* block = static_cast<char*>(allocate(5000));
  ASSERT_EQ(block, before);
  std::memset(block, 0x11, 5000);
  ASSERT_TRUE(heap_.begin_export(block, 5000));
  const std::uint64_t reported = heap_.describe(block)->reported;
  EXPECT_EQ(std::count(block + reported, block + 2 * kPage, 0),
            static_cast<std::ptrdiff_t>(2 * kPage - reported));
  EXPECT_EQ(std::count(block, block + 5000, 0x11), 5000);
}

TEST_F(HeapTest, TheReserveIsBoundedAndItsOldestGoFirst) {
  CountingSource source;
  Heap heap(source, 1);
  std::vector<void*> blocks;
  std::vector<std::uint64_t> ids;
  for (std::uint64_t i = 0; i < 10; ++i) {  // Of ten sizes around 8 MiB; eight fit.
    blocks.push_back(*heap.allocate(0, plan(8 * kMiB - i * kPage, kNormalOnly)));
    ids.push_back(heap.describe(blocks.back())->id);
  }
  for (void* block : blocks)
    ASSERT_TRUE(heap.deallocate(block));
  EXPECT_EQ(source.given_back, std::vector<std::uint64_t>(ids.begin(), ids.begin() + 2));
  const std::uint64_t kept = heap.capacity(0)->free - source.capacity(0)->free;
  EXPECT_LE(kept, Reserve::kMaxBytes);
  EXPECT_EQ(heap.give_back_reserve(), kept);
  EXPECT_EQ(source.given_back.size(), ids.size());
}

TEST_F(HeapTest, AReserveIsAnnouncedWhenItBegins) {
  CountingSource source;
  Heap heap(source, 1);
  ASSERT_TRUE(heap.deallocate(*heap.allocate(0, plan(8192, kNormalOnly))));
  EXPECT_EQ(source.reserves_begun, 1);
  heap.give_back_reserve();
  ASSERT_TRUE(heap.deallocate(*heap.allocate(0, plan(8192, kNormalOnly))));
  EXPECT_EQ(source.reserves_begun, 2);
  // What is left of an earlier session is no reserve.
  source.number = 2;
  ASSERT_TRUE(heap.deallocate(*heap.allocate(0, plan(16384, kNormalOnly))));
  EXPECT_EQ(source.reserves_begun, 3);
  EXPECT_EQ(source.given_back.size(), 2U);
}

TEST_F(HeapTest, NothingIsKeptThatNobodyCouldAskFor) {
  CountingSource source;
  source.listens = false;
  Heap heap(source, 1);
  ASSERT_TRUE(heap.deallocate(*heap.allocate(0, plan(8192, kNormalOnly))));
  EXPECT_EQ(source.given_back.size(), 1U);
}

TEST_F(HeapTest, BlocksOfAnEarlierSessionAreNotUsedAgain) {
  CountingSource source;
  Heap heap(source, 1);
  const auto block = heap.allocate(0, plan(8192, kNormalOnly));
  const std::uint64_t id = heap.describe(*block)->id;
  ASSERT_TRUE(heap.deallocate(*block));
  source.number = 2;
  EXPECT_EQ(heap.capacity(0)->free, source.capacity(0)->free);
  EXPECT_NE(heap.describe(*heap.allocate(0, plan(8192, kNormalOnly)))->id, id);
}

TEST_F(HeapTest, WhatIsKeptReadyIsGivenBackBeforeMemoryIsRefused) {
  LocalSource tight({.count = 1, .capacity = 8 * kMiB});
  Heap heap(tight, 1);
  std::vector<void*> blocks;
  for (int i = 0; i < 7; ++i)
    blocks.push_back(*heap.allocate(0, plan(1 * kMiB, kNormalOnly)));
  void* piece = *heap.allocate(0, plan(64, kNormalOnly));
  for (void* block : blocks)
    ASSERT_TRUE(heap.deallocate(block));
  ASSERT_TRUE(heap.deallocate(piece));
  EXPECT_EQ(heap.capacity(0)->free, 8 * kMiB);
  EXPECT_LT(tight.capacity(0)->free, 1 * kMiB);
  const auto all = heap.allocate(0, plan(8 * kMiB, kNormalOnly, AllocCall::kMallocAlign32));
  EXPECT_TRUE(all) << all.error().what();
}

TEST_F(HeapTest, AnotherThreadMayFreeAPiece) {
  const std::uint64_t before = heap_.capacity(0)->free;
  std::vector<void*> pieces;
  pieces.reserve(1000);
  for (int i = 0; i < 1000; ++i)
    pieces.push_back(allocate(200));
  std::thread([&] {
    for (void* piece : pieces)
      EXPECT_TRUE(heap_.deallocate(piece));
    EXPECT_FALSE(heap_.deallocate(pieces[0]));
  }).join();
  EXPECT_EQ(heap_.capacity(0)->free, before);
}

TEST_F(HeapTest, AThreadThatEndsLeavesItsPiecesToTheOthers) {
  CountingSource source;
  Heap heap(source, 1);
  constexpr std::size_t kPerChunk = (kChunkBytes - 64) / 3584;  // None would start a page.
  std::thread([&] {
    EXPECT_TRUE(heap.deallocate(*heap.allocate(0, plan(3500, kNormalOnly)))) << "and caches some";
  }).join();
  for (std::size_t i = 0; i < kPerChunk; ++i)
    EXPECT_TRUE(heap.allocate(0, plan(3500, kNormalOnly)));
  EXPECT_EQ(source.mints, 1);
  EXPECT_TRUE(heap.allocate(0, plan(3500, kNormalOnly)));
  EXPECT_EQ(source.mints, 2) << "the test's count of a chunk's pieces is wrong";
}

TEST_F(HeapTest, WhatLiesInAThreadsCacheCanBeGivenBackAllTheSame) {
  CountingSource source;
  Heap heap(source, 1);
  const std::uint64_t all = source.capacity(0)->free;
  std::promise<void> cached;
  std::promise<void> given_back;
  std::thread other([&] {
    void* first = *heap.allocate(0, plan(100, kNormalOnly));
    EXPECT_TRUE(heap.deallocate(first));
    cached.set_value();
    given_back.get_future().wait();
    const auto again = heap.allocate(0, plan(100, kNormalOnly));
    ASSERT_TRUE(again);
    std::memset(*again, 1, 100);  // Mapped, that is.
    EXPECT_TRUE(heap.describe(*again));
    EXPECT_TRUE(heap.deallocate(*again));
  });
  cached.get_future().wait();
  EXPECT_EQ(heap.capacity(0)->free, all);
  EXPECT_EQ(heap.give_back_reserve(), kChunkBytes);
  EXPECT_EQ(source.capacity(0)->free, all);
  given_back.set_value();
  other.join();
  EXPECT_EQ(source.mints, 2);
}

TEST_F(HeapTest, NoPieceIsGivenTwiceWhileChunksComeAndGo) {
  constexpr int kThreads = 3;
  const std::uint64_t before = heap_.capacity(0)->free;
  std::atomic<int> wrong = 0;
  std::atomic<bool> enough = false;
  std::vector<std::thread> threads;
  threads.reserve(kThreads);
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937_64 random(static_cast<std::uint64_t>(t));
      std::vector<std::uint64_t*> mine;
      while (!enough) {
        for (std::uint64_t n = random() % 100; n != 0; --n) {
          auto* piece = static_cast<std::uint64_t*>(*heap_.allocate(0, plan(3500, kNormalOnly)));
          *piece = address_of(piece) + static_cast<std::uint64_t>(t);
          mine.push_back(piece);
        }
        for (; !mine.empty(); mine.pop_back()) {
          std::uint64_t* piece = mine.back();
          if (*piece != address_of(piece) + static_cast<std::uint64_t>(t)) ++wrong;
          const auto found = heap_.describe(piece);
          if (!found || found->base != address_of(piece)) ++wrong;
          if (!heap_.deallocate(piece)) ++wrong;
        }
      }
    });
  }
  std::uint64_t given_back = 0;
  while (given_back < 200 * kChunkBytes)
    given_back += heap_.give_back_reserve();
  enough = true;
  for (std::thread& thread : threads)
    thread.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(heap_.capacity(0)->free, before);
}

}  // namespace
}  // namespace hufu::memory
