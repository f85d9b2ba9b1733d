#pragma once

// Why something was refused, as a number.
//
// These numbers are on the wire and in audit records: a number is never given a second meaning,
// and a reason that is no longer used keeps its line. The comment says what the refusal's numbers
// mean (wire::Refusal::number).

#include <cstdint>
#include <string_view>

namespace hufu {

enum class Reason : std::uint16_t {
  kNone = 0,
  kSystem = 1,  // [0] errno

  // The request itself.
  kMalformed = 10,        // The frame does not decode, or says what no client says.
  kOutOfOrder = 11,       // HELLO is missing, or came twice.
  kNotBuilt = 12,         // [0] the message's kind
  kIdentityChanged = 13,  // [0] pid at connect [1] pid now [2] uid at connect [3] uid now
  kVersion = 14,          // [0] version offered [1] version spoken

  // Ranges and blocks.
  kUnknownBlock = 20,  // [0] block id
  kNotAligned = 21,    // [0] offset [1] page size [2] block size
  kOutOfRange = 22,    // [0] offset [1] size [2] block size [3] reported size
  kEmptyRange = 23,
  kSlabPiece = 24,       // [0] size of the piece
  kUnregistered = 25,    // [0] address
  kNotCommitted = 26,    // [0] bytes committed [1] block size
  kSealKind = 27,        // [0] access of earlier exports [1] access asked for
  kSealsChanged = 28,    // [0] seals found [1] seals expected
  kBadFlags = 29,        // [0] flags
  kPartOfBlock = 31,     // [0] exported bytes [1] block size: across users only whole blocks go
  kBadCharge = 32,       // [0] bytes [1] what the block may be charged; 0: it is charged whole
  kImportedMemory = 30,  // [0] the share it was imported by: only its owner exports memory

  // Keys and grants.
  kKeyMalformed = 40,    // [0] length given
  kKeyUnknown = 41,      // Not sealed by this broker instance, or altered.
  kExportEnded = 42,     // Withdrawn, freed, or the exporter is gone.
  kNotListed = 43,       // [0] pid of the importer [1] pid of the exporter [2] pids on the list
  kOtherUser = 44,       // [0] uid of the importer [1] uid of the exporter
  kUnmappedUser = 45,    // [0] uid: the overflow uid, equal to nobody
  kReadOnlyExport = 46,  // Read-write access to a read-only export.
  kNotExporter = 47,     // [0] pid of the caller [1] pid of the exporter
  kListDisabled = 48,    // The export was made without a whitelist.
  kListFull = 49,        // [0] entries [1] limit
  kNoSuchProcess = 50,   // [0] pid
  kNotImported = 51,     // Close of something this process does not hold.
  kNoProcessId = 52,     // The broker cannot see the importer's pid.
  kHandleUnknown = 53,   // No living export has this shareable handle. [0] 0: token, 1: fabric
  kHandleExists = 54,    // The block has a shareable handle already.

  // Resources.
  kCapacity = 60,         // [0] bytes asked [1] bytes free [2] capacity [3] device
  kNoDevice = 61,         // [0] device [1] devices
  kDescriptors = 62,      // [0] descriptors in use [1] limit
  kTooManyExports = 63,   // [0] exports [1] limit
  kMemory = 64,           // [0] bytes asked [1] bytes available
  kTooManySessions = 65,  // [0] sessions or connections of the user [1] limit
  kTooManyImports = 67,   // [0] imports of the session [1] limit
  kSizeTooLarge = 66,     // [0] bytes asked [1] limit
  kTooManyBlocks = 68,    // [0] blocks of the user [1] limit
  kTooManyShares = 69,    // [0] shares of the user, ended but held ones too [1] limit
  kTooManyHolds = 70,     // [0] imports of the user's processes [1] limit
  kTooManyListed = 71,    // [0] list entries on the user's shares [1] limit

  // The broker's own state.
  kAuditFailed = 80,  // What cannot be recorded is not granted.
  kBrokerGone = 81,
  kBrokerSilent = 82,  // [0] milliseconds waited
  kNoBroker = 83,      // HUFU_BROKER=none
  kBrokerUntrusted = 84,
};

// The word for it in listings: "not_listed". A number that this build does not know is "unknown".
std::string_view name_of(Reason reason);

}  // namespace hufu
