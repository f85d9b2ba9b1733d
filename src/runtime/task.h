#pragma once

// What a stream can be told to do. Every address in a task was checked when it was issued, and is
// kept mapped until the task is over.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <variant>

namespace hufu::runtime {

// A ticket that came to nothing: what was to be done had to be refused.
struct Nothing {};

struct CopyTask {
  void* to;
  const void* from;
  std::uint64_t count;
  std::unique_ptr<std::byte[]> kept;  // `from` points into it, when the caller's bytes were taken.
};

struct FillTask {
  void* to;
  std::uint64_t count;
  int value;
};

// The program's own function: may take for ever, may wait for what another stream does.
struct HostTask {
  std::int32_t (*run)(void*);
  void* argument;
};

using Task = std::variant<Nothing, CopyTask, FillTask, HostTask>;

// 0, or the code with which it failed.
inline std::int32_t perform(const Task& task) {
  if (const auto* copy = std::get_if<CopyTask>(&task)) {
    std::memmove(copy->to, copy->from, copy->count);
  } else if (const auto* fill = std::get_if<FillTask>(&task)) {
    std::memset(fill->to, fill->value, fill->count);
  } else if (const auto* host = std::get_if<HostTask>(&task)) {
    return host->run(host->argument);
  }
  return 0;
}

}  // namespace hufu::runtime
