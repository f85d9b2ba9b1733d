#include "share/handle_name.h"

#include <algorithm>
#include <cstring>
#include <string_view>

#include "wire/codec.h"

namespace hufu::share {
namespace {

constexpr std::array<std::byte, 8> kHead = {std::byte{'h'}, std::byte{'u'}, std::byte{'f'},
                                            std::byte{'u'}, std::byte{1},   std::byte{0},
                                            std::byte{0},   std::byte{0}};
constexpr std::size_t kSealedSize = sizeof(wire::ExportHandleReply::key);

}  // namespace

FabricHandle fabric_handle_of(const wire::ExportHandleReply& exported) {
  FabricHandle fabric{};
  std::copy(kHead.begin(), kHead.end(), fabric.begin());
  std::memcpy(fabric.data() + kHead.size(), exported.key.data(), kSealedSize);
  return fabric;
}

HandleName HandleName::of_token(std::uint64_t token) {
  return HandleName(wire::text_of_token(token));
}

HandleName HandleName::of_fabric(std::span<const std::byte, kFabricHandleSize> fabric) {
  std::array<char, kSealedSize> sealed{};
  std::memcpy(sealed.data(), fabric.data() + kHead.size(), sealed.size());
  const auto padding = fabric.subspan<kHead.size() + kSealedSize>();
  const bool ours = std::equal(kHead.begin(), kHead.end(), fabric.begin()) &&
                    std::ranges::all_of(padding, [](std::byte b) { return b == std::byte{0}; });
  if (!ours) return HandleName(wire::text_of_fabric({}));
  return HandleName(wire::text_of_fabric({sealed.data(), sealed.size()}));
}

}  // namespace hufu::share
