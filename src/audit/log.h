#pragma once

// The log as its one writer has it.
//
// append() numbers, dates, chains and writes a record before it returns, so that a reply sent after
// it can rely on the record surviving the death of this process (not yet a power cut: that is what
// sync() adds). What cannot be recorded is not granted: when append() fails, the caller refuses.
//
// A record is stored into the mapped segment, or written where that cannot be mapped. Either can
// fail only if the disk itself does, because segments are made of zeros ahead of time. Then the log
// has failed for ever: nothing is retried, every later append says why. That no further segment can
// be made is another matter: grants are refused as soon as the reserve at the end of the last
// segment is reached, denials and closes still get what is left, and it mends itself when there is
// space again.

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "audit/chain.h"
#include "audit/record.h"
#include "audit/segment.h"
#include "audit/segment_file.h"
#include "base/result.h"
#include "base/unique_fd.h"
#include "base/units.h"
#include "os/mapped_file.h"

namespace hufu::audit {

class Log {
 public:
  struct Options {
    std::string directory;
    Id128 instance{};
    std::string version;
    bool volatile_home = false;  // A reboot or logout deletes the directory.
    bool accept_damage = false;  // Go on after a corruption; recorded in START.
    // Records are stored into the mapped segment, which costs no system call; where a file system
    // cannot map, or if this is false, they are written.
    bool mapped = true;
    std::uint32_t segment_bytes = kSegmentBytes;
    std::uint64_t keep_bytes = 64 * kMiB;
    std::uint64_t keep_ns = std::uint64_t{30} * 24 * 3600 * 1'000'000'000;
    // What START and the records say of machine and time; tests say it themselves.
    Id128 boot_id = audit::boot_id();
    Times (*now)() = audit::now;
  };

  enum class State : std::uint8_t {
    kOpen,
    kCorrupt,  // Writes on, but records were altered or lost before this run and nobody has
               // accepted that yet (Options::accept_damage): the broker grants nothing.
    kFailed,   // A write or flush failed: append() fails for ever.
  };

  // Opens the log, or makes one; takes up the chain at its last good record; records what it found
  // wrong (RECOVERY) and that a run begins (START). One process at a time: a second one gets an
  // error that names the first.
  static Result<Log> open(const Options& options);

  // Fills seq, times, epoch and chain of each record and writes them, in this order and in as few
  // writes as their number allows (up to 64 in one). After an error nothing of them may be acted
  // on, though the first ones may stand in the log. Any thread.
  Result<void> append(std::span<Record> records);
  Result<void> append(Record& record) { return append({&record, 1}); }

  // Makes everything appended so far survive a power cut. Any thread; does not hold up append().
  Result<void> sync();

  // Records STOP and syncs: the log ends in good order. Without it the next run's START says that
  // this one did not. Append nothing afterwards.
  Result<void> stop();

  State state() const;
  // What open() found wrong with the log it took up, if anything.
  const std::optional<Recovery>& recovery() const { return recovery_; }
  const std::string& directory() const { return directory_.path; }

 private:
  struct Kept {  // A segment that is still there.
    std::uint64_t number = 0;
    std::uint64_t first_seq = 0;
    std::uint64_t created_ns = 0;
    bool damage_unaccepted = false;
    Hash previous{};
  };

  Log(const Options& options, Directory directory, UniqueFd lock, const ChainKey& key);

  Result<void> take_up(const std::vector<std::uint64_t>& numbers);
  Result<void> take_up_after_damage(const std::vector<std::uint64_t>& numbers,
                                    std::span<const std::byte> segment, SegmentVerdict verdict);
  Result<void> write_all_that_open_found(bool after_unclean_end);
  Result<void> begin_segment(std::uint64_t number, const Times& times);
  Result<void> rotate(const Times& times);
  Rotate plan_rotation(const Times& times) const;
  Result<void> write(std::span<Record> records, const Times& times);
  Result<void> put(std::span<const Bytes256> slots);
  // Takes the file of the segment that is written from now on.
  void use(UniqueFd file);
  Result<void> record_clock_step(const Times& times);
  Result<void> make_room(bool for_grants, const Times& times);

  Options options_;
  Directory directory_;
  UniqueFd lock_;
  Chain chain_;
  std::optional<Recovery> recovery_;

  // On the heap so that a Log can be moved out of open().
  std::unique_ptr<std::mutex> mutex_ = std::make_unique<std::mutex>();
  // All below: under mutex_.
  Link link_;
  std::deque<Kept> kept_;           // The last one is being written.
  std::shared_ptr<UniqueFd> file_;  // Shared with a sync() that is under way.
  os::MappedFile mapped_;           // Of it; empty where records are written.
  std::size_t slot_ = 0;            // The next one to be written,
  std::size_t slots_ = 0;           // of so many.
  UniqueFd spare_;
  std::vector<std::shared_ptr<UniqueFd>> unsynced_;  // Full segments that sync() has yet to flush.
  bool directory_unsynced_ = false;
  bool corrupt_ = false;
  std::optional<Times> last_times_;
  std::optional<Error> failure_;
};

}  // namespace hufu::audit
