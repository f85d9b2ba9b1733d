#include "memory/address_registry.h"

#include <array>
#include <atomic>
#include <map>
#include <random>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

namespace hufu::memory {
namespace {

Region region_at(std::uintptr_t base, std::uint64_t size) {
  return {.base = base, .mapped = size, .reported = size, .id = base};
}

TEST(AddressRegistry, FindsTheRegionThatContainsAnAddress) {
  AddressRegistry registry;
  registry.add(region_at(0x1000, 0x1000));
  registry.add(region_at(0x4000, 0x1000));
  EXPECT_FALSE(registry.find(0xfff));
  EXPECT_EQ(registry.find(0x1000)->base, 0x1000U);
  EXPECT_EQ(registry.find(0x1fff)->base, 0x1000U);
  EXPECT_FALSE(registry.find(0x2000));
  EXPECT_EQ(registry.find(0x4001)->base, 0x4000U);
  EXPECT_FALSE(registry.find(0x5000));
}

TEST(AddressRegistry, TheReportedBytesBehindTheFileBelongToTheRegion) {
  AddressRegistry registry;
  registry.add({.base = 0x1000, .mapped = 0x1000, .reported = 0x1020});
  EXPECT_TRUE(registry.find(0x201f));
  EXPECT_FALSE(registry.find(0x2020));
}

TEST(AddressRegistry, RemembersWhatItOnceHad) {
  AddressRegistry registry;
  registry.add(region_at(0x1000, 0x1000));
  EXPECT_FALSE(registry.once_had(0x1800)) << "it is still there";
  EXPECT_TRUE(registry.remove(0x1000));
  EXPECT_FALSE(registry.remove(0x1000));
  EXPECT_FALSE(registry.find(0x1800));
  ASSERT_TRUE(registry.once_had(0x1800));
  EXPECT_EQ(registry.once_had(0x1800)->base, 0x1000U);
  EXPECT_FALSE(registry.once_had(0x2000));
}

TEST(AddressRegistry, ForgetsTheOldestTombstonesFirst) {
  AddressRegistry registry;
  for (std::uintptr_t i = 0; i <= AddressRegistry::kTombstones; ++i) {
    registry.add(region_at(0x100000 + i * 0x1000, 0x1000));
    registry.remove(0x100000 + i * 0x1000);
  }
  EXPECT_FALSE(registry.once_had(0x100000));
  EXPECT_TRUE(registry.once_had(0x101000));
}

TEST(AddressRegistry, AddressesThatNoProgramCanHaveAreFoundToBeNothing) {
  const AddressRegistry registry;
  for (const std::uintptr_t address : {std::uintptr_t{0}, ~std::uintptr_t{0},
                                       std::uintptr_t{1} << AddressRegistry::kAddressBits}) {
    EXPECT_FALSE(registry.find(address));
    EXPECT_FALSE(registry.once_had(address));
  }
}

TEST(AddressRegistry, ManyRegionsMayShareAPage) {
  AddressRegistry registry;
  for (std::uintptr_t base = 0x7000; base < 0x9000; base += 7)
    registry.add(region_at(base, 7));
  for (std::uintptr_t address = 0x7000; address < 0x9000; ++address)
    EXPECT_EQ(registry.find(address)->base, 0x7000 + (address - 0x7000) / 7 * 7);
}

TEST(AddressRegistry, ABigRegionIsFoundOverSmallOnesThatEnded) {
  AddressRegistry registry;
  constexpr std::uintptr_t kBase = std::uintptr_t{5} << 40U;
  for (std::uintptr_t i = 0; i < 2000; ++i)
    registry.add(region_at(kBase + i * 0x1800, 0x1800));
  for (std::uintptr_t i = 0; i < 2000; ++i)
    EXPECT_TRUE(registry.remove(kBase + i * 0x1800));
  registry.add(region_at(kBase, std::uint64_t{3} << 39U));
  for (std::uintptr_t at = kBase; at < kBase + (std::uint64_t{3} << 39U); at += 0x12345677)
    ASSERT_EQ(registry.find(at)->base, kBase);
  EXPECT_EQ(registry.list().size(), 1U);
}

TEST(AddressRegistry, AgreesWithAMapOverRandomHistories) {
  std::mt19937_64 random(7);
  AddressRegistry registry;
  std::map<std::uintptr_t, Region> model;
  std::uint64_t lives = 0;
  std::uint64_t shared_pages = 0;
  const auto in_model = [&](std::uintptr_t address) -> const Region* {
    const auto next = model.upper_bound(address);
    if (next == model.begin()) return nullptr;
    const Region& region = std::prev(next)->second;
    return address < region.end() ? &region : nullptr;
  };
  // Crowded in a few neighbourhoods, of all sizes, at any byte.
  const auto some_address = [&] {
    constexpr std::array<std::uintptr_t, 3> kPlaces = {0x10000, 0x7ffff0000000, 0xffff00000000};
    return kPlaces[random() % 3] + random() % (std::uintptr_t{1} << (10 + random() % 22));
  };
  for (int round = 0; round < 100000; ++round) {
    const std::uintptr_t address = some_address();
    const Region* there = in_model(address);
    if (there != nullptr) {
      const Region expected = *there;
      if (random() % 2 == 0) {
        EXPECT_EQ(registry.remove(address), address == expected.base);
        if (address != expected.base) {
          EXPECT_TRUE(registry.remove(expected.base));
        }
        model.erase(expected.base);
        ASSERT_FALSE(registry.find(address));
        ASSERT_EQ(registry.once_had(address)->base, expected.base);
      } else {
        const auto found = registry.find(address);
        ASSERT_TRUE(found) << address;
        ASSERT_EQ(found->id, expected.id);
        ASSERT_EQ(found->end(), expected.end());
      }
      continue;
    }
    ASSERT_FALSE(registry.find(address)) << address;
    const auto next = model.upper_bound(address);
    const std::uint64_t room =
        next == model.end() ? std::uint64_t{1} << 30U : next->first - address;
    const std::uint64_t size = 1 + random() % std::min(room, std::uint64_t{1} << (random() % 28));
    Region region = region_at(address, size);
    region.id = ++lives;
    region.device = static_cast<int>(random() % 4);
    if (size < room && random() % 4 == 0) region.reported = size + 1;
    const Region* neighbour = in_model(address | 0xfffU);
    if (neighbour != nullptr && neighbour->base >> 12U == address >> 12U) ++shared_pages;
    registry.add(region);
    model.emplace(address, region);
  }
  EXPECT_GT(lives, 20000U);
  EXPECT_GT(shared_pages, 1000U);
  const auto list = registry.list();
  ASSERT_EQ(list.size(), model.size());
  EXPECT_TRUE(
      std::equal(list.begin(), list.end(), model.begin(), [](const Region& a, const auto& b) {
        return a.id == b.second.id && a.base == b.first && a.device == b.second.device;
      }));
}

TEST(AddressRegistry, HoldsAHundredThousandRegions) {
  AddressRegistry registry;
  constexpr std::uintptr_t kFirst = 0x700000000000;
  for (std::uintptr_t i = 0; i < 100000; ++i)
    registry.add(region_at(kFirst + i * 0x3000, 0x1000));
  for (std::uintptr_t i = 0; i < 100000; ++i)
    ASSERT_EQ(registry.find(kFirst + i * 0x3000 + 0xfff)->id, kFirst + i * 0x3000);
}

// Places that one of the writers fills and empties. What it did is in counters, so that a reader
// can tell what it may have seen.
struct Place {
  std::atomic<std::uint64_t> to_begin = 0;  // Life n may be visible: set before it is added.
  std::atomic<std::uint64_t> begun = 0;     // Life n is visible: set after.
  std::atomic<std::uint64_t> to_end = 0;    // Life n may be gone: set before it is removed.
  std::atomic<std::uint64_t> ended = 0;     // Life n is gone.
};

TEST(AddressRegistry, WhatAReaderFindsWasThereDuringTheCall) {
  constexpr std::size_t kPlaces = 64;
  constexpr std::uint64_t kLives = 3000;
  constexpr std::uintptr_t kFirst = 0x7f0000000000 - 0x8000;  // Astride a border of tables.
  constexpr std::uintptr_t kSpan = 0x480;                     // Two and more in a page.
  AddressRegistry registry;
  std::array<Place, kPlaces> places;
  std::atomic<bool> done = false;
  std::atomic<std::uint64_t> wrong = 0;
  std::atomic<std::uint64_t> found_some = 0;
  std::atomic<std::uint64_t> found_none = 0;

  const auto write = [&](std::size_t which) {
    for (std::uint64_t life = 1; life <= kLives; ++life) {
      for (std::size_t p = which; p < kPlaces; p += 2) {
        const std::uintptr_t base = kFirst + p * kSpan;
        places[p].to_begin = life;
        Region region = region_at(base, kSpan - life % 7);
        region.id = life << 8U | p;
        registry.add(region);
        places[p].begun = life;
      }
      for (std::size_t p = which; p < kPlaces; p += 2) {
        places[p].to_end = life;
        if (!registry.remove(kFirst + p * kSpan)) ++wrong;
        places[p].ended = life;
      }
    }
  };
  const auto read = [&](std::uint64_t seed) {
    std::mt19937_64 random(seed);
    while (!done) {
      const std::size_t p = random() % kPlaces;
      const std::uintptr_t base = kFirst + p * kSpan;
      const std::uint64_t ended = places[p].ended;
      const std::uint64_t begun = places[p].begun;
      const auto found = registry.find(base + random() % (kSpan - 7));
      const std::uint64_t to_end = places[p].to_end;
      const std::uint64_t to_begin = places[p].to_begin;
      if (!found) {
        ++found_none;
        if (begun > to_end) ++wrong;  // It was there before, and stayed.
        continue;
      }
      ++found_some;
      const std::uint64_t life = found->id >> 8U;
      const bool whole = found->base == base && (found->id & 0xffU) == p &&
                         found->mapped == kSpan - life % 7 && found->reported == found->mapped;
      if (!whole || life <= ended || life > to_begin) ++wrong;
    }
  };

  std::vector<std::thread> readers;
  readers.reserve(2);
  for (std::uint64_t seed = 1; seed <= 2; ++seed)
    readers.emplace_back(read, seed);
  std::thread other(write, 1);
  write(0);
  other.join();
  done = true;
  for (std::thread& reader : readers)
    reader.join();
  EXPECT_EQ(wrong, 0U);
  EXPECT_GT(found_some, 0U);
  EXPECT_GT(found_none, 0U);
}

}  // namespace
}  // namespace hufu::memory
