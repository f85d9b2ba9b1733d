#pragma once

// Contexts: which device a thread works on, and for how long that holds.
//
// A device's primary context begins with the first set_device() of the process and ends when as
// many reset_device() have come. It may begin again; a ContextId names one such life, so that a
// thread which kept the number of an ended one has no context rather than somebody else's.
//
// A program's ids are its own: with ASCEND_RT_VISIBLE_DEVICES they number the devices that are
// visible to it, from 0. They become devices here, at device_of(); everything below, and a
// ContextId, has devices.
//
// What a thread's current context is lies in the thread, and whether it lives still is one load: no
// call that needs a context takes a lock for it. Thread-safe.

#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace hufu::runtime {

struct ContextId {
  int device = 0;
  std::uint64_t life = 0;  // 0 names no context.

  bool operator==(const ContextId&) const = default;
};

enum class Reset : bool { kOneReference, kAllReferences };

class Contexts;

// The calling thread's context. Trivial, so that it works while a thread's destructors run, and
// small: static TLS is scarce in a library that is loaded late. Here, so that to look costs no
// call.
struct CurrentContext {
  const Contexts* owner;  // Another owner's, a parent's for one, is nobody's.
  ContextId context;
};
[[gnu::tls_model("initial-exec")]] extern constinit thread_local CurrentContext current_context;

class Contexts {
 public:
  // `visible`: the device behind each id.
  Contexts(int devices, std::vector<int> visible);
  explicit Contexts(int devices);  // All are visible.

  int devices() const { return static_cast<int>(primary_.size()); }
  int visible_devices() const { return static_cast<int>(visible_.size()); }

  // `argument` is what the caller's declaration calls the id.
  Result<int> device_of(std::int64_t id, std::string_view argument) const;
  // Nothing for a device that the program does not see (an import may be of one).
  std::optional<std::uint32_t> id_of(int device) const;

  // Makes the device's primary context this thread's current one and takes a reference.
  Result<ContextId> set_device(int id);

  // Gives a reference back. Returns the context if it has ended thereby.
  Result<std::optional<ContextId>> reset_device(int id, Reset reset);

  // Ends every context; returns those that lived.
  std::vector<ContextId> reset_all();

  // The calling thread's.
  Result<ContextId> current();
  // The same, without the default device and without a reason: of life 0 when there is none.
  ContextId current_if_any() const {
    const CurrentContext& mine = current_context;
    if (mine.owner != this) return {};
    const Primary& primary = primary_[static_cast<std::size_t>(mine.context.device)];
    if (primary.life.load(std::memory_order_acquire) != mine.context.life) return {};
    return mine.context;
  }

  // A thread without a context gets this device's at first need (aclInit's default_device).
  Result<void> set_default_device(int id);

 private:
  struct Primary {
    std::uint64_t references = 0;
    std::atomic<std::uint64_t> life = 0;  // 0: there is none now. Read without the mutex.
  };

  std::mutex mutex_;
  std::vector<Primary> primary_;  // By device.
  std::uint64_t lives_ = 0;
  std::optional<int> default_id_;
  const std::vector<int> visible_;  // By id, ascending.
};

// The value of ASCEND_RT_VISIBLE_DEVICES, which lists devices in ascending order with commas
// between: what follows the first word that is anything else is not looked at. Null: all.
std::vector<int> parse_visible_devices(const char* text, int devices);

}  // namespace hufu::runtime
