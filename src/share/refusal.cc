#include "share/refusal.h"

#include <array>
#include <cstring>
#include <string>

#include "base/units.h"
#include "share/public_id.h"
#include "wire/codec.h"

namespace hufu::share {
namespace {

std::string_view access_word(std::uint64_t access) {
  if (access == static_cast<std::uint64_t>(Access::kReadOnly)) return "read-only";
  if (access == static_cast<std::uint64_t>(Access::kReadWrite)) return "read-write";
  return "unknown";
}

// Cause and remedy, with the numbers where base/reason.h says they are.
std::string explain(Reason reason, const std::array<std::uint64_t, 4>& n,
                    const RefusalContext& context, int sys_errno) {
  switch (reason) {
    case Reason::kNone:
      return "refused without a reason; hufud and libhufu may be of different versions, see "
             "`hufu doctor`";
    case Reason::kSystem: {
      const int code = sys_errno != 0 ? sys_errno : static_cast<int>(n[0]);
      std::array<char, 96> buffer{};
      return fmt::format("a system call of the broker failed: {} (errno {})",
                         ::strerror_r(code, buffer.data(), buffer.size()), code);
    }

    case Reason::kMalformed:
      return "the broker cannot read this request; hufud and libhufu may be of different versions: "
             "end the old hufud, a new one is started";
    case Reason::kOutOfOrder:
      return "the broker expects a session to begin with one HELLO; a second library may be using "
             "this connection's descriptor";
    case Reason::kNotBuilt:
      return fmt::format("this broker does not know messages of kind {} yet; a newer hufud may",
                         n[0]);
    case Reason::kIdentityChanged:
      return fmt::format(
          "the session was opened by pid {} uid {}, but the request came from pid {} uid {}; "
          "forked children and passed sockets need a session of their own",
          n[0], n[2], n[1], n[3]);
    case Reason::kVersion:
      return fmt::format(
          "this library speaks version {} of the protocol and the broker version {}; install "
          "libhufu and hufud of one release and end the old hufud",
          n[0], n[1]);

    case Reason::kUnknownBlock:
      return fmt::format(
          "the broker does not know block {} in this session; free it and allocate again", n[0]);
    case Reason::kNotAligned:
      return fmt::format(
          "offset {} in a block of {} bytes is not a multiple of its page size {}; share from an "
          "address at a multiple of {}, or the whole block and send the offset {} along",
          n[0], n[2], n[1], n[1], n[0]);
    case Reason::kOutOfRange:
      return fmt::format(
          "offset {} plus {} bytes ends beyond the block of {} bytes ({} were reported); ask for "
          "no more than aclrtMemGetAddressRange reports",
          n[0], n[1], n[2], n[3]);
    case Reason::kEmptyRange:
      return "a range of 0 bytes cannot be shared; give the size that was allocated";
    case Reason::kSlabPiece:
      return fmt::format(
          "this piece of {} bytes lies on a page with other allocations, which would be shared "
          "with it; allocate at least 4096 bytes, or use a huge page policy, for memory to share",
          n[0]);
    case Reason::kUnregistered:
      return fmt::format(
          "address {:#x} belongs to no allocation of this process; it was freed, or came from "
          "another process or allocator",
          n[0]);
    case Reason::kNotCommitted:
      return fmt::format(
          "only {} of the block's {} bytes are backed by memory; who allocated it must have "
          "punched holes or not committed it: allocate it again",
          n[0], n[1]);
    case Reason::kSealKind:
      return fmt::format(
          "the block's first export was {}, which the kernel has sealed for good, and {} was asked "
          "for; export it the same way, or copy it to a new block",
          access_word(n[0]), access_word(n[1]));
    case Reason::kSealsChanged:
      return fmt::format(
          "the block's seals are {:#x} and not {:#x}; somebody added seals to its file: allocate "
          "it again",
          n[0], n[1]);
    case Reason::kBadFlags:
      return fmt::format("flags {:#x} are not defined; see the flags in acl/acl_rt.h", n[0]);
    case Reason::kImportedMemory:
      return "imported memory belongs to its exporter and cannot be exported again; let the "
             "exporter make a key for the third process";

    case Reason::kBadCharge:
      return n[1] == 0
                 ? "the block is charged by its size, for good; only sparse blocks are charged "
                   "by use"
                 : fmt::format(
                       "a use of {} bytes was reported of a block of {}; hufud and "
                       "libhufu may be of different versions",
                       n[0], n[1]);
    case Reason::kPartOfBlock:
      return fmt::format(
          "the export is {} bytes of a block of {}, and another user may only be given whole "
          "blocks, since descriptors open all of it; copy the part to a block of its own",
          n[0], n[1]);

    case Reason::kKeyMalformed:
      return fmt::format(
          "a key is 64 characters of base64url and this text has {}; hand it over whole, without "
          "quotes or line ends",
          n[0]);
    case Reason::kKeyUnknown:
      return fmt::format(
          "this key was not issued by the broker at {} ({}, uid {}), or it was altered; {}the "
          "exporter may use another broker (HUFU_BROKER)",
          context.broker, name_of(context.mode), context.broker_uid,
          context.gone_pid == 0
              ? std::string("a key dies with the broker that issued it, and ")
              : fmt::format(
                    "the broker of before (pid {}) has ended, and its keys with it: ask the "
                    "exporter for a new one; or ",
                    context.gone_pid));
    case Reason::kExportEnded:
      return "the export has ended: the exporter withdrew the key, freed the memory or is gone; "
             "ask it for a new key";
    case Reason::kNotListed:
      return fmt::format(
          "process {} is not among the {} on the list of the exporter, process {}; the exporter "
          "must call {} with {} (aclrtDeviceGetBareTgid), after that process has started",
          n[0], n[2], n[1],
          context.handle ? "aclrtMemSetPidToShareableHandle" : "aclrtIpcMemSetImportPid", n[0]);
    case Reason::kOtherUser:
      return fmt::format(
          "the importer's uid {} is not the exporter's uid {}; run both as one user, or let the "
          "system broker's policy allow it",
          n[0], n[1]);
    case Reason::kUnmappedUser:
      return fmt::format(
          "uid {} stands for every user whom the broker's user namespace cannot name, so it equals "
          "nobody; run exporter, importer and broker in one user namespace",
          n[0]);
    case Reason::kReadOnlyExport:
      return "the memory is shared read-only and read-write access was asked for; open it "
             "read-only, or let the exporter share it read-write";
    case Reason::kNotExporter:
      return fmt::format(
          "process {} did not make this {}; only its exporter, process {}, may edit or withdraw "
          "it",
          n[0], context.handle ? "handle" : "key", n[1]);
    case Reason::kListDisabled:
      return fmt::format(
          "the {} was made without a list of processes "
          "({}); make it with flags 0 to list processes",
          context.handle ? "handle" : "key",
          context.handle ? "ACL_RT_VMM_EXPORT_FLAG_DISABLE_PID_VALIDATION"
                         : "ACL_RT_IPC_MEM_EXPORT_FLAG_DISABLE_PID_VALIDATION");
    case Reason::kListFull:
      return fmt::format(
          "the list holds {} processes and its limit is {}; make another key for the rest", n[0],
          n[1]);
    case Reason::kNoSuchProcess:
      return fmt::format(
          "there is no process {}; list a process after it has started, by its "
          "aclrtDeviceGetBareTgid",
          n[0]);
    case Reason::kNotImported:
      return "this process does not hold it: it was never imported here, or closed as often as "
             "opened; close once for each import";
    case Reason::kNoProcessId:
      return "the broker cannot see this process's pid (another pid namespace), so no list can "
             "name it; run both in one pid namespace, or export without a list";

    case Reason::kHandleUnknown:
      return fmt::format(
          "no living export of the broker at {} ({}, uid {}) has this handle; its exporter freed "
          "it or is gone, or uses another broker (HUFU_BROKER), or the {} were not handed over "
          "whole: ask the exporter for a new one",
          context.broker, name_of(context.mode), context.broker_uid,
          n[0] == 0 ? "8 bytes" : "128 bytes");
    case Reason::kHandleExists:
      return "this memory has a shareable handle already, and may have one at a time; hand that "
             "one "
             "to all importers, or free it first";

    case Reason::kCapacity:
      return fmt::format(
          "{} bytes were asked for and device {} has {} of {} free; free memory there, or raise "
          "the capacity (HUFU_DEVICE_CAPACITY, capacity= of the broker)",
          n[0], n[3], n[1], n[2]);
    case Reason::kNoDevice:
      return fmt::format(
          "there is no device {}: the broker has {}, numbered from 0 (HUFU_DEVICES when it starts)",
          n[0], n[1]);
    case Reason::kDescriptors:
      return fmt::format(
          "{} file descriptors are in use and the limit is {}; raise it (`ulimit -n`), or keep "
          "many small objects in one pool",
          n[0], n[1]);
    case Reason::kTooManyExports:
      return fmt::format("{} exports exist and the limit is {}; close keys that nobody needs", n[0],
                         n[1]);
    case Reason::kMemory:
      return fmt::format(
          "{} bytes were asked for and the machine or the cgroup has {}; free memory or raise the "
          "cgroup's limit",
          n[0], n[1]);
    case Reason::kTooManySessions:
      return fmt::format(
          "{} sessions or connections of this user are open at the broker and the limit is {}; end "
          "some of its processes, or start the broker with a higher one (hufud --max-sessions)",
          n[0], n[1]);
    case Reason::kTooManyImports:
      return fmt::format(
          "this process holds {} imports and the limit is {}; close some, or let the "
          "exporter share many small objects as one pool",
          n[0], n[1]);
    case Reason::kSizeTooLarge:
      return fmt::format("{} bytes were asked for and one block has at most {}; use several", n[0],
                         n[1]);
    case Reason::kTooManyBlocks:
      return fmt::format(
          "{} blocks of this user exist and the limit is {}, for each costs the broker a file "
          "descriptor; free some, keep many small objects in one pool, or start the broker with "
          "more (hufud --max-blocks, `ulimit -Hn`)",
          n[0], n[1]);
    case Reason::kTooManyShares:
      return fmt::format(
          "{} exports of this user exist, those included that ended and are still imported, and "
          "the limit is {}; free what nobody needs, and let importers close",
          n[0], n[1]);
    case Reason::kTooManyHolds:
      return fmt::format(
          "the processes of this user hold {} imports and the limit is {}; close some, or let the "
          "exporter share many small objects as one pool",
          n[0], n[1]);
    case Reason::kTooManyListed:
      return fmt::format(
          "the lists of this user's exports have {} entries and the limit is {}; close keys that "
          "nobody needs, or export without a list",
          n[0], n[1]);

    case Reason::kAuditFailed:
      return "the broker could not record it, and what cannot be recorded is not granted; see "
             "`hufu audit path` for the log's directory and make room there";
    case Reason::kBrokerGone:
      return "the broker ended meanwhile; keys and blocks of it are dead, mappings stay: try again";
    case Reason::kBrokerSilent:
      return fmt::format(
          "the broker did not answer within {} ms; see `hufu doctor`, or raise HUFU_TIMEOUT_MS",
          n[0]);
    case Reason::kNoBroker:
      return "HUFU_BROKER=none: this process runs without a broker and shares nothing; unset "
             "HUFU_BROKER, here and in the other process";
    case Reason::kBrokerUntrusted:
      return fmt::format(
          "the broker at {} is not run by this user, root or the owner of the system's socket; "
          "see who listens there, or set HUFU_BROKER",
          context.broker);
  }
  return fmt::format("refused for reason {}, which this library is too old to explain",
                     static_cast<unsigned>(reason));
}

}  // namespace

std::string what_with_key(std::string_view verb, const char* key) {
  const auto id = public_id_of(wire::view_of(wire::key_text(key)));
  if (!id) return fmt::format("{} of a text that is no key", verb);
  return fmt::format("{} of key {}", verb, IdText(*id).view());
}

std::string what_with_handle(std::string_view verb, const HandleName& name) {
  if (wire::token_of(name.text())) return fmt::format("{} of a handle named by its token", verb);
  const auto id = public_id_of(wire::view_of(name.text()));
  if (!id) return fmt::format("{} of bytes that are no fabric handle", verb);
  return fmt::format("{} of handle {}", verb, IdText(*id).view());
}

Errc errc_of(Reason reason) {
  switch (reason) {
    case Reason::kNone:
    case Reason::kMalformed:
    case Reason::kOutOfOrder:
    case Reason::kIdentityChanged:
    case Reason::kUnknownBlock:
    case Reason::kNotAligned:
    case Reason::kOutOfRange:
    case Reason::kSlabPiece:
    case Reason::kNotCommitted:
    case Reason::kSealKind:
    case Reason::kSealsChanged:
    case Reason::kImportedMemory:
    case Reason::kPartOfBlock:
    case Reason::kKeyMalformed:
    case Reason::kKeyUnknown:
    case Reason::kExportEnded:
    case Reason::kNotListed:
    case Reason::kOtherUser:
    case Reason::kUnmappedUser:
    case Reason::kReadOnlyExport:
    case Reason::kNotExporter:
    case Reason::kNoSuchProcess:
    case Reason::kNotImported:
    case Reason::kNoProcessId:
    case Reason::kHandleExists:
    case Reason::kBadCharge:
    case Reason::kAuditFailed:
      return Errc::kRefused;
    case Reason::kHandleUnknown:
      return Errc::kInvalidHandle;
    case Reason::kSystem:
      return Errc::kSystem;
    case Reason::kNotBuilt:
      return Errc::kNotSupported;
    case Reason::kEmptyRange:
    case Reason::kBadFlags:
      return Errc::kInvalidValue;
    case Reason::kUnregistered:
      return Errc::kUnregistered;
    case Reason::kListDisabled:
      return Errc::kNotPermitted;
    case Reason::kNoDevice:
      return Errc::kInvalidDevice;
    case Reason::kCapacity:
    case Reason::kDescriptors:
    case Reason::kMemory:
    case Reason::kSizeTooLarge:
    case Reason::kTooManyBlocks:
      return Errc::kOutOfMemory;
    case Reason::kListFull:
    case Reason::kTooManyExports:
    case Reason::kTooManyImports:
    case Reason::kTooManySessions:
    case Reason::kTooManyShares:
    case Reason::kTooManyHolds:
    case Reason::kTooManyListed:
      return Errc::kTableFull;
    case Reason::kVersion:
    case Reason::kBrokerGone:
    case Reason::kBrokerSilent:
    case Reason::kNoBroker:
    case Reason::kBrokerUntrusted:
      return Errc::kUnavailable;
  }
  return Errc::kRefused;  // A number from a newer broker.
}

Error to_error(Reason reason, const std::array<std::uint64_t, 4>& numbers,
               const RefusalContext& context, int sys_errno) {
  Error error = fail(errc_of(reason), reason, "{}: {}", context.what,
                     explain(reason, numbers, context, sys_errno));
  error.sys_errno = sys_errno;
  return error;
}

Error to_error(const wire::Refusal& refusal, const RefusalContext& context) {
  return to_error(static_cast<Reason>(refusal.reason), refusal.number, context, refusal.sys_errno);
}

}  // namespace hufu::share
