#pragma once

// What a stream can be told to do. Every address in a task was checked when it was issued, and is
// kept mapped until the task is over.
//
// A task is at most a cache line: what needs more keeps it elsewhere. However many pieces a call
// has, it is one task.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <variant>
#include <vector>

#include "runtime/bulk_copy.h"

namespace hufu::runtime {

class Runtime;

// A ticket that came to nothing: what was to be done had to be refused, or is nothing but a place
// in the order.
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

// Of 32-bit words, `to` is aligned for them.
struct FillWordsTask {
  void* to;
  std::uint64_t words;
  std::uint32_t value;
};

// Rows that lie `pitch` apart.
struct Rows {
  void* to;
  std::uint64_t to_pitch;
  const void* from;
  std::uint64_t from_pitch;
  std::uint64_t width;
  std::uint64_t height;
};

struct Piece {
  void* to;
  const void* from;
  std::uint64_t count;
};

// One after the other.
struct BatchTask {
  std::vector<Piece> pieces;
};

// Combines elements of `from` into those of `to`.
using Combiner = void (*)(void* to, const void* from, std::uint64_t elements);
struct ReduceTask {
  void* to;
  const void* from;
  std::uint64_t elements;
  Combiner combine;
};

// See indirect.h. The code with which they fail is ACL_ERROR_RT_SYS_DMA; src/capi asserts it.
inline constexpr std::int32_t kNoCopy = 507013;
struct CellsTask {
  Runtime* runtime;
  const void* to_cell;
  std::uint64_t to_offset;
  const void* from_cell;
  std::uint64_t from_offset;
  std::uint64_t count;
};
struct DescribedTask {
  Runtime* runtime;
  const void* descriptor;
};

// The program's own function: may take for ever, may wait for what another stream does.
struct HostTask {
  std::int32_t (*run)(void*);
  void* argument;
};

using Task = std::variant<Nothing, CopyTask, FillTask, FillWordsTask, Rows, BatchTask, ReduceTask,
                          CellsTask, DescribedTask, HostTask>;
static_assert(sizeof(Task) <= 56, "with its mark, a place of the queue is a cache line");

void fill_words(void* to, std::uint64_t words, std::uint32_t value);
void copy_rows(const Rows& rows);
void copy_pieces(const std::vector<Piece>& pieces);
std::int32_t perform(const CellsTask& task);
std::int32_t perform(const DescribedTask& task);

// 0, or the code with which it failed.
inline std::int32_t perform(const Task& task) {
  if (const auto* copy = std::get_if<CopyTask>(&task)) {
    copy_bytes(copy->to, copy->from, copy->count);
  } else if (const auto* fill = std::get_if<FillTask>(&task)) {
    std::memset(fill->to, fill->value, fill->count);
  } else if (const auto* host = std::get_if<HostTask>(&task)) {
    return host->run(host->argument);
  } else if (const auto* words = std::get_if<FillWordsTask>(&task)) {
    fill_words(words->to, words->words, words->value);
  } else if (const auto* rows = std::get_if<Rows>(&task)) {
    copy_rows(*rows);
  } else if (const auto* batch = std::get_if<BatchTask>(&task)) {
    copy_pieces(batch->pieces);
  } else if (const auto* reduce = std::get_if<ReduceTask>(&task)) {
    reduce->combine(reduce->to, reduce->from, reduce->elements);
  } else if (const auto* cells = std::get_if<CellsTask>(&task)) {
    return perform(*cells);
  } else if (const auto* described = std::get_if<DescribedTask>(&task)) {
    return perform(*described);
  }
  return 0;
}

}  // namespace hufu::runtime
