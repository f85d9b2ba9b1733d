#pragma once

// May a copy or a set touch these bytes? The one question that all of them ask, for each side.
//
// A side that the caller calls "device" must be memory that this process allocated or imported. A
// host side is taken as it is, any address that can be read is good; when it happens to be memory
// that the runtime knows, it is checked as such. A known range lies inside one allocation or
// import, and is written only where that may be written.

#include <cstdint>
#include <string_view>

#include "base/result.h"
#include "runtime/runtime.h"
#include "runtime/stream.h"

namespace hufu::runtime {

enum class Side : std::uint8_t { kHost, kDevice, kAny };
enum class Use : std::uint8_t { kRead, kWrite };

// What lies at an address.
enum class Memory : std::uint8_t {
  kPageable,  // The runtime knows nothing of it: the program's own.
  kHost,      // The host's, and the runtime is told when it ends.
  kDevice,
};

struct Found {
  Memory memory = Memory::kPageable;
  int device = 0;  // Of device memory.
};

// `count` is what the caller wants to touch from `pointer` on, not 0.
Result<Found> check_range(Runtime& runtime, const void* pointer, std::uint64_t count, Side side,
                          Use use);

// `name` is what the caller's limit is called.
Result<void> check_room(std::uint64_t room, std::uint64_t count, std::string_view name);

inline bool is_elsewhere(const Found& found, int device) {
  return found.memory == Memory::kDevice && found.device != device;
}

// For what a stream is to do: `check` looks at all addresses and returns what they are, a Result of
// something that has reaches_across(device). Does the task touch another device's memory? Then it
// is said before the addresses are looked up once more: whoever frees that memory looks for such
// streams after he has taken it away.
template <class Check>
auto check_for(Stream& stream, const Check& check) -> decltype(check()) {
  auto found = check();
  if (!found || stream.crosses.load() || !found->reaches_across(stream.device.load())) return found;
  stream.crosses = true;
  return check();
}

}  // namespace hufu::runtime
