#include "base/reason.h"

namespace hufu {

std::string_view name_of(Reason reason) {
  switch (reason) {
    case Reason::kNone:
      return "none";
    case Reason::kSystem:
      return "system";
    case Reason::kMalformed:
      return "malformed";
    case Reason::kOutOfOrder:
      return "out_of_order";
    case Reason::kNotBuilt:
      return "not_built";
    case Reason::kIdentityChanged:
      return "identity_changed";
    case Reason::kVersion:
      return "version";
    case Reason::kUnknownBlock:
      return "unknown_block";
    case Reason::kNotAligned:
      return "alignment";
    case Reason::kOutOfRange:
      return "range";
    case Reason::kEmptyRange:
      return "empty_range";
    case Reason::kSlabPiece:
      return "slab_piece";
    case Reason::kUnregistered:
      return "unregistered";
    case Reason::kNotCommitted:
      return "not_committed";
    case Reason::kSealKind:
      return "seal_kind";
    case Reason::kSealsChanged:
      return "seals_changed";
    case Reason::kBadFlags:
      return "bad_flags";
    case Reason::kImportedMemory:
      return "imported_memory";
    case Reason::kKeyMalformed:
      return "key_malformed";
    case Reason::kKeyUnknown:
      return "key_unknown";
    case Reason::kExportEnded:
      return "export_ended";
    case Reason::kNotListed:
      return "pid";
    case Reason::kOtherUser:
      return "uid";
    case Reason::kUnmappedUser:
      return "unmapped_uid";
    case Reason::kReadOnlyExport:
      return "read_only";
    case Reason::kNotExporter:
      return "not_exporter";
    case Reason::kListDisabled:
      return "list_disabled";
    case Reason::kListFull:
      return "list_full";
    case Reason::kNoSuchProcess:
      return "no_such_process";
    case Reason::kNotImported:
      return "not_imported";
    case Reason::kNoProcessId:
      return "no_process_id";
    case Reason::kCapacity:
      return "capacity";
    case Reason::kNoDevice:
      return "no_device";
    case Reason::kDescriptors:
      return "descriptors";
    case Reason::kTooManyExports:
      return "too_many_exports";
    case Reason::kMemory:
      return "memory";
    case Reason::kTooManySessions:
      return "too_many_sessions";
    case Reason::kSizeTooLarge:
      return "size_too_large";
    case Reason::kAuditFailed:
      return "audit_failed";
    case Reason::kBrokerGone:
      return "broker_gone";
    case Reason::kBrokerSilent:
      return "broker_silent";
    case Reason::kNoBroker:
      return "no_broker";
    case Reason::kBrokerUntrusted:
      return "broker_untrusted";
  }
  return "unknown";
}

}  // namespace hufu
