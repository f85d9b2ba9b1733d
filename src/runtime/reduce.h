#pragma once

// Reductions: to[i] becomes to[i] combined with from[i], element by element, from the first to the
// last.
//
//   integers       wrap around, as unsigned arithmetic does
//   float, double  as the processor's addition
//   float16, bf16  the exact result, rounded once to the nearest, ties to even; a sum too large for
//                  the type is an infinity
//   max, min       not a number wins over every number; +0 is above -0
//
// Why float arithmetic rounds the short ones right: its 24 bits are at least twice their 11 or 8
// and two more, and then the rounding to float never decides the rounding after it.

#include <cstddef>
#include <cstdint>

#include "base/result.h"
#include "runtime/copy.h"
#include "runtime/task.h"

namespace hufu::runtime {

enum class Combine : std::uint8_t { kSum, kMax, kMin };

enum class Element : std::uint8_t {
  kFloat,
  kFloat16,
  kBfloat16,
  kDouble,
  kInt8,
  kInt16,
  kInt32,
  kInt64,
  kUint8,
  kUint16,
  kUint32,
  kUint64,
};

std::size_t size_of(Element element);
Combiner combiner_of(Combine how, Element element);

struct Reduction {
  void* to;
  const void* from;
  std::uint64_t count;  // Bytes, not 0.
  Combine how;
  Element element;
};

// Both sides are device memory, and the count is whole elements; neither needs to be aligned.
Result<void> reduce_on(Runtime& runtime, const On& on, const Reduction& what);

}  // namespace hufu::runtime
