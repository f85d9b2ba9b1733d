#include "hufu/shares.h"

#include "hufu/output.h"

namespace hufu::cli {

Device::Device(int number) : number_(number) {
  require(fmt::format("choosing device {}", number), ::aclrtSetDevice(number));
}

Device::~Device() { ::aclrtResetDevice(number_); }

std::vector<hufuShareInfo> all_shares() {
  std::vector<hufuShareInfo> shares(16);
  for (;;) {
    shares.front().structSize = sizeof(hufuShareInfo);
    std::size_t count = 0;
    require("listing shares", ::hufuShareList(shares.data(), shares.size(), &count));
    const bool all = count <= shares.size();
    shares.resize(all ? count : 2 * count);
    if (all) return shares;
  }
}

std::optional<hufuShareInfo> find_share(std::string_view public_id) {
  for (const hufuShareInfo& share : all_shares()) {
    if (public_id == share.publicId) return share;
  }
  return std::nullopt;
}

}  // namespace hufu::cli
