#include "broker/slots.h"

#include <cstdlib>
#include <fstream>
#include <map>
#include <random>
#include <sstream>
#include <string>

#include <gtest/gtest.h>

#include <fmt/format.h>

namespace hufu::broker {
namespace {

std::map<std::string, Slot> one_of_each() {
  std::array<std::uint8_t, 16> counting{};
  for (std::size_t i = 0; i < counting.size(); ++i)
    counting[i] = static_cast<std::uint8_t>(0x50 + i);
  return {
      {"block",
       {.generation = 7,
        .body = BlockSlot{.id = 0x424c4f434b000001,
                          .owner = 3,
                          .size = 8192,
                          .page = 4096,
                          .device = 1,
                          .uid = 1000,
                          .backing = 1,
                          .sealed_for = 3,
                          .sparse = 0,
                          .reserved = 0,
                          .charged_units = 0,
                          .reserved_too = {}}}},
      {"export",
       {.generation = 8,
        .body = ExportSlot{.id = 0x5348415245000001,
                           .block = 0x424c4f434b000001,
                           .public_id = counting,
                           .asked_size = 4000,
                           .offset_pages_low = 1,
                           .offset_pages_high = 0,
                           .flags = 1,
                           .live = 1}}},
      {"listed",
       {.generation = 9,
        .body = ListedSlot{.share = 0x5348415245000001,
                           .pidfs_inode = 0x1234,
                           .start_time = 0,
                           .pid = 4002,
                           .reserved = {}}}},
      {"handle",
       {.generation = 10,
        .body =
            HandleSlot{.share = 0x5348415245000001, .token = 0x1f2e3d4c5b6a7988, .reserved = {}}}},
      {"session",
       {.generation = 1,
        .body = SessionSlot{.id = 3,
                            .secret_hash = counting,
                            .pidfs_inode = 0x1233,
                            .uid = 1000,
                            .gid = 100,
                            .pid = 4001,
                            .reserved = 0}}},
  };
}

std::string hex(const SlotBytes& bytes) {
  std::string text;
  for (std::size_t i = 0; i < bytes.size(); ++i)
    text += fmt::format("{:02x}{}", static_cast<unsigned>(bytes[i]), i % 16 == 15 ? '\n' : ' ');
  return text;
}

// A keeper of an earlier build may give back what that build stored.
TEST(SlotFormat, IsTheGoldenBytes) {
  for (const auto& [name, slot] : one_of_each()) {
    const std::string path = std::string(HUFU_SOURCE_DIR) + "/tests/golden/slots/" + name + ".hex";
    // NOLINTNEXTLINE(concurrency-mt-unsafe): nothing here sets the environment.
    if (::getenv("HUFU_UPDATE_GOLDEN") != nullptr) std::ofstream(path) << hex(encode(slot));
    std::ifstream file(path);
    std::stringstream golden;
    golden << file.rdbuf();
    EXPECT_EQ(hex(encode(slot)), golden.str()) << path;
  }
}

TEST(SlotFormat, ReadsWhatItWrote) {
  for (const auto& [name, slot] : one_of_each()) {
    const auto read = decode_slot(encode(slot));
    ASSERT_TRUE(read) << name;
    EXPECT_EQ(read->generation, slot.generation);
    EXPECT_EQ(read->body.index(), slot.body.index());
    EXPECT_EQ(encode(*read), encode(slot)) << name;
  }
}

TEST(SlotFormat, EveryFlippedBitIsSeen) {
  for (const auto& [name, slot] : one_of_each()) {
    for (std::size_t bit = 0; bit < kSlotBytes * 8; ++bit) {
      SlotBytes bytes = encode(slot);
      bytes[bit / 8] ^= std::byte{1} << (bit % 8);
      ASSERT_FALSE(decode_slot(bytes)) << name << " bit " << bit;
    }
  }
}

TEST(SlotFormat, NothingElseIsASlot) {
  EXPECT_FALSE(decode_slot(SlotBytes{})) << "an empty place";
  std::mt19937_64 random(1);
  for (int i = 0; i < 1000; ++i) {
    SlotBytes bytes;
    for (std::byte& byte : bytes)
      byte = static_cast<std::byte>(random());
    EXPECT_FALSE(decode_slot(bytes));
  }
}

class Numbers : public ::testing::Test, public Keeper {
 protected:
  void store(std::uint32_t number, const SlotBytes& bytes) override { kept_[number] = bytes; }
  void keep(std::uint32_t /*number*/, int /*fd*/) override {}
  void drop(std::uint32_t number) override { EXPECT_EQ(kept_.erase(number), 1U); }

  std::map<std::uint32_t, SlotBytes> kept_;
};

TEST_F(Numbers, AreUsedAgainWithAHigherGeneration) {
  SlotWriter writer(this);
  std::uint32_t one = 0;
  std::uint32_t two = 0;
  writer.store(one, SessionSlot{.id = 1});
  writer.store(two, SessionSlot{.id = 2});
  EXPECT_NE(one, two);
  writer.store(one, SessionSlot{.id = 3});
  EXPECT_EQ(kept_.size(), 2U) << "written again, not elsewhere";
  const std::uint32_t before = one;
  const std::uint64_t generation = decode_slot(kept_.at(one))->generation;
  writer.drop(one);
  EXPECT_EQ(one, 0U);
  std::uint32_t next = 0;
  writer.store(next, SessionSlot{.id = 4});
  EXPECT_EQ(next, before);
  EXPECT_GT(decode_slot(kept_.at(next))->generation, generation);
}

TEST_F(Numbers, AreContinuedAfterAdoption) {
  SlotWriter writer(this);
  kept_[3] = {};
  writer.adopt(3, 41);
  std::map<std::uint32_t, int> seen{{3, 1}};
  for (int i = 0; i < 4; ++i) {
    std::uint32_t number = 0;
    writer.store(number, SessionSlot{.id = 1});
    EXPECT_EQ(++seen[number], 1) << number;
    EXPECT_GT(decode_slot(kept_.at(number))->generation, 41U);
  }
}

TEST(SlotWriter, WithoutAKeeperNumbersNothing) {
  SlotWriter writer(nullptr);
  std::uint32_t number = 0;
  writer.store(number, SessionSlot{.id = 1});
  writer.keep(number, UniqueFd());
  writer.drop(number);
  EXPECT_EQ(number, 0U);
}

}  // namespace
}  // namespace hufu::broker
