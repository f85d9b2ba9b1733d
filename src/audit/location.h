#pragma once

// Where a broker's log lies, so that the broker and `hufu audit` look in the same place.

#include <string>

namespace hufu::audit {

struct Home {
  std::string path;
  bool is_volatile = false;  // A reboot or a logout deletes it; START says so.
};

// `chosen` (HUFU_AUDIT_DIR or --audit-dir) if not empty. Else, for a user's own broker, the user's
// state directory: $XDG_STATE_HOME/hufu, or .local/state/hufu in the home directory of the user
// database (not of the environment). Else, and for a broker on any other socket, `audit` beside the
// socket.
Home choose_directory(const std::string& chosen, const std::string& socket);

}  // namespace hufu::audit
