#pragma once

// Contexts: which device a thread works on, and for how long that holds.
//
// A device's primary context begins with the first set_device() of the process and ends when as
// many reset_device() have come. It may begin again; a ContextId names one such life, so that a
// thread which kept the number of an ended one has no context rather than somebody else's.
//
// What a thread's current context is lies in the thread, and whether it lives still is one load: no
// call that needs a context takes a lock for it. Thread-safe.

#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>
#include <vector>

#include "base/result.h"

namespace hufu::runtime {

struct ContextId {
  int device = 0;
  std::uint64_t life = 0;  // 0 names no context.

  bool operator==(const ContextId&) const = default;
};

enum class Reset : bool { kOneReference, kAllReferences };

class Contexts {
 public:
  explicit Contexts(int devices);

  int devices() const { return static_cast<int>(primary_.size()); }

  // Makes the device's primary context this thread's current one and takes a reference.
  Result<ContextId> set_device(int device);

  // Gives a reference back. Returns the context if it has ended thereby.
  Result<std::optional<ContextId>> reset_device(int device, Reset reset);

  // Ends every context; returns those that lived.
  std::vector<ContextId> reset_all();

  // The calling thread's.
  Result<ContextId> current();
  // The same, without the default device and without a reason: of life 0 when there is none.
  ContextId current_if_any() const;

  // A thread without a context gets this device's at first need (aclInit's default_device).
  Result<void> set_default_device(int device);

 private:
  struct Primary {
    std::uint64_t references = 0;
    std::atomic<std::uint64_t> life = 0;  // 0: there is none now. Read without the mutex.
  };

  Result<void> check(int device) const;

  std::mutex mutex_;
  std::vector<Primary> primary_;  // By device.
  std::uint64_t lives_ = 0;
  std::optional<int> default_device_;
};

}  // namespace hufu::runtime
