#pragma once

// From the broker's books to audit records, and a budget that keeps a flood of refusals from
// filling the disk.

#include <cstdint>
#include <map>
#include <optional>

#include "audit/record.h"
#include "broker/ledger.h"
#include "wire/message.h"

namespace hufu::broker {

// Set in Record::flags.
enum RecordFlag : std::uint32_t {
  kRecordAnyProcess = 1,   // EXPORT, IMPORT: made without a whitelist.
  kRecordClientClaim = 2,  // The client refused by itself and reported it.
  kRecordRepeat = 4,       // IMPORT by a session that already held the share.
  kRecordByInode = 8,      // LIST_ADD: aux is the process's inode in pidfs, not its pid.
  kRecordHandle = 16,      // Of a shareable handle's export, not of a key's.
};

// A record of what `session` did; the caller adds what is special.
audit::Record record_of(audit::Type type, audit::Outcome outcome, const Session& session,
                        std::uint64_t request);
// Adds the share and its owner.
void describe(audit::Record& record, const Share& share, const Block& block);

// The code that the caller of the C API gets for a refusal: what src/share and src/capi make of the
// reason, of which the broker knows nothing; tests/ipc compares the two.
std::int32_t acl_code_of(Reason reason);

// Refusals of one user are written one by one up to a burst of 1,000 and 10 a second after that;
// the rest are counted, and the count is written with the next one that fits.
class RefusalBudget {
 public:
  struct Answer {
    bool write = false;
    std::uint64_t suppressed_before = 0;  // Refusals not written since the last one that was.
  };
  Answer ask(std::uint32_t uid, std::uint64_t now_ns);
  // What was never written for a user nobody will ask about again.
  std::uint64_t take_suppressed(std::uint32_t uid);

 private:
  struct Bucket {
    double tokens = 0;
    std::uint64_t filled_ns = 0;
    std::uint64_t suppressed = 0;
  };
  std::map<std::uint32_t, Bucket> buckets_;
};

}  // namespace hufu::broker
