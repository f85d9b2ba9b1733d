#pragma once

// Spinning before sleeping. To be woken costs 10 to 50 us; what comes back to back comes sooner.

#include <chrono>

namespace hufu::runtime {

inline constexpr std::chrono::microseconds kSpin{20};

inline void pause_processor() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// False when `over` was not true for kSpin.
template <class Over>
bool spin_until(const Over& over) {
  const auto end = std::chrono::steady_clock::now() + kSpin;
  do {
    for (int i = 0; i < 16; ++i) {
      if (over()) return true;
      pause_processor();
    }
  } while (std::chrono::steady_clock::now() < end);
  return false;
}

}  // namespace hufu::runtime
