#pragma once

// Churn: a client of libhufu that allocates, exports, imports, copies, closes and frees at random
// until it is killed, with whatever keys others left for it.
//
// Workers and test share one file in memory. A worker counts its steps there, so that the test can
// wait for progress instead of time, and writes down what must not happen. Keys are published in
// it without a lock: one that is half of two keys is one more thing to refuse.

#include <array>
#include <atomic>
#include <cstdint>
#include <string>

#include "support/helper.h"
#include "support/test_broker.h"

namespace hufu::test {

class ChurnBoard {
 public:
  static constexpr std::size_t kSeats = 16;
  static constexpr std::size_t kKeys = 24;

  struct Seat {
    std::atomic<std::uint64_t> steps;
    std::atomic<std::uint64_t> most;     // Steps; then it waits to be killed. 0: no end.
    std::atomic<std::uint64_t> granted;  // Imports that succeeded.
    std::atomic<std::int32_t> pid;
    std::atomic<std::uint32_t> failed;  // `text` says what.
    std::array<char, 240> text;
  };
  struct Layout {
    std::array<Seat, kSeats> seats;
    std::array<std::array<std::atomic<std::uint64_t>, 8>, kKeys> keys;
    std::atomic<std::uint32_t> stop;
  };

  // A file at `path`, made when it is not there.
  explicit ChurnBoard(const std::string& path);
  ~ChurnBoard();
  ChurnBoard(const ChurnBoard&) = delete;
  ChurnBoard& operator=(const ChurnBoard&) = delete;

  Layout* operator->() { return layout_; }

  void publish(std::size_t place, const char* key);
  std::string key(std::size_t place) const;

 private:
  Layout* layout_;
};

// Starts one; `seed` decides all that it does.
Helper start_churn(const TestBroker& broker, const std::string& board, std::size_t seat,
                   std::uint64_t seed);

}  // namespace hufu::test
