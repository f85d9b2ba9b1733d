#pragma once

// The broker's place: one socket path, at most one broker.
//
// Whoever starts or stops serving a path holds the lock file beside it while doing so. A starter
// that finds somebody accepting has lost and is content. A broker that wants to leave first makes
// the kernel refuse further connections and then looks, under the lock, whether any came before
// that, so nobody is left connected to a broker that is gone. It keeps the lock until it has let go
// of everything (the audit log above all): who starts next waits for that and then has it all.

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"

namespace hufu::broker {

class Listener {
 public:
  // Nothing when another broker already accepts at `path`.
  static Result<std::optional<Listener>> take(const std::string& path);

  int fd() const { return socket_.get(); }
  const std::string& path() const { return path_; }

  // An accepted connection; an invalid fd when nobody waits.
  Result<UniqueFd> accept() const;

  // Is the path still ours? A logout or an over-eager cleaner may have removed it.
  bool still_there() const;

  // Gives the place up. What is returned was waiting at the last moment: then the place is kept, on
  // a new fd(), and these connections must be served.
  Result<std::vector<UniqueFd>> retire();

  // Gives the place up whoever is waiting.
  void leave();

 private:
  Listener(std::string path, UniqueFd socket, std::uint64_t inode)
      : path_(std::move(path)), socket_(std::move(socket)), inode_(inode) {}

  std::string path_;
  UniqueFd socket_;
  std::uint64_t inode_;  // Of the path, to tell our socket from a later one.
  UniqueFd lock_;        // Only while leaving.
};

}  // namespace hufu::broker
