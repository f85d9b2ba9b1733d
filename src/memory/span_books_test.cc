#include "memory/span_books.h"

#include <atomic>
#include <map>
#include <random>
#include <thread>

#include <gtest/gtest.h>

namespace hufu::memory {
namespace {

constexpr std::uint64_t kGranules = 300'000;  // Three levels, the last words not full.
constexpr std::uintptr_t kBase = 0x7000'0000'0000;

class SpanBooksTest : public testing::Test {
 protected:
  void SetUp() override { books_->begin(1, 6); }

  static Region region(SpanBooks& books, std::uint64_t life = 1) {
    return {.base = kBase,
            .mapped = kGranules * 64,
            .reported = kGranules * 64,
            .id = life,
            .kind = RegionKind::kPool,
            .books = &books};
  }
  std::optional<SpanBooks::Span> find(std::uint64_t offset, std::uint64_t life = 1) {
    return SpanBooks::find(region(*books_, life), kBase + offset);
  }

  std::unique_ptr<SpanBooks> books_ = std::move(*SpanBooks::make(kGranules));
};

TEST_F(SpanBooksTest, EveryAddressOfASpanFindsItAndNoOther) {
  books_->mark(0, 1);
  books_->mark(100'000, 150'000);
  books_->mark(299'999, 1);
  for (const std::uint64_t inside : {100'000ULL * 64, 170'000ULL * 64 + 17, 250'000ULL * 64 - 1}) {
    const auto span = find(inside);
    ASSERT_TRUE(span) << inside;
    EXPECT_EQ(span->offset, 100'000U * 64);
    EXPECT_EQ(span->size, 150'000U * 64);
  }
  EXPECT_TRUE(find(63));
  EXPECT_FALSE(find(64));
  EXPECT_FALSE(find(100'000ULL * 64 - 1));
  EXPECT_FALSE(find(250'000ULL * 64));
  EXPECT_TRUE(find(kGranules * 64 - 1));
  EXPECT_FALSE(find(kGranules * 64)) << "the guard page";
}

TEST_F(SpanBooksTest, AnotherLifeFindsNothing) {
  books_->mark(5, 3);
  EXPECT_TRUE(find(5 * 64));
  EXPECT_FALSE(find(5 * 64, 2));
  books_->end();
  EXPECT_FALSE(find(5 * 64));
  books_->begin(2, 6);
  EXPECT_FALSE(find(5 * 64, 2)) << "what the life before had in use";
}

TEST_F(SpanBooksTest, AgreesWithAMap) {
  std::map<std::uint64_t, std::uint64_t> model;  // Start to end.
  std::mt19937_64 random(20260101);
  const auto holder = [&](std::uint64_t granule) {
    auto at = model.upper_bound(granule);
    return at != model.begin() && (--at)->second > granule ? at : model.end();
  };
  int found_some = 0;
  for (int step = 0; step < 100'000; ++step) {
    const std::uint64_t start = random() % kGranules;
    const std::uint64_t room = kGranules - start;
    const std::uint64_t count = std::min(room, 1 + random() % (random() % 10 == 0 ? 5'000U : 20U));
    const auto next = model.lower_bound(start);
    if (const auto at = holder(start); at != model.end()) {
      books_->unmark(at->first);
      model.erase(at);
    } else if (next == model.end() || next->first >= start + count) {
      books_->mark(start, count);
      model[start] = start + count;
    }
    const std::uint64_t asked = random() % kGranules;
    const auto expected = holder(asked);
    const auto span = find(asked * 64 + random() % 64);
    ASSERT_EQ(span.has_value(), expected != model.end()) << step;
    if (!span) continue;
    ++found_some;
    ASSERT_EQ(span->offset / 64, expected->first);
    ASSERT_EQ((span->offset + span->size) / 64, expected->second);
  }
  EXPECT_GT(found_some, 10'000);
}

TEST_F(SpanBooksTest, ASpanInUseIsFoundWhateverHappensAroundIt) {
  books_->mark(64 * 64, 64 * 64);  // Its neighbours change summaries of all levels.
  std::atomic<bool> over{false};
  std::atomic<std::uint64_t> looked{0};
  std::thread reader([&] {
    std::mt19937_64 random(1);
    while (!over) {
      ASSERT_TRUE(find((64 * 64 + random() % (64 * 64)) * 64));
      ++looked;
    }
  });
  while (looked == 0)
    std::this_thread::yield();
  for (std::uint64_t round = 0; round < 20'000; ++round) {
    const std::uint64_t before = round % (64 * 64 - 1);
    const std::uint64_t behind = 2 * 64 * 64 + round;
    books_->mark(before, 1);
    books_->mark(behind, 1);
    books_->unmark(before);
    books_->unmark(behind);
  }
  over = true;
  reader.join();
}

TEST(SpanShelf, HandsBooksOutAgainToWhoeverTheyAreLargeEnoughFor) {
  SpanShelf shelf;
  SpanBooks* large = *shelf.take(1000);
  SpanBooks* small = *shelf.take(10);
  EXPECT_NE(large, small);
  shelf.put_back(large);
  shelf.put_back(small);
  EXPECT_EQ(*shelf.take(11), large);
  EXPECT_EQ(*shelf.take(1), small);
}

}  // namespace
}  // namespace hufu::memory
