#pragma once

// For tests: environment variables that are as before when the test is over.

#include <cstdlib>
#include <map>
#include <optional>
#include <string>

namespace hufu::share {

class ScopedEnvironment {
 public:
  ScopedEnvironment() = default;
  ~ScopedEnvironment() {
    for (const auto& [name, value] : before_)
      put(name, value);
  }
  ScopedEnvironment(const ScopedEnvironment&) = delete;
  ScopedEnvironment& operator=(const ScopedEnvironment&) = delete;

  // No value: unset.
  void set(const std::string& name, const std::optional<std::string>& value) {
    const char* old = std::getenv(name.c_str());  // NOLINT(concurrency-mt-unsafe): see put().
    before_.emplace(name, old == nullptr ? std::nullopt : std::optional<std::string>(old));
    put(name, value);
  }

 private:
  static void put(const std::string& name, const std::optional<std::string>& value) {
    // NOLINTBEGIN(concurrency-mt-unsafe): a test sets before it starts a thread.
    if (value) {
      ::setenv(name.c_str(), value->c_str(), 1);
    } else {
      ::unsetenv(name.c_str());
    }
    // NOLINTEND(concurrency-mt-unsafe)
  }

  std::map<std::string, std::optional<std::string>> before_;
};

}  // namespace hufu::share
