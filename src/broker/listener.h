#pragma once

// The broker's place: one socket path, at most one broker.
//
// Whoever starts or stops serving a path holds the lock file beside it while doing so. A starter
// that finds somebody accepting has lost and is content; a broker that wants to leave looks once
// more for waiting clients under the lock, so nobody is left connected to a broker that is gone.

#include <optional>
#include <string>

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

  // Gives the place up. What is returned was waiting at the last moment: then the place is kept and
  // the connection must be served.
  Result<UniqueFd> retire();

  // Gives the place up whoever is waiting.
  void leave();

 private:
  Listener(std::string path, UniqueFd socket, std::uint64_t inode)
      : path_(std::move(path)), socket_(std::move(socket)), inode_(inode) {}

  std::string path_;
  UniqueFd socket_;
  std::uint64_t inode_;  // Of the path, to tell our socket from a later one.
};

}  // namespace hufu::broker
