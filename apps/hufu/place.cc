#include "hufu/place.h"

#include <sys/socket.h>

#include <cerrno>

#include "hufu/output.h"
#include "os/file.h"

namespace hufu::cli {

std::optional<os::Credentials> listener_at(const std::string& socket) {
  const auto connected = os::connect_to(socket);
  if (!connected) return std::nullopt;
  ucred peer{};
  socklen_t size = sizeof peer;
  if (::getsockopt(connected->get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) {
    return std::nullopt;
  }
  return os::Credentials{.pid = peer.pid, .uid = peer.uid, .gid = peer.gid};
}

Place find_broker() {
  const auto address = share::choose_broker();
  if (!address) fail_with(address.error());
  Place place{.address = *address, .broker = {}};
  if (address->mode != share::BrokerMode::kNone) place.broker = listener_at(address->path);
  return place;
}

audit::Home audit_home(const share::BrokerAddress& address) {
  return audit::choose_directory(os::env("HUFU_AUDIT_DIR"), address.path);
}

std::string audit_directory(const std::string& asked) {
  if (!asked.empty()) return asked;
  const auto address = share::choose_broker();
  if (!address) fail_with(address.error());
  if (address->mode == share::BrokerMode::kNone) {
    throw Failure{ENOENT,
                  "HUFU_BROKER=none: without a broker there is no audit log; --dir DIR names one"};
  }
  return audit_home(*address).path;
}

}  // namespace hufu::cli
