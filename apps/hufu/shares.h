#pragma once

// What the broker says about shares, as the commands want it.

#include <optional>
#include <string_view>
#include <vector>

#include "hufu/hufu.h"

namespace hufu::cli {

// The device that a command works on: chosen, and let go at the end.
class Device {
 public:
  explicit Device(int number);
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

 private:
  int number_;
};

std::vector<hufuShareInfo> all_shares();
std::optional<hufuShareInfo> find_share(std::string_view public_id);

}  // namespace hufu::cli
