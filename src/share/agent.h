#pragma once

// Agent: what the broker says without being asked, heard by a thread of this process.
//
//   a caller                       the thread "hufu-agent"
//   listen(): ATTACH  ──socket──▶  reads events, one after the other:
//                                    an event of a share   ──▶ its callback, then who waits for it
//                                    RETURN                ──▶ on_return()'s function
//                                    the socket's end      ──▶ attaches again, if somebody wants
//                                                              to be told; who waits asks anew
//
// There is no thread before the first listen(). An event can be lost, with the connection or with
// the broker: so after each ATTACH whoever wants events asks with WATCH how things are, and what
// changed meanwhile is told then. Nobody waits for an event that cannot come any more.
//
// A callback runs on the agent's thread, without any lock of Hufu held: it may call whatever it
// likes, but not wait for another event. Thread-safe. Lock order: this one's mutex, then the
// client's.

#include <cstdint>
#include <functional>
#include <memory>

#include "base/result.h"
#include "share/client.h"
#include "share/public_id.h"
#include "wire/message.h"

namespace hufu::share {

class Agent {
 public:
  using Told = std::function<void(wire::EventKind what)>;

  // `client` must outlive this. It is told when the client's imports are closed.
  explicit Agent(Client& client);
  ~Agent();  // Waits for a callback that runs; none runs after it.
  Agent(const Agent&) = delete;
  Agent& operator=(const Agent&) = delete;

  // Makes sure that the events of the client's session are heard; opens one if need be. Two loads
  // when they are: call it whenever there is something to be told about.
  Result<void> listen();

  // What gives memory back that is held in reserve, when another process needs it (D11); called on
  // the agent's thread while listen() has been called. It is not called for this process's own
  // requests: a request in flight would keep it from saying FREE. So whoever is refused for want of
  // capacity gives back its own reserve first, and asks again.
  void on_return(std::function<void()> give_back);

  // Calls `told` for each event of an export or import of this process: until the key's
  // clear_callback(), the close of the import, or the end of the share.
  Result<void> set_callback(const char* key, Told told);
  // When it returns the callback does not run, and never will; called from inside it, it does not
  // wait for itself.
  void clear_callback(const PublicId& key);

  // Until nobody has the key imported: true. After `timeout_ms` (-1: never): false. Only the
  // exporter and an importer may ask.
  Result<bool> wait_released(const char* key, int timeout_ms);

  // In a forked child, where there is no thread: as Client::forget_after_fork().
  void forget_after_fork();

 private:
  struct State;
  Client& client_;
  State* state_;  // Owned; see Client::state_.
};

}  // namespace hufu::share
