#pragma once

// Result<T>: a value, or the reason there is none.
//
// An Error is made once, where the numbers are, and travels up untouched: it carries what a caller
// branches on (code), what an auditor counts by (reason) and the finished text for a person. The
// text lives in a fixed buffer, so the error path allocates nothing.
//
// Result speaks std::expected's vocabulary, so replacing it later is one alias. std::expected does
// not compile in clang 14 with libstdc++ 12, and clang-tidy 14 is the same front end.

#include <array>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string_view>
#include <utility>
#include <variant>

#include "base/reason.h"

// Not fmt/format.h, which alone costs more than all the rest: who needs fmt::join includes it.
#include <fmt/core.h>

namespace hufu {

// What a C caller can branch on. src/capi/error_code.cc gives each its aclError, in one table.
enum class Errc : std::uint8_t {
  kInvalidArgument,    // A null pointer, a zero size, a value outside the documented set.
  kInvalidValue,       // The argument is well formed but does not fit the object it names.
  kInvalidDevice,      // No such device.
  kNoContext,          // The calling thread has no current context.
  kForeignStream,      // The stream belongs to another context.
  kInvalidMemoryType,  // GetMemInfo: no such memory attribute.
  kInvalidHandle,      // A destroyed or foreign handle.
  kWrongOrder,         // A call that needs another one before it (ResetDevice without SetDevice).
  kNotSupported,       // Not built, or not on this kernel.
  kOutOfMemory,        // Capacity, quota, a limit or the machine is exhausted.
  kTableFull,          // A table of the broker is full.
  kNoStream,           // The device has as many streams as it can have.
  kNotPermitted,       // Editing what may not be edited (a whitelist that is switched off).
  kRefused,            // The broker, or the rule it stands for, says no.
  kUnregistered,       // The address is in no registry of this process.
  kUnavailable,        // The broker does not answer or cannot be started.
  kTimeout,            // What was waited for did not happen in the time the caller gave.
  kSystem,             // A system call failed; see Error::sys_errno.
  kTimedOut,           // A stream's work is not done in the time given.
  kPool,               // What only a pool can get wrong: unknown, full, a value it cannot have.
  kTaskFailed,         // A program that was queued said so; see Error::task_code.
  kRegistered,         // Host memory that is registered already.
  kNotRegistered,      // Host memory that is not.
};

// Copies as much as there is: a Result that holds a value is returned by many, and would else carry
// the whole buffer of the error that it does not hold.
class ErrorText {  // NOLINT(cppcoreguidelines-special-member-functions): to move is to copy.
 public:
  ErrorText() { chars_[0] = '\0'; }  // NOLINT(cppcoreguidelines-pro-type-member-init): see above.
  ErrorText(const ErrorText& other) { *this = other; }  // NOLINT(*-member-init)
  ErrorText& operator=(const ErrorText& other) {
    if (this != &other) std::memcpy(data(), other.data(), std::strlen(other.data()) + 1);
    return *this;
  }
  ~ErrorText() = default;

  char* data() { return chars_.data(); }
  const char* data() const { return chars_.data(); }
  static constexpr std::size_t size() { return kSize; }

 private:
  static constexpr std::size_t kSize = 496;
  std::array<char, kSize> chars_;  // Up to the first '\0'.
};

struct Error {
  Errc code = Errc::kSystem;
  Reason reason = Reason::kNone;
  int sys_errno = 0;
  std::int32_t task_code = 0;  // Of kTaskFailed: an aclError of the program's own.
  ErrorText text;

  std::string_view what() const { return {text.data(), std::strlen(text.data())}; }
};

// The only way to make an Error: `fail(Errc::kRefused, Reason::kNotAligned, "address {} ...", p)`.
// A text longer than the buffer is cut, never overrun.
template <class... Args>
Error fail(Errc code, Reason reason, fmt::format_string<Args...> format, Args&&... args) {
  Error error{.code = code, .reason = reason};
  const auto out = fmt::format_to_n(error.text.data(), error.text.size() - 1, format,
                                    std::forward<Args>(args)...);
  *out.out = '\0';
  return error;
}

// The same for a failed system call: appends errno's text. Call it before anything touches errno.
Error fail_errno(std::string_view what, int sys_errno);

template <class T>
class [[nodiscard]] Result {
 public:
  // Implicit on purpose: `return value;` and `return fail(...);` both read well.
  // NOLINTBEGIN(google-explicit-constructor)
  Result(T value) : rep_(std::in_place_index<0>, std::move(value)) {}
  Result(Error error) : rep_(std::in_place_index<1>, error) {}
  // NOLINTEND(google-explicit-constructor)

  bool has_value() const { return rep_.index() == 0; }
  explicit operator bool() const { return has_value(); }

  T& operator*() & { return *std::get_if<0>(&rep_); }
  const T& operator*() const& { return *std::get_if<0>(&rep_); }
  T&& operator*() && { return std::move(*std::get_if<0>(&rep_)); }
  T* operator->() { return std::get_if<0>(&rep_); }
  const T* operator->() const { return std::get_if<0>(&rep_); }

  const Error& error() const {
    assert(!has_value());
    return *std::get_if<1>(&rep_);
  }

 private:
  std::variant<T, Error> rep_;
};

template <>
class [[nodiscard]] Result<void> {
 public:
  // Not "= default": then `return {}` would clear the whole of the error that is not there.
  Result() {}                             // NOLINT(modernize-use-equals-default)
  Result(Error error) : error_(error) {}  // NOLINT(google-explicit-constructor)

  bool has_value() const { return !error_.has_value(); }
  explicit operator bool() const { return has_value(); }
  const Error& error() const {
    assert(!has_value());
    return *error_;
  }

 private:
  std::optional<Error> error_;
};

}  // namespace hufu
