#pragma once

// The whole log, judged: is every record that was written still there, in order, unaltered?
//
// The judge trusts no index, no file date and no file name, only the chain. Whoever wants to show
// or filter records does so from here, so that nothing unverified is ever shown.

#include <cstdint>
#include <string>

#include "audit/segment.h"

namespace hufu::audit {

// The numbers are the exit codes of `hufu audit verify`.
enum class Status : std::uint8_t {
  kOk = 0,
  kTampered = 1,       // A record was altered, moved, added or removed.
  kEndsEarly = 2,      // The log, its beginning or its end is missing; or its last writer never
                       // wrote STOP, which a cut end cannot be told from.
  kRecoveredTail = 3,  // All is well but for an interrupted write, cut off or about to be.
  kIoError = 4,        // It could not be read to the end.
};

struct Verdict {
  Status status = Status::kOk;
  std::uint64_t records = 0;  // Verified ones.
  std::uint64_t first_seq = 0;
  std::uint64_t last_seq = 0;
  bool being_written = false;  // A process has the log open for writing.

  // The first thing that is wrong, if status is not kOk.
  std::uint64_t bad_seq = 0;
  std::string file;
  std::uint64_t offset = 0;
  std::string what;  // A sentence, with the remedy where there is one.
};

// Reads the log in `path` from its oldest record on. `visit` sees each verified record, in order.
// After the first bad record it sees those of later segments only if they take up the chain at the
// last good one, as a log that was reopened after damage does. A log may be written meanwhile.
Verdict verify_directory(const std::string& path, const Visit& visit = {});

}  // namespace hufu::audit
