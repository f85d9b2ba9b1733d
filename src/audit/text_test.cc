#include "audit/text.h"

#include <array>
#include <cstdint>
#include <string>

#include <gtest/gtest.h>

#include "audit/test_log.h"

namespace hufu::audit {
namespace {

TEST(Text, ARefusalNamesWhatWasAskedWhyAndBothSides) {
  Record record = test::refused_import(0x1B);
  record.seq = 42;
  record.realtime_ns = 1'785'412'800'123'456'789;
  EXPECT_EQ(to_line(record),
            "2026-07-30T12:00:00.123456789Z #42 IMPORT deny/pid pid=4027 uid=1000 "
            "comm=\"python3\" key=1b1b1b1b1b1b1b1b1b1b1b1b1b1b1b1b size=8192 owner_pid=3999 "
            "owner_uid=1000");
}

std::string escaped_name(const std::array<char, 16>& name) { return escaped(name); }

TEST(Text, ANameCannotSpeakToTheTerminalOrForgeALine) {
  EXPECT_EQ(escaped_name({'\x1b', '[', '2', 'J', '\n', '"', '\\', '\xC3', '\x7f'}),
            "\\x1b[2J\\x0a\\x22\\x5c\\xc3\\x7f");
  // All sixteen bytes used: there is no NUL to stop at.
  EXPECT_EQ(escaped_name(
                {'a', 'a', 'a', 'a', 'a', 'a', 'a', 'a', 'a', 'a', 'a', 'a', 'a', 'a', 'a', 'b'}),
            "aaaaaaaaaaaaaaab");
}

TEST(Text, TheLogsOwnRecordsSayWhatHappenedToTheLog) {
  Record start{
      .type = Type::kStart,
      .own =
          Start{.instance = test::id_of(0xAB), .volatile_home = true, .version = {'0', '.', '1'}}};
  EXPECT_EQ(to_line(start),
            "1970-01-01T00:00:00.000000000Z #0 START info version=0.1 "
            "instance=abababababababababababababababab volatile");
  Record recovery{.type = Type::kRecovery,
                  .own = Recovery{.segment = 3, .offset = 512, .bytes = 256}};
  EXPECT_NE(to_line(recovery).find("torn_tail file=000000000003.hfa offset=512 cut=256"),
            std::string::npos);
}

TEST(Text, EveryTypeHasAWordOfItsOwn) {
  std::string words;
  for (std::uint16_t number = 1; number <= 27; ++number) {
    const auto word = name_of(static_cast<Type>(number));
    EXPECT_NE(word, "UNKNOWN") << number;
    EXPECT_EQ(words.find(fmt::format(" {} ", word)), std::string::npos) << word;
    words += fmt::format(" {} ", word);
  }
  EXPECT_EQ(name_of(static_cast<Type>(60000)), "UNKNOWN");
}

}  // namespace
}  // namespace hufu::audit
