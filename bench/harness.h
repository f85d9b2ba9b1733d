#pragma once

// How every benchmark here measures: floor, rival and Hufu in one process run, their cases in turn
// (round 0: every case once, round 1: ...), medians over the rounds, and a ratio to the case that a
// case is compared with. A noisy machine then disturbs all alike, and the ratio stands.
//
//   HUFU_BENCH_ROUNDS=n   rounds to count (default 11)

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace hufu::bench {

inline int rounds() {
  const char* text = std::getenv("HUFU_BENCH_ROUNDS");
  return text == nullptr ? 11 : std::max(1, std::atoi(text));
}

// CPU 0 measures; a peer sits on the same CPU or on another one, which decides what a wake-up
// costs.
inline void pin(int pid, int cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(static_cast<unsigned>(cpu), &set);
  if (::sched_setaffinity(pid, sizeof(set), &set) != 0) std::perror("sched_setaffinity");
}

template <class T>
void keep(const T& value) {
  asm volatile("" : : "r,m"(value) : "memory");
}

[[noreturn]] inline void give_up(const char* what) {
  std::fprintf(stderr, "bench: %s failed\n", what);
  std::exit(EXIT_FAILURE);
}

class Suite {
 public:
  explicit Suite(std::string title) : title_(std::move(title)) {}

  // `body(n)` does n operations and is timed as a whole; `after` undoes them in its own time.
  // `against` names an earlier case.
  void add(std::string name, std::size_t operations, std::function<void(std::size_t)> body,
           std::string against = {}, std::function<void()> after = {}) {
    cases_.push_back({.name = std::move(name),
                      .against = std::move(against),
                      .operations = operations,
                      .body = std::move(body),
                      .after = std::move(after)});
  }

  void run() {
    for (int round = -1; round < rounds(); ++round) {  // Round -1 warms up.
      for (Case& c : cases_) {
        const auto start = std::chrono::steady_clock::now();
        c.body(c.operations);
        const std::chrono::duration<double, std::nano> took =
            std::chrono::steady_clock::now() - start;
        if (c.after) c.after();
        if (round >= 0) c.ns.push_back(took.count() / static_cast<double>(c.operations));
      }
    }
    print();
  }

 private:
  struct Case {
    std::string name;
    std::string against;
    std::size_t operations = 1;
    std::function<void(std::size_t)> body;
    std::function<void()> after;
    std::vector<double> ns = {};
  };

  static double median(std::vector<double> values) {
    std::sort(values.begin(), values.end());
    const std::size_t n = values.size();
    return n % 2 == 1 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
  }

  void print() const {
    std::printf("\n%s [ns per operation, median of %d rounds, cases in turn]\n", title_.c_str(),
                rounds());
    std::printf("  %-52s %12s %12s %12s %8s\n", "case", "median", "min", "max", "ratio");
    for (const Case& c : cases_) {
      const double middle = median(c.ns);
      std::printf("  %-52s %12.1f %12.1f %12.1f", c.name.c_str(), middle,
                  *std::min_element(c.ns.begin(), c.ns.end()),
                  *std::max_element(c.ns.begin(), c.ns.end()));
      const auto base = std::find_if(cases_.begin(), cases_.end(),
                                     [&](const Case& other) { return other.name == c.against; });
      if (base != cases_.end()) std::printf(" %7.2fx", middle / median(base->ns));
      std::printf("\n");
    }
    std::fflush(stdout);
  }

  std::string title_;
  std::vector<Case> cases_;
};

}  // namespace hufu::bench
