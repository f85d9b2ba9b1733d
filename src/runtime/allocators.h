#pragma once

// Allocators: a program's own allocators, as it describes and registers them for streams. Layers
// above the runtime look them up there; the runtime itself never calls one.
//
//   create ──▶ description ── fill ──▶ complete ── add(stream) ──▶ a copy, the stream's
//                  │ destroy                                         │ remove, the next add, or
//                  ▼                                                 ▼ the stream's end
//
// A description's handle is a number that looks like a pointer and is none, as a stream's is: never
// used twice, so one that has ended, or garbage, is recognised. What a lookup gives out is the
// handle of the stream's copy, which only the stream ends.
//
// Thread-safe.

#include <cstdint>
#include <mutex>
#include <unordered_map>

#include "base/result.h"

namespace hufu::runtime {

// What a program describes. All but the advising function are needed.
struct AllocatorDescription {
  void* object = nullptr;
  void* (*alloc)(void* object, std::size_t size) = nullptr;
  void (*free)(void* object, void* block) = nullptr;
  void* (*alloc_advise)(void* object, std::size_t size, void* address) = nullptr;
  void* (*address_of_block)(void* block) = nullptr;
};

class Streams;

class Allocators {
 public:
  using Handle = void*;

  // `streams` outlives this.
  explicit Allocators(const Streams& streams) : streams_(streams) {}

  Handle create();
  Result<void> destroy(Handle handle);

  // One piece of it, at a time.
  template <class Value>
  Result<void> set(Handle handle, Value AllocatorDescription::*piece, Value value);

  Result<void> add(void* stream, Handle handle);
  void remove(void* stream);

  struct Found {
    Handle handle;
    AllocatorDescription description;
  };
  Result<Found> of(void* stream);

 private:
  struct Entry {
    AllocatorDescription description;
    bool of_stream = false;
  };
  Result<Entry*> find(Handle handle);  // Under mutex_, as all below.
  Handle make_entry(const Entry& entry);
  void forget_ended_streams();

  const Streams& streams_;
  std::mutex mutex_;
  std::uint64_t last_ = 0;
  std::unordered_map<Handle, Entry> entries_;
  std::unordered_map<void*, Handle> by_stream_;
};

template <class Value>
Result<void> Allocators::set(Handle handle, Value AllocatorDescription::*piece, Value value) {
  const std::lock_guard lock(mutex_);
  const auto entry = find(handle);
  if (!entry) return entry.error();
  (*entry)->description.*piece = value;
  return {};
}

}  // namespace hufu::runtime
