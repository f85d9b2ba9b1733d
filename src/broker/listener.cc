#include "broker/listener.h"

#include <cerrno>
#include <filesystem>
#include <utility>

#include "os/file.h"
#include "os/socket.h"

namespace hufu::broker {
namespace {

constexpr int kBacklog = 512;

std::string lock_path(const std::string& path) { return path + ".lock"; }

}  // namespace

Result<std::optional<Listener>> Listener::take(const std::string& path) {
  const std::string directory = std::filesystem::path(path).parent_path();
  if (auto safe = os::ensure_private_directory(directory); !safe) return safe.error();
  const auto lock = os::lock_file(lock_path(path), /*wait=*/true);
  if (!lock) return lock.error();

  const auto other = os::connect_to(path);
  // EAGAIN: its queue is full, so it is there.
  if (other || other.error().sys_errno == EAGAIN) return std::optional<Listener>();
  if (other.error().sys_errno != ENOENT && other.error().sys_errno != ECONNREFUSED) {
    return other.error();
  }
  os::remove_socket(path);  // Left by a broker that was killed.
  auto socket = os::listen_at(path, kBacklog);
  if (!socket) return socket.error();
  const std::uint64_t inode = os::inode_of(path);
  return std::optional<Listener>(Listener(path, std::move(*socket), inode));
}

Result<UniqueFd> Listener::accept() const { return os::accept_from(socket_.get()); }

bool Listener::still_there() const { return os::inode_of(path_) == inode_; }

Result<std::vector<UniqueFd>> Listener::retire() {
  auto lock = os::lock_file(lock_path(path_), /*wait=*/false);
  // Somebody is starting a broker here: it will find us, so stay. Where the directory is gone
  // nobody can, nor find us.
  if (!lock && lock.error().sys_errno != ENOENT) return lock.error();
  os::refuse_connections(socket_.get());
  std::vector<UniqueFd> late;
  for (auto one = accept(); one && one->valid(); one = accept())
    late.push_back(std::move(*one));
  if (late.empty()) {
    if (lock) lock_ = std::move(*lock);
    leave();
    return late;
  }
  // What refuses once refuses for ever.
  if (still_there()) os::remove_socket(path_);
  if (auto socket = os::listen_at(path_, kBacklog)) {
    socket_ = std::move(*socket);
    inode_ = os::inode_of(path_);
  } else {
    socket_.reset();  // They are the last.
  }
  return late;
}

void Listener::leave() {
  if (!lock_) {
    // Without waiting: whoever has it is starting, and must not be able to keep us from ending.
    if (auto lock = os::lock_file(lock_path(path_), /*wait=*/false)) lock_ = std::move(*lock);
  }
  if (still_there()) os::remove_socket(path_);
  socket_.reset();
}

}  // namespace hufu::broker
