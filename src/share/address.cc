#include "share/address.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "os/file.h"
#include "os/socket.h"

namespace hufu::share {
namespace {

constexpr std::string_view kUnixPrefix = "unix:";

// Only a plain "no" is a no: a socket that we are not allowed to see is there, as far as we know.
bool may_exist(const std::string& path) {
  struct stat status {};
  return ::lstat(path.c_str(), &status) == 0 || (errno != ENOENT && errno != ENOTDIR);
}

bool is_own_directory(const std::string& path, std::uint32_t uid) {
  struct stat status {};
  return ::lstat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode) && status.st_uid == uid;
}

Result<BrokerAddress> parse(const Surroundings& here) {
  const std::string_view text = here.hufu_broker;
  if (text == "none") return BrokerAddress{};
  if (text.starts_with(kUnixPrefix)) {
    const std::string path(text.substr(kUnixPrefix.size()));
    const auto slash = path.rfind('/');
    const bool names_a_file = slash != std::string::npos && slash + 1 < path.size();
    // hufud's working directory is /, so a relative path would mean two places.
    if (path.starts_with('/') && names_a_file && path.size() <= os::kMaxSocketPath) {
      if (path == here.system_socket) return BrokerAddress{BrokerMode::kSystem, path, false};
      return BrokerAddress{BrokerMode::kPersonal, path, true};
    }
  }
  return fail(
      Errc::kInvalidValue, Reason::kBrokerUntrusted,
      "HUFU_BROKER is \"{:.120}\"; allowed are \"none\" (no broker, nothing can be shared), "
      "\"unix:PATH\" with an absolute path of at most {} bytes, or leaving it unset (the "
      "system broker at {} if it is there, else your own)",
      text, os::kMaxSocketPath, here.system_socket);
}

}  // namespace

std::string_view name_of(BrokerMode mode) {
  switch (mode) {
    case BrokerMode::kNone:
      return "none";
    case BrokerMode::kPersonal:
      return "personal";
    case BrokerMode::kSystem:
      return "system";
  }
  return "unknown";
}

Result<BrokerAddress> choose_broker() {
  return choose_broker(Surroundings{.hufu_broker = os::env("HUFU_BROKER"), .uid = ::geteuid()});
}

Result<BrokerAddress> choose_broker(const Surroundings& here) {
  if (!here.hufu_broker.empty()) return parse(here);
  if (may_exist(here.system_socket)) {
    return BrokerAddress{BrokerMode::kSystem, here.system_socket, false};
  }
  const std::string runtime = fmt::format("{}/{}", here.runtime_root, here.uid);
  if (is_own_directory(runtime, here.uid)) {
    return BrokerAddress{BrokerMode::kPersonal, runtime + "/hufu/broker.sock", true};
  }
  return BrokerAddress{BrokerMode::kPersonal,
                       fmt::format("{}/hufu-{}/broker.sock", here.temporary_root, here.uid), true};
}

}  // namespace hufu::share
