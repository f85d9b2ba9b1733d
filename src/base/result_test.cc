#include "base/result.h"

#include <cerrno>
#include <string>

#include <gtest/gtest.h>

namespace hufu {
namespace {

TEST(Error, CarriesItsNumbersInTheText) {
  const Error error = fail(Errc::kRefused, Reason::kNotAligned, "offset {} of {}", 64, 4096);
  EXPECT_EQ(error.what(), "offset 64 of 4096");
  EXPECT_EQ(error.reason, Reason::kNotAligned);
}

TEST(Error, CutsATextThatDoesNotFit) {
  const Error error = fail(Errc::kRefused, Reason::kNone, "{}", std::string(4096, 'x'));
  EXPECT_EQ(error.what().size(), error.text.size() - 1);
}

TEST(Error, NamesTheSystemsReason) {
  const Error error = fail_errno("open /nowhere", ENOENT);
  EXPECT_EQ(error.sys_errno, ENOENT);
  EXPECT_NE(error.what().find("No such file"), std::string_view::npos);
}

TEST(Reason, EveryNumberHasItsOwnWord) {
  EXPECT_EQ(name_of(Reason::kNotListed), "pid");
  EXPECT_EQ(name_of(static_cast<Reason>(9999)), "unknown");
}

}  // namespace
}  // namespace hufu
