#include "memory/managed_hints.h"

#include <array>
#include <random>

#include <gtest/gtest.h>

#include "base/units.h"

namespace hufu::memory {
namespace {

constexpr std::uint64_t kPage = 4 * kKiB;

ManagedHints::Part pages(std::uint64_t first, std::uint64_t count) {
  return {.offset = first * kPage, .size = count * kPage};
}

TEST(ManagedHints, BeginAsNothing) {
  const ManagedHints hints(2 * kMiB);
  EXPECT_EQ(hints.of({0, 2 * kMiB}), ManagedHint());
}

TEST(ManagedHints, HoldForTheirPagesAndNoOthers) {
  ManagedHints hints(2 * kMiB);
  hints.change({.offset = kPage + 1, .size = 1},
               [](ManagedHint& hint) { hint.read_mostly = true; });
  EXPECT_TRUE(hints.of(pages(1, 1)).read_mostly) << "the page that holds the byte";
  EXPECT_FALSE(hints.of({kPage - 1, 1}).read_mostly);
  EXPECT_FALSE(hints.of({2 * kPage, 1}).read_mostly);
  EXPECT_FALSE(hints.of(pages(0, 2)).read_mostly) << "not true of all of it";
}

TEST(ManagedHints, OfSeveralPartsAreWhatTheyHaveInCommon) {
  ManagedHints hints(2 * kMiB);
  hints.change(pages(0, 4), [](ManagedHint& hint) {
    hint.preferred = ManagedPlace{1, 0};
    hint.accessed_by = {0, 1};
  });
  hints.change(pages(2, 2), [](ManagedHint& hint) { hint.accessed_by.insert(-1); });
  hints.change(pages(3, 1), [](ManagedHint& hint) { hint.preferred = ManagedPlace{1, 1}; });
  EXPECT_EQ(hints.of(pages(0, 3)).preferred, (ManagedPlace{1, 0}));
  EXPECT_EQ(hints.of(pages(0, 4)).preferred, std::nullopt);
  EXPECT_EQ(hints.of(pages(0, 4)).accessed_by, (std::set<std::int32_t>{0, 1}));
  EXPECT_EQ(hints.of(pages(2, 2)).accessed_by, (std::set<std::int32_t>{-1, 0, 1}));
}

// Against a table of pages.
TEST(ManagedHints, AgreeWithAModelThroughARandomHistory) {
  constexpr std::uint64_t kPages = 16;
  ManagedHints hints(kPages * kPage);
  std::array<ManagedHint, kPages> model;
  std::mt19937 random(7);  // NOLINT(cert-msc51-cpp): the same history each time.
  int common = 0;
  for (int step = 0; step < 5'000; ++step) {
    const std::uint64_t first = random() % kPages;
    const std::uint64_t count = 1 + random() % (kPages - first);
    const auto value = static_cast<std::int32_t>(random() % 3);
    const auto how = [&, what = random() % 4](ManagedHint& hint) {
      if (what == 0) hint.read_mostly = value != 0;
      if (what == 1) hint.preferred = ManagedPlace{1, value};
      if (what == 2) hint.preferred.reset();
      if (what == 3 && !hint.accessed_by.insert(value).second) hint.accessed_by.erase(value);
    };
    hints.change(pages(first, count), how);
    for (std::uint64_t page = first; page < first + count; ++page)
      how(model[page]);

    const std::uint64_t from = random() % kPages;
    const std::uint64_t many = 1 + random() % (kPages - from);
    const ManagedHint answer = hints.of(pages(from, many));
    bool read_mostly = true;
    bool same = true;
    for (std::uint64_t page = from; page < from + many; ++page) {
      read_mostly = read_mostly && model[page].read_mostly;
      same = same && model[page].preferred == model[from].preferred;
    }
    ASSERT_EQ(answer.read_mostly, read_mostly) << step;
    ASSERT_EQ(answer.preferred, same ? model[from].preferred : std::nullopt) << step;
    common += answer.preferred && many > 1 ? 1 : 0;
  }
  EXPECT_GT(common, 100) << "the history never agreed on anything";
}

}  // namespace
}  // namespace hufu::memory
