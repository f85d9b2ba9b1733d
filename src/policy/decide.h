#pragma once

// Who may do what with which memory: the whole of access control, as pure functions.
//
// Nothing here reads a clock, a file or a socket. The broker gathers facts (from the kernel, never
// from the message), asks, records the answer and only then acts on it. Every function returns a
// Verdict; the first rule that says no names the reason.
//
// The rule for imports, in one line (allow iff all three hold):
//   the users match    AND    the process is listed, or no list    AND    the access was granted

#include <array>
#include <cstdint>
#include <span>

#include "base/reason.h"
#include "base/units.h"
#include "wire/message.h"

namespace hufu::policy {

struct Verdict {
  Reason reason = Reason::kNone;
  std::array<std::uint64_t, 4> number{};  // What they mean: base/reason.h.

  bool allowed() const { return reason == Reason::kNone; }
  friend bool operator==(const Verdict&, const Verdict&) = default;
};

enum class BrokerMode : std::uint8_t { kPersonal = 1, kSystem = 2 };

// A process as the kernel describes it.
struct Process {
  std::int32_t pid = 0;           // 0: outside the broker's pid namespace.
  std::uint64_t pidfs_inode = 0;  // 0: the kernel has no pidfs.
  std::uint32_t uid = 0;
  std::uint32_t gid = 0;
  std::span<const std::uint32_t> groups;  // Supplementary, at connect.
};

// What stands for "a user this broker cannot name". Such a user is equal to nobody.
struct OverflowIds {
  std::uint32_t uid = 65534;
  std::uint32_t gid = 65534;
};

// ---- EXPORT ----

struct BlockFacts {
  std::uint64_t size = 0;       // Of the file, from the file.
  std::uint64_t committed = 0;  // Bytes of memory behind it.
  PageSize page = PageSize::k4KiB;
  bool sparse = false;                     // Need not be committed.
  bool sealed = false;                     // By an earlier export ...
  Access sealed_for = Access::kReadWrite;  // ... of this kind, for good (D3).
};

// The range an importer will map: whole pages inside the file, by construction.
struct Range {
  std::uint64_t offset = 0;
  std::uint64_t size = 0;
  friend bool operator==(const Range&, const Range&) = default;
};

struct ExportVerdict {
  Verdict verdict;
  Range range;  // Only when allowed.
};

ExportVerdict decide_export(const wire::Export& request, const BlockFacts& block);

// ---- IMPORT ----

struct Listed {
  std::int32_t pid = 0;
  std::uint64_t pidfs_inode = 0;  // 0: the kernel has no pidfs.
  bool alive = false;
};

struct ShareFacts {
  bool live = false;
  Process exporter;
  bool any_process = false;  // Exported with the whitelist switched off.
  std::span<const Listed> listed;
  Access access = Access::kReadWrite;
  bool whole_block = false;
  std::uint64_t size = 0;
  std::uint64_t block_size = 0;
};

struct ImportVerdict {
  Verdict verdict;
  Access access = Access::kReadOnly;  // Only when allowed.
};

struct ImportWish {
  std::uint32_t access = 0;  // wire::Import::access: 0 asks for what the export gives.
  bool as_anybody = false;   // The exporter itself needs to be listed too.
};

ImportVerdict decide_import(const Process& importer, const ShareFacts& share,
                            const ImportWish& wish, BrokerMode mode, const OverflowIds& overflow);

// ---- LIST_PID, WITHDRAW ----

inline constexpr std::uint32_t kMaxListed = 1024;

// Only the exporting process edits a list, and only one that is in force.
Verdict decide_list(const Process& caller, const ShareFacts& share, std::uint32_t more);
Verdict decide_withdraw(const Process& caller, const ShareFacts& share);

// Are these one process? With pidfs, by inode. Without, by number, which is sound only while both
// are known to be alive; the caller holds a pidfd of each.
bool same_process(const Process& process, const Listed& entry);

}  // namespace hufu::policy
