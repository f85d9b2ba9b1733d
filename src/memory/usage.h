#pragma once

// What this process's memory is used for, per device: what the program asked for, what that takes,
// and what is kept ready beside it.
//
//   asked for       in blocks          in pieces
//                   kRequested         kPieces      bytes of pieces, rounded to their stride; some
//   it takes        kReserved          kChunks      more, which threads have in their caches
//   kept ready      kWarm: freed blocks, kSpare: minted and never used
//   so far          kFallbacks: blocks that were to be of huge pages and are of small ones
//
// The counts change where blocks and lists of pieces change hands, never on the way to one piece.
// They are also written, as they change, to memory that the broker reads (os/reported.h): `hufu
// stat` costs a program that is looked at nothing.
//
// Thread-safe.

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <mutex>
#include <vector>

#include "os/reported.h"

namespace hufu::memory {

class Usage {
 public:
  enum Count : std::uint8_t {
    kRequested,
    kReserved,
    kBlocks,  // How many.
    kPieces,
    kChunks,
    kWarm,
    kSpare,
    kFallbacks,
  };
  static constexpr std::size_t kCounts = 8;
  using Counts = std::array<std::uint64_t, kCounts>;

  explicit Usage(int devices)
      : devices_(static_cast<std::size_t>(devices)), levels_(static_cast<std::size_t>(devices)) {}

  struct Change {
    Count count;
    std::int64_t by;
  };
  void change(int device, std::initializer_list<Change> changes);

  Counts of(int device) const;

  // Bytes behind what the program asked for, and kept ready beside it; and the most that was so
  // far.
  struct Level {
    std::uint64_t now = 0;
    std::uint64_t peak = 0;
  };
  struct Levels {
    Level in_use;  // kReserved, kChunks
    Level ready;   // kWarm, kSpare
  };
  Levels levels(int device) const;

  // From now on the counts are there too: kCounts words for each device. Null: nowhere.
  void report_to(std::shared_ptr<os::ReportedMemory> memory);

 private:
  void write(std::size_t device, std::size_t count) const;
  void raise_peaks(std::size_t device);

  mutable std::mutex mutex_;
  std::vector<Counts> devices_;
  std::vector<Levels> levels_;
  std::shared_ptr<os::ReportedMemory> reported_;
};

}  // namespace hufu::memory
