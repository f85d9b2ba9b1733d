#include "audit/location.h"

#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <filesystem>

#include "base/result.h"
#include "os/file.h"

#include <pwd.h>

namespace hufu::audit {
namespace {

bool is_users_own(const std::filesystem::path& directory) {
  const auto uid = ::geteuid();
  return directory == fmt::format("/run/user/{}/hufu", uid) ||
         directory == fmt::format("/tmp/hufu-{}", uid);
}

std::string home_directory() {
  std::array<char, 4096> buffer{};
  passwd entry{};
  passwd* found = nullptr;
  if (::getpwuid_r(::geteuid(), &entry, buffer.data(), buffer.size(), &found) != 0) return {};
  return found == nullptr ? std::string() : std::string(found->pw_dir);
}

// Makes the missing directories on the way, private ones. False when the place is not to be had.
bool can_hold(const std::filesystem::path& directory) {
  std::error_code failed;
  const auto before = ::umask(077);
  std::filesystem::create_directories(directory, failed);
  ::umask(before);
  return !failed && ::access(directory.c_str(), W_OK) == 0;
}

}  // namespace

// NOLINTNEXTLINE(bugprone-easily-swappable-parameters): one call, with named members.
Home choose_directory(const std::string& chosen, const std::string& socket) {
  if (!chosen.empty()) return {.path = chosen};
  const auto beside = std::filesystem::path(socket).parent_path();
  if (is_users_own(beside)) {
    std::string state = os::env("XDG_STATE_HOME");
    if (state.empty()) {
      const std::string home = home_directory();
      if (!home.empty()) state = home + "/.local/state";
    }
    const std::filesystem::path own = std::filesystem::path(state) / "hufu";
    if (state.starts_with('/') && can_hold(own)) return {.path = own};
  }
  return {.path = beside / "audit", .is_volatile = true};
}

}  // namespace hufu::audit
