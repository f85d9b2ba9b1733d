#pragma once

// Where the heap's blocks come from when there is a broker: memory/ knows no broker and share/
// knows no heap, so they are introduced to each other here.

#include <cstdint>

#include "memory/source.h"
#include "share/client.h"

namespace hufu::runtime {

class BrokerSource final : public memory::PageSource {
 public:
  explicit BrokerSource(share::Client& client) : client_(client) {}

  Result<memory::Minted> mint(const memory::BlockSpec& spec) override;
  void give_back(std::uint64_t id, memory::Lent lent) override;
  Result<memory::Capacity> capacity(int device) override;

 private:
  share::Client& client_;
};

}  // namespace hufu::runtime
