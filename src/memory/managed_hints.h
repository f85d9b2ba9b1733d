#pragma once

// ManagedHints: what a program advised about parts of one block of managed memory.
//
// Host and devices have one memory here, so no hint moves anything; they are remembered and told.
// Each 4-KiB page has its own; a question about several pages has the answer that holds for all of
// them:
//
//   advised      |  read mostly     |                       |
//                        |  preferred: device 1     |
//   pieces       |  R    |  R, 1    |  1            |       |     one more at each border, at most
//
// Not thread-safe: the heap's lock guards it.

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>

namespace hufu::memory {

// An aclrtMemManagedLocation.
struct ManagedPlace {
  std::int32_t type = 0;
  std::int32_t id = 0;
  bool operator==(const ManagedPlace&) const = default;
};

struct ManagedHint {
  bool read_mostly = false;
  std::optional<ManagedPlace> preferred;
  std::set<std::int32_t> accessed_by;  // Devices, and -1 for the host.
  std::optional<ManagedPlace> last_prefetch;
  bool operator==(const ManagedHint&) const = default;
};

class ManagedHints {
 public:
  explicit ManagedHints(std::uint64_t size) : size_(size) {}

  struct Part {  // Not empty, inside the block; means the pages that it touches.
    std::uint64_t offset;
    std::uint64_t size;
  };
  void change(Part part, const std::function<void(ManagedHint&)>& how);

  // What is true of all of it.
  ManagedHint of(Part part) const;

 private:
  // So that a piece begins there.
  void cut(std::uint64_t offset);

  std::uint64_t size_;
  std::map<std::uint64_t, ManagedHint> pieces_{{0, {}}};  // Each up to the next one.
};

}  // namespace hufu::memory
