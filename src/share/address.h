#pragma once

// Which broker this process talks to.
//
//   HUFU_BROKER=none        no broker: memory is local, sharing is refused
//   HUFU_BROKER=unix:PATH   the broker of that socket, started there on demand
//   unset                   the system's, if its socket exists; else this user's own
//
// The choice fails closed. A system socket that exists is used or is an error, never a reason to
// fall back to a personal broker: a key of one is worth nothing at the other, and somebody who can
// hinder the system broker must not thereby choose who decides. The personal path follows from the
// uid ALONE, so that two processes of one user meet whatever their environments say.

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace hufu::share {

enum class BrokerMode : std::uint8_t { kNone, kPersonal, kSystem };

// "none", "personal", "system".
std::string_view name_of(BrokerMode mode);

struct BrokerAddress {
  BrokerMode mode = BrokerMode::kNone;
  std::string path;  // Empty when there is none.
  bool start_on_demand = false;
};

Result<BrokerAddress> choose_broker();

// What the choice depends on, so that a test can state it.
struct Surroundings {
  std::string hufu_broker;  // The variable's value; empty when unset.
  std::uint32_t uid = 0;
  std::string system_socket = "/run/hufu/broker.sock";
  std::string runtime_root = "/run/user";
  std::string temporary_root = "/tmp";
};
Result<BrokerAddress> choose_broker(const Surroundings& here);

}  // namespace hufu::share
