#include "share/open_keys.h"

#include <atomic>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "os/published.h"
#include "wire/message.h"

namespace hufu::share {
namespace {

constexpr std::uint64_t kLive = 0x10001;

// A broker's words, with a life that lasts as long as this.
class Words {
 public:
  Words() {
    life_.claim_life_word();
    auto words = os::PublishedView::map(words_.reader()->get(), wire::kStatusBytes);
    auto life = os::PublishedView::map(life_.reader()->get(), wire::kLifePageBytes);
    status_ = std::make_unique<Status>(Status{std::move(*words), std::move(*life)});
  }

  GrantWord grant(std::uint32_t slot) {
    words_.word(slot).store(kLive);
    return {.status = status_.get(), .slot = slot, .live = kLive};
  }
  void end(std::uint32_t slot) { words_.word(slot).store(0); }

 private:
  os::PublishedMemory words_ = std::move(*os::PublishedMemory::make("test", wire::kStatusBytes));
  os::PublishedMemory life_ = std::move(*os::PublishedMemory::make("test", wire::kLifePageBytes));
  std::unique_ptr<Status> status_;
};

class AnOpenKey : public ::testing::Test {
 protected:
  static KeyHash hash(std::uint64_t number) { return {.words = {number, 7, 8, 9}}; }
  std::byte* address(std::size_t number) { return memory_.data() + number; }

  Words words_;
  OpenKeys keys_;
  std::vector<std::byte> memory_{4096};
};

TEST_F(AnOpenKey, IsOpenedAndClosedInBetweenTheFirstAndTheLastTime) {
  EXPECT_EQ(keys_.open_again(hash(1)), nullptr);
  auto* entry = keys_.enter(hash(1), address(1));
  EXPECT_EQ(keys_.open_again(hash(1)), nullptr) << "shut";
  OpenKeys::reopen(entry, words_.grant(3), 1);
  EXPECT_FALSE(keys_.close_one_of_many(hash(1))) << "the last one";
  EXPECT_EQ(keys_.open_again(hash(1)), address(1));
  EXPECT_EQ(keys_.open_again(hash(2)), nullptr);
  EXPECT_TRUE(keys_.close_one_of_many(hash(1)));
  EXPECT_FALSE(keys_.close_one_of_many(hash(1)));
  EXPECT_EQ(OpenKeys::shut(entry), 1U);
  EXPECT_EQ(keys_.open_again(hash(1)), nullptr);
  keys_.remove(entry);
  EXPECT_EQ(keys_.enter(hash(2), address(2)), entry) << "reused";
}

TEST_F(AnOpenKey, IsNotOpenedAgainWhenItsGrantHasEnded) {
  auto* entry = keys_.enter(hash(1), address(1));
  OpenKeys::reopen(entry, words_.grant(3), 2);
  words_.end(3);
  EXPECT_EQ(keys_.open_again(hash(1)), nullptr);
  EXPECT_TRUE(keys_.close_one_of_many(hash(1))) << "what is mapped can be closed all the same";
  EXPECT_EQ(OpenKeys::shut(entry), 1U);
}

TEST_F(AnOpenKey, WithoutACellIsNotFoundAndHarmsNobody) {
  std::vector<OpenKeys::Entry*> entries;
  constexpr std::uint64_t kSameCell = 4096;
  for (std::uint64_t i = 0; i < 12; ++i) {
    entries.push_back(keys_.enter(hash(i * kSameCell), address(i)));
    OpenKeys::reopen(entries.back(), words_.grant(3), 1);
  }
  std::size_t found = 0;
  for (std::uint64_t i = 0; i < 12; ++i) {
    std::byte* base = keys_.open_again(hash(i * kSameCell));
    if (base == nullptr) continue;
    EXPECT_EQ(base, address(i));
    ++found;
  }
  EXPECT_EQ(found, 8U);
  for (auto* entry : entries) {
    OpenKeys::shut(entry);
    keys_.remove(entry);
  }
  auto* entry = keys_.enter(hash(0), address(99));
  OpenKeys::reopen(entry, words_.grant(3), 1);
  EXPECT_EQ(keys_.open_again(hash(0)), address(99));
}

// Two threads open and close without the lock while the owner ends the key and begins it again at
// another address: what an opener gets is the address of a life in which it was counted.
TEST_F(AnOpenKey, CountsRightWhileItsOwnerEndsAndBeginsIt) {
  constexpr int kLives = 3000;
  const GrantWord grant = words_.grant(3);
  std::atomic<bool> over = false;
  std::array<std::atomic<int>, 2> held{};  // By address.
  std::atomic<int> wrong = 0;
  std::atomic<int> opened = 0;
  const auto open_and_close = [&] {
    while (!over) {
      std::byte* base = keys_.open_again(hash(1));
      if (base == nullptr) continue;
      ++opened;
      // Counted, so its owner cannot have ended this life.
      if (held[static_cast<std::size_t>(base - address(0))] == 0) ++wrong;
      while (!keys_.close_one_of_many(hash(1))) {
      }
    }
  };
  std::thread one(open_and_close);
  std::thread two(open_and_close);
  for (int life = 0; life < kLives || opened < kLives; ++life) {
    const auto which = static_cast<std::size_t>(life % 2);
    held[which] = 1;
    auto* entry = keys_.enter(hash(1), address(which));
    OpenKeys::reopen(entry, grant, 1);
    std::uint32_t opens = 0;
    while ((opens = OpenKeys::shut(entry)) != 1) {
      OpenKeys::reopen(entry, grant, opens);
      std::this_thread::yield();
    }
    held[which] = 0;
    keys_.remove(entry);
  }
  over = true;
  one.join();
  two.join();
  EXPECT_EQ(wrong, 0);
}

TEST(KeyHasher, TellsKeysApartAndProcessesToo) {
  const KeyHasher one;
  const KeyHasher other;
  std::set<std::array<std::uint64_t, 4>> seen;
  std::string key(64, 'A');
  const auto of = [&](const KeyHasher& hasher) { return hasher.of(key.c_str()).words; };
  EXPECT_EQ(of(one), of(one));
  EXPECT_NE(of(one), of(other));
  seen.insert(of(one));
  for (char& letter : key) {
    letter = 'B';
    EXPECT_TRUE(seen.insert(of(one)).second);
  }
  key.pop_back();
  EXPECT_TRUE(seen.insert(of(one)).second) << "shorter";
  key.push_back('\0');
  EXPECT_FALSE(seen.insert(of(one)).second);
}

}  // namespace
}  // namespace hufu::share
