#pragma once

// Writing into a file through a shared mapping of it: for who writes a little at a time, often, and
// must have it in the file, not in this process, before going on. What was stored survives this
// process's end like what write() wrote; the disk gets it with the next fdatasync of the file.
//
// The price is how failure looks. What write() returns as an error (the file was cut off under us,
// a page cannot be read back, a file system that copies on write is full) the kernel says to a
// store with SIGBUS. store() makes an error of that, for its own stores only: any other SIGBUS is
// what it was before.

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/result.h"

namespace hufu::os {

class MappedFile {
 public:
  // The first `length` bytes of the file, which must have them; it stays the caller's. Fails where
  // the file system cannot do it. From the first call on this process has a handler for SIGBUS.
  static Result<MappedFile> map(int fd, std::size_t length);

  MappedFile() = default;
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  explicit operator bool() const { return base_ != nullptr; }

  // All of them before what the next call stores, also in the eyes of who looks when this process
  // was killed in between. After a failure (EIO) any part may have been stored.
  Result<void> store(std::size_t offset, std::span<const std::byte> bytes);

 private:
  MappedFile(std::byte* base, std::size_t length) : base_(base), length_(length) {}

  std::byte* base_ = nullptr;
  std::size_t length_ = 0;
};

}  // namespace hufu::os
