#pragma once

// Streams, so far without queues: whatever is issued has run when the call returns, so each stream
// is always in order and always idle. What is here for good is the discipline of the handles.
//
// A handle is a number that looks like a pointer and is none: a counter under a tag, at an address
// that no program can have. So a handle is never used twice, one that was destroyed stays
// recognisable for ever, and garbage that somebody passes is looked up, not followed.
//
// Thread-safe.

#include <cstdint>
#include <mutex>
#include <unordered_map>

#include "base/result.h"
#include "runtime/contexts.h"

namespace hufu::runtime {

using StreamHandle = void*;

class Streams {
 public:
  StreamHandle create(const ContextId& context);

  // The stream that null stands for in calls that issue work.
  StreamHandle default_of(const ContextId& context);

  // `handle` (null: the default stream) can be used with `context` current.
  Result<void> check(StreamHandle handle, const ContextId& context) const;

  Result<void> destroy(StreamHandle handle, const ContextId& context);

  // The streams of a context end with it.
  void end(const ContextId& context);

 private:
  struct Stream {
    ContextId context;
    bool is_default = false;
  };

  StreamHandle add(const Stream& stream);

  mutable std::mutex mutex_;
  std::unordered_map<std::uintptr_t, Stream> streams_;
  std::uintptr_t count_ = 0;
};

}  // namespace hufu::runtime
