#include "share/refusal.h"

#include <array>
#include <cerrno>
#include <set>
#include <string>

#include <gtest/gtest.h>

namespace hufu::share {
namespace {

constexpr std::array<std::uint64_t, 4> kNumbers = {111111, 222222, 333333, 444444};

RefusalContext somewhere() {
  return {.what = "import of key 0f1e",
          .broker = "/tmp/b/broker.sock",
          .mode = BrokerMode::kPersonal,
          .broker_uid = 1234};
}

// Every number that base/reason.h knows, whatever is added to it.
std::vector<Reason> all_reasons() {
  std::vector<Reason> reasons;
  for (unsigned number = 0; number < 1000; ++number) {
    const auto reason = static_cast<Reason>(number);
    if (name_of(reason) != "unknown") reasons.push_back(reason);
  }
  return reasons;
}

// How many numbers a reason has, as the comments in base/reason.h say.
std::size_t numbers_of(Reason reason) {
  switch (reason) {
    case Reason::kNotBuilt:
    case Reason::kUnknownBlock:
    case Reason::kSlabPiece:
    case Reason::kKeyMalformed:
    case Reason::kUnmappedUser:
    case Reason::kNoSuchProcess:
    case Reason::kBrokerSilent:
      return 1;
    case Reason::kVersion:
    case Reason::kNotCommitted:
    case Reason::kPartOfBlock:
    case Reason::kOtherUser:
    case Reason::kNotExporter:
    case Reason::kListFull:
    case Reason::kNoDevice:
    case Reason::kDescriptors:
    case Reason::kTooManyExports:
    case Reason::kMemory:
    case Reason::kTooManySessions:
    case Reason::kSizeTooLarge:
    case Reason::kTooManyBlocks:
    case Reason::kTooManyShares:
    case Reason::kTooManyHolds:
    case Reason::kTooManyListed:
      return 2;
    case Reason::kNotAligned:
    case Reason::kNotListed:
      return 3;
    case Reason::kIdentityChanged:
    case Reason::kOutOfRange:
    case Reason::kCapacity:
      return 4;
    default:
      return 0;
  }
}

TEST(Refusal, EveryReasonSaysWhatWasTriedWhyAndWhatToDo) {
  std::set<std::string> texts;
  const auto reasons = all_reasons();
  ASSERT_GT(reasons.size(), 40U);
  for (const Reason reason : reasons) {
    const Error error = to_error(reason, kNumbers, somewhere());
    const std::string text(error.what());
    EXPECT_EQ(error.reason, reason);
    EXPECT_TRUE(text.starts_with("import of key 0f1e: ")) << text;
    EXPECT_GT(text.size(), 60U) << text;
    EXPECT_LT(text.size(), error.text.size() - 1) << "cut: " << text;
    EXPECT_TRUE(texts.insert(text).second) << "said twice: " << text;
  }
}

TEST(Refusal, EveryNumberOfAReasonIsInItsText) {
  for (const Reason reason : all_reasons()) {
    const Error error = to_error(reason, kNumbers, somewhere());
    for (std::size_t i = 0; i < numbers_of(reason); ++i) {
      EXPECT_NE(error.what().find(std::to_string(kNumbers[i])), std::string_view::npos)
          << name_of(reason) << " number " << i << ": " << error.what();
    }
  }
}

TEST(Refusal, NumbersThatAreNotDecimalAreInTheTextToo) {
  const auto says = [](Reason reason, std::array<std::uint64_t, 4> numbers, const char* part) {
    return to_error(reason, numbers, somewhere()).what().find(part) != std::string_view::npos;
  };
  EXPECT_TRUE(says(Reason::kUnregistered, {0xdead}, "0xdead"));
  EXPECT_TRUE(says(Reason::kSealsChanged, {0x3e, 0x26}, "0x3e"));
  EXPECT_TRUE(says(Reason::kSealsChanged, {0x3e, 0x26}, "0x26"));
  EXPECT_TRUE(says(Reason::kSealKind, {1, 3}, "read-only"));
  EXPECT_TRUE(says(Reason::kSealKind, {1, 3}, "read-write"));
  EXPECT_TRUE(says(Reason::kBadFlags, {0x80}, "0x80"));
  EXPECT_TRUE(says(Reason::kSystem, {EACCES}, "Permission denied"));
}

TEST(Refusal, AForeignKeyNamesThisBrokerAndTheOther) {
  const Error error = to_error(Reason::kKeyUnknown, {}, somewhere());
  for (const auto* part :
       {"was not issued by the broker at /tmp/b/broker.sock (personal, uid 1234)",
        "or it was altered", "HUFU_BROKER"}) {
    EXPECT_NE(error.what().find(part), std::string_view::npos) << error.what();
  }
}

TEST(Refusal, CodesAreTheContracts) {
  EXPECT_EQ(errc_of(Reason::kNotAligned), Errc::kRefused);
  EXPECT_EQ(errc_of(Reason::kSlabPiece), Errc::kRefused);
  EXPECT_EQ(errc_of(Reason::kNotListed), Errc::kRefused);
  EXPECT_EQ(errc_of(Reason::kNotExporter), Errc::kRefused);
  EXPECT_EQ(errc_of(Reason::kNoSuchProcess), Errc::kRefused);
  EXPECT_EQ(errc_of(Reason::kListDisabled), Errc::kNotPermitted);
  EXPECT_EQ(errc_of(Reason::kListFull), Errc::kTableFull);
  EXPECT_EQ(errc_of(Reason::kTooManyExports), Errc::kTableFull);
  for (const Reason reason :
       {Reason::kCapacity, Reason::kDescriptors, Reason::kMemory, Reason::kSizeTooLarge}) {
    EXPECT_EQ(errc_of(reason), Errc::kOutOfMemory);
  }
  EXPECT_EQ(errc_of(Reason::kUnregistered), Errc::kUnregistered);
  EXPECT_EQ(errc_of(Reason::kEmptyRange), Errc::kInvalidValue);
  EXPECT_EQ(errc_of(static_cast<Reason>(999)), Errc::kRefused);
}

TEST(Refusal, ANumberFromANewerBrokerIsStillAnError) {
  const Error error = to_error(
      wire::Refusal{.reason = 999, .reserved = 0, .sys_errno = 0, .number = {}}, somewhere());
  EXPECT_NE(error.what().find("999"), std::string_view::npos);
}

TEST(Refusal, NoTextHoldsAKey) {
  const std::string key(64, 'Q');
  EXPECT_EQ(what_with_key("import", key.c_str()).find("QQQQ"), std::string::npos);
  EXPECT_EQ(what_with_key("import", (key + "Q").c_str()).find("QQQQ"), std::string::npos);
  EXPECT_NE(what_with_key("import", key.c_str()),
            what_with_key("import", std::string(64, 'R').c_str()));
}

}  // namespace
}  // namespace hufu::share
