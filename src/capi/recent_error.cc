#include "capi/recent_error.h"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <memory>
#include <new>

#include <fmt/core.h>

namespace hufu::capi {
namespace {

struct ThreadErrors {
  std::array<char, 4096> unread{};
  std::size_t unread_size = 0;
  std::array<char, 4096> handed_out{};
  aclError last = ACL_SUCCESS;
};

// A plain pointer, not an object with a destructor: it can be looked at while the thread's other
// destructors run. The key's only purpose is to free it.
constinit thread_local ThreadErrors* errors_of_thread = nullptr;

// For one thread whose first error is that there is no memory, and which ought to be told so.
constinit ThreadErrors reserve;
constinit std::atomic<bool> reserve_is_taken = false;

ThreadErrors* take_reserve() { return reserve_is_taken.exchange(true) ? nullptr : &reserve; }

void free_errors(void* errors) {
  errors_of_thread = nullptr;
  if (errors != &reserve) {
    delete static_cast<ThreadErrors*>(errors);
    return;
  }
  reserve = {};
  reserve_is_taken = false;
}

// Null when there is no memory at all: then a text is lost, the code is not.
ThreadErrors* errors() {
  if (errors_of_thread != nullptr) return errors_of_thread;
  static const pthread_key_t key = [] {
    pthread_key_t made{};
    ::pthread_key_create(&made, free_errors);
    return made;
  }();
  errors_of_thread = new (std::nothrow) ThreadErrors;
  if (errors_of_thread == nullptr) errors_of_thread = take_reserve();
  ::pthread_setspecific(key, errors_of_thread);
  return errors_of_thread;
}

}  // namespace

void remember(aclError code, std::string_view id, const char* function, std::string_view text) {
  ThreadErrors* mine = errors();
  if (mine == nullptr) return;
  const bool callers_mistake = code / 1000 == 100;
  if (!callers_mistake) mine->last = code;

  const std::size_t room = mine->unread.size() - 1 - mine->unread_size;
  char* at = mine->unread.data() + mine->unread_size;
  const auto written =
      fmt::format_to_n(at, room, "{}{}: [PID: {}] {}: {}", mine->unread_size == 0 ? "" : "\n", id,
                       ::getpid(), function, text);
  mine->unread_size += std::min(room, written.size);
  mine->unread[mine->unread_size] = '\0';
}

const char* take_recent_text() {
  ThreadErrors* mine = errors_of_thread;
  if (mine == nullptr || mine->unread_size == 0) return nullptr;
  std::memcpy(mine->handed_out.data(), mine->unread.data(), mine->unread_size + 1);
  mine->unread_size = 0;
  return mine->handed_out.data();
}

aclError last_error(LastError what) {
  ThreadErrors* mine = errors_of_thread;
  if (mine == nullptr) return ACL_SUCCESS;
  const aclError last = mine->last;
  if (what == LastError::kClear) mine->last = ACL_SUCCESS;
  return last;
}

const char* keep_text(std::string_view text) {
  ThreadErrors* mine = errors();
  if (mine == nullptr) return "out of memory";
  const std::size_t size = std::min(text.size(), mine->handed_out.size() - 1);
  std::memcpy(mine->handed_out.data(), text.data(), size);
  mine->handed_out[size] = '\0';
  return mine->handed_out.data();
}

}  // namespace hufu::capi
