#pragma once

// The files that commands read and write.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/unique_fd.h"

namespace hufu::cli {

// A file or pipe to be read once, from where it stands to its end.
class Source {
 public:
  // "-" is stdin. Directories and devices are Failures.
  static Source open(const std::string& path);

  const std::string& name() const { return name_; }
  // Nothing for a pipe, which does not say.
  std::optional<std::uint64_t> size() const { return size_; }

  // At most buffer.size() bytes, 0 at the end. A Failure when `stop` becomes readable first.
  std::size_t read(std::span<std::byte> buffer, int stop) const;

 private:
  std::string name_;
  UniqueFd owned_;
  int fd_ = -1;  // owned_, or stdin.
  std::optional<std::uint64_t> size_;
};

// Writes a secret: mode 0600, whole or not at all. It replaces a file of this user's and nothing
// else, in particular it follows no symlink.
void write_secret(const std::string& path, std::string_view text);

// Writes the bytes to a file (made with mode 0600), or to stdout for "-".
void write_bytes(const std::string& path, std::span<const std::byte> bytes);

// At most a few KiB, which is what a key file has; larger is a Failure. "-" is stdin.
std::string read_key_file(const std::string& path);

}  // namespace hufu::cli
