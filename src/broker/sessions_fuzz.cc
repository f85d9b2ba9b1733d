// Any bytes as a play of several sessions (broker/session_play.h): whatever they say, in whatever
// order, the books stay what they promise to be.

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <span>

#include "broker/session_play.h"

// NOLINTNEXTLINE(readability-identifier-naming): libFuzzer's name for it.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  // A new log now and then, or it would fill the disk.
  constexpr int kPlaysOfAStage = 5'000;
  static std::unique_ptr<hufu::broker::Stage> stage;
  static int plays = 0;
  if (plays++ % kPlaysOfAStage == 0) {
    stage.reset();
    stage = std::make_unique<hufu::broker::Stage>();
  }
  constexpr std::size_t kLongest = 2'000;
  if (size > kLongest) return 0;
  const std::string trouble = hufu::broker::SessionPlay(*stage, std::span(data, size)).run();
  if (trouble.empty()) return 0;
  std::fprintf(stderr, "%s\n", trouble.c_str());
  std::abort();
}
