#include "share/handle_name.h"

#include <cstring>
#include <string_view>

#include <gtest/gtest.h>

#include "wire/codec.h"

namespace hufu::share {
namespace {

constexpr std::string_view kSealed =
    "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8gISIjJCUmJygpKissLS4v";

FabricHandle fabric_handle() {
  wire::ExportHandleReply reply{};
  std::copy(kSealed.begin(), kSealed.end(), reply.key.begin());
  return fabric_handle_of(reply);
}

TEST(FabricHandle, CarriesTheSealedKey) {
  const HandleName name = HandleName::of_fabric(fabric_handle());
  EXPECT_EQ(name.text().length, wire::kFabricForm);
  EXPECT_EQ(wire::view_of(name.text()), kSealed);
}

TEST(FabricHandle, HasOneForm) {
  const FabricHandle good = fabric_handle();
  for (std::size_t i = 0; i < good.size(); ++i) {
    FabricHandle bad = good;
    bad[i] ^= std::byte{1};
    const HandleName name = HandleName::of_fabric(bad);
    // Not refused here: the broker must hear of it.
    EXPECT_EQ(name.text().length, wire::kFabricForm);
    EXPECT_NE(wire::view_of(name.text()), kSealed) << "byte " << i << " is looked at";
  }
}

TEST(FabricHandle, IsWrittenDown) {
  const FabricHandle fabric = fabric_handle();
  const std::string_view text(reinterpret_cast<const char*>(fabric.data()), fabric.size());
  EXPECT_EQ(text.substr(0, 8), std::string_view("hufu\x01\0\0\0", 8));
  EXPECT_EQ(text.substr(8, 64), kSealed);
  EXPECT_EQ(text.substr(72).find_first_not_of('\0'), std::string_view::npos);
}

TEST(Token, IsANameOfItsOwnForm) {
  EXPECT_EQ(wire::token_of(HandleName::of_token(42).text()), 42U);
}

}  // namespace
}  // namespace hufu::share
