#pragma once

// Where the broker and its log are, without starting one: looking must not change what is seen.

#include <optional>
#include <string>

#include "audit/location.h"
#include "os/socket.h"
#include "share/address.h"

namespace hufu::cli {

struct Place {
  share::BrokerAddress address;
  std::optional<os::Credentials> broker;  // Who listens there; nothing if nobody does.
};

// Who listens on a socket. Nothing if nobody does, or if we may not ask.
std::optional<os::Credentials> listener_at(const std::string& socket);

// The broker that this process would use. A Failure if HUFU_BROKER makes no sense.
Place find_broker();

// Where the broker of that address keeps its log.
audit::Home audit_home(const share::BrokerAddress& address);

// `asked` (--dir) if not empty, else where the broker of this process keeps its log.
std::string audit_directory(const std::string& asked);

}  // namespace hufu::cli
