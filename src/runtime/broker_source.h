#pragma once

// Where the heap's blocks come from when there is a broker: memory/ knows no broker and share/
// knows no heap, so they are introduced to each other here.
//
// A program that asks for many small blocks of one kind gets them minted several at a time, twice
// as many with each call: the rest are spares. A spare is an empty file that the broker has charged
// already; nothing of it is mapped or committed. It counts as free here and goes back on demand,
// so there are none where nobody listens for the demand.
// Spares of another kind than the one asked for stay until somebody wants them or the room.
//
// Thread-safe.

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

#include "memory/source.h"
#include "share/agent.h"
#include "share/client.h"

namespace hufu::runtime {

class BrokerSource final : public memory::PageSource {
 public:
  static constexpr std::uint64_t kMaxSpareSize = 2 * kMiB;  // Bigger blocks are minted singly.
  static constexpr std::uint64_t kMaxSpareBytes = 8 * kMiB;
  static constexpr std::size_t kMaxSpares = 64;

  // Both outlive this. The agent hears when the broker wants spares and reserves back.
  BrokerSource(share::Client& client, share::Agent& agent) : client_(client), agent_(agent) {}

  Result<memory::Minted> mint(const memory::BlockSpec& spec) override;
  Result<void> charge(std::uint64_t id, std::uint64_t bytes) override;
  void give_back(std::uint64_t id, memory::Lent lent) override;
  void end_keys(std::uint64_t id) override;
  void end_keys(std::uint64_t id, std::uint64_t offset, std::uint64_t size) override;
  Result<memory::Capacity> capacity(int device) override;
  std::uint64_t session() const override { return client_.generation(); }
  bool reserve_begins() override { return agent_.listen().has_value(); }
  void count_in(memory::Usage* usage) override;
  std::uint64_t give_back_spares() override;

 private:
  struct Spare {
    memory::BlockSpec spec;
    std::uint64_t session;
    memory::Minted minted;
  };

  // How many to mint for this request, the one that is asked for among them.
  std::size_t batch_for(const memory::BlockSpec& spec);
  void forget_stale();
  void count(const memory::BlockSpec& spec, std::int64_t sign) const;

  share::Client& client_;
  share::Agent& agent_;
  mutable std::mutex mutex_;
  std::vector<Spare> spares_;  // The newest last.
  std::uint64_t spare_bytes_ = 0;
  memory::Usage* usage_ = nullptr;
  memory::BlockSpec last_spec_{};
  std::size_t last_batch_ = 0;
};

}  // namespace hufu::runtime
