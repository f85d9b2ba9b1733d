#pragma once

// Streams: all of them, by handle.
//
// A handle is a number that looks like a pointer and is none: a counter and a place in a table,
// under a tag, at an address that no program can have. So a handle is never used twice (not by a
// forked child either), one that was destroyed stays recognisable for ever, and garbage that
// somebody passes is looked up, not followed. Finding a stream takes no lock.
//
// A stream's place is given to another one when all its work is over. Destroying by force takes the
// handle away and nothing else: what was queued is still done, as a device goes on with what it was
// given.
//
// A synchronous copy or set is no stream's work, but it is work: it stands on a Lane while it
// lasts, so that memory which another thread frees meanwhile stays mapped until it is over. It
// comes after everything that its own thread has queued.
//
// Thread-safe.

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <vector>

#include "base/result.h"
#include "runtime/contexts.h"
#include "runtime/deferred.h"
#include "runtime/progress.h"
#include "runtime/stream.h"
#include "runtime/workers.h"

namespace hufu::runtime {

using StreamHandle = void*;

// A stream and the context in which it was named.
struct On {
  StreamHandle stream;
  ContextId context;
};

enum class Destroy : bool { kAfterItsWork, kByForce };

class Streams {
 public:
  static constexpr std::size_t kMostPerDevice = 1984;  // CANN's, on A2 and A3.

  // `deferred` outlives this.
  explicit Streams(Deferred& deferred);
  ~Streams();  // For tests: waits for all work.
  Streams(const Streams&) = delete;
  Streams& operator=(const Streams&) = delete;

  Result<StreamHandle> create(const ContextId& context);
  Result<void> destroy(StreamHandle handle, const ContextId& context, Destroy how);

  // Is it one that was created and not destroyed, of whatever context?
  bool exists(StreamHandle handle) const;

  // The stream that null stands for in calls that issue work.
  Result<StreamHandle> default_of(const ContextId& context);

  // As Stream::issue, on the stream of the handle (null: the default stream).
  template <class Make>
  Result<void> issue(StreamHandle handle, const ContextId& context, Where where, const Make& make);

  // The stream of the handle (null: the default stream).
  Result<Stream*> look_up(StreamHandle handle, const ContextId& context);
  // Whatever stream has this place now; there is or was one.
  Stream& at(std::size_t place) const { return *places_[place].load(); }

  // When all that was issued is done. The stream's first failure is an answer, once.
  Result<void> synchronize(StreamHandle handle, const ContextId& context, Deadline deadline);
  Result<void> synchronize_device(int device, Deadline deadline);
  // The same without asking for failures: for what is to come after the stream's work.
  Result<void> wait_for(StreamHandle handle, const ContextId& context);
  // Is nothing under way? A failure that nobody asked for yet is an answer, and stays one.
  Result<bool> idle(StreamHandle handle, const ContextId& context);

  // The streams of a context end with it, when their work is over or has stood still for
  // `patience`.
  void end(const ContextId& context, std::chrono::milliseconds patience);

  // What is under way and could have been told of this device's memory, or of any memory.
  std::vector<Stamp> under_way(std::optional<int> device = {});
  // Is nothing of that under way?
  bool idle(int device);

  // A synchronous piece of work, for as long as it exists. Begins when what this thread has queued
  // is over.
  class Lane {
   public:
    explicit Lane(Streams& streams);
    ~Lane();
    Lane(const Lane&) = delete;
    Lane& operator=(const Lane&) = delete;

   private:
    Deferred& deferred_;
    Progress& line_;
  };

  std::size_t threads() const { return workers_.threads(); }

 private:
  static constexpr std::size_t kPlaces = 8192;
  static constexpr std::size_t kLanes = 16;
  struct alignas(64) LaneLine : Progress {};

  // Calls `look` with each line that could have been told, until it returns false.
  template <class Look>
  bool all_lines(std::optional<int> device, const Look& look);
  Stream* find(std::uintptr_t number) const;  // Null when it is no stream's.
  Result<Stream*> default_stream(const ContextId& context);
  Result<Stream*> take_place(const ContextId& context);
  std::vector<Stream*> all_of(int device) const;
  void remember_own(const Stream& stream, std::uintptr_t handle, std::uint64_t ticket) const;
  void wait_for_own() const;
  Progress& take_lane();

  Deferred& deferred_;
  const std::uint64_t number_;  // Of this Streams in the process.
  std::mutex mutex_;            // Of making streams.
  std::deque<Stream> streams_;  // Never one less.
  std::array<std::atomic<Stream*>, kPlaces> places_{};
  std::atomic<std::size_t> places_used_{0};
  std::array<LaneLine, kLanes> lanes_;
  std::atomic<std::uint32_t> lanes_taken_{0};  // A bit for each that ever was.
  Workers workers_;  // Last, so that it ends first: its threads touch the streams.
};

Error fail_stream(StreamHandle handle);

template <class Make>
Result<void> Streams::issue(StreamHandle handle, const ContextId& context, Where where,
                            const Make& make) {
  const auto stream = look_up(handle, context);
  if (!stream) return stream.error();
  const std::uintptr_t number = (*stream)->handle.load();
  const auto ticket = (*stream)->issue(where, [&]() -> Result<Task> {
    // Destroyed meanwhile? Then who destroyed it does not wait for this ticket.
    if ((*stream)->handle.load() != number) {
      return fail_stream(handle);
    }
    return make(**stream);
  });
  if (!ticket) return ticket.error();
  if (*ticket != 0) remember_own(**stream, number, *ticket);
  return {};
}

}  // namespace hufu::runtime
