#pragma once

// The broker's event loop: sockets and deaths in, Core's answers out.
//
// One thread owns everything. A connection gets one packet served per turn, so that a flood on one
// delays the others by one request each. Sends never wait: whoever does not read its answers is
// cut off. A session ends with the first of: its process's death (pidfd), the end of its socket,
// BYE, or a new HELLO of the same process.

#include <chrono>
#include <optional>
#include <string>
#include <unordered_map>

#include "base/result.h"
#include "base/unique_fd.h"
#include "broker/core.h"
#include "broker/listener.h"
#include "broker/lookout.h"
#include "os/event_loop.h"

namespace hufu::broker {

struct ServerOptions {
  std::string socket_path;
  std::string audit_directory;
  bool audit_is_volatile = false;
  bool accept_damage = false;
  std::chrono::milliseconds idle{10'000};  // Without sessions for so long: leave. 0: never.
  CoreOptions core;
  std::string version;
};

class Server {
 public:
  // Takes the place and opens the log; nothing when another broker already serves the path.
  static Result<std::unique_ptr<Server>> start(const ServerOptions& options);

  // Serves until idle or told to stop.
  Result<void> run();

 private:
  struct Connection {
    UniqueFd socket;
    int pidfd = -1;  // Owned by the session in Core; watched here.
  };

  Server(const ServerOptions& options, Listener listener, os::EventLoop loop, UniqueFd signals,
         audit::Log log, KeySeal seal, os::PublishedMemory life);

  void admit(UniqueFd socket);
  void accept_one();
  void serve(SessionId id);
  void deliver(SessionId id, Answer answer);
  // What the last packet or end gave rise to elsewhere: sessions to close, agents to tell.
  void pass_on();
  void close(SessionId id);
  std::optional<std::chrono::milliseconds> patience() const;
  Result<void> leave();
  bool leave_if_idle();

  ServerOptions options_;
  Listener listener_;
  os::EventLoop loop_;
  UniqueFd signals_;
  audit::Log log_;
  Committer committer_;
  Reaper reaper_;
  Core core_;
  std::unordered_map<SessionId, Connection> connections_;
  SessionId next_session_ = 1;
  std::chrono::steady_clock::time_point idle_since_ = std::chrono::steady_clock::now();
  Lookout lookout_;
  bool listening_ = true;  // False while there is no descriptor left to accept with.
};

}  // namespace hufu::broker
