#pragma once

// Sharing: what a program does with keys, where memory and the broker's client meet.
//
// The broker decides; this side knows addresses and knows the texts. What it can refuse by itself
// it refuses without asking, but never without the broker's hearing of it: every refusal is a
// record.
//
// An address is in the registry exactly while it is mapped: entered before import() returns it,
// gone before it is unmapped. Thread-safe.

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <variant>
#include <vector>

#include "base/result.h"
#include "memory/heap.h"
#include "runtime/lender.h"
#include "share/client.h"
#include "share/imports.h"
#include "share/public_id.h"

namespace hufu::runtime {

struct Key {
  std::array<char, share::kKeyTextSize + 1> text{};  // NUL-terminated.
};

class Sharing {
 public:
  // Both outlive this.
  Sharing(memory::Heap& heap, share::Client& client);

  // Memory of this kind is shared when the lender, which outlives this, lends it. Called before
  // anything is shared.
  void lend_from(memory::RegionKind kind, Lender& lender) { lenders_.emplace(kind, &lender); }

  // Would export_key() be refused here, before the broker is asked?
  Result<memory::ExportRange> exportable(const void* pointer, std::uint64_t size) const;

  // `flags` are wire::ExportFlag.
  Result<Key> export_key(const void* pointer, std::uint64_t size, std::uint32_t flags);

  // Many at once, with few requests; each is as good as if it were alone, and the results are in
  // the arguments' order. A range of no bytes is refused as export_key() refuses it.
  struct Range {
    const void* pointer;
    std::uint64_t size;
  };
  std::vector<Result<Key>> export_batch(std::span<const Range> ranges, std::uint32_t flags);
  std::vector<Result<void*>> import_batch(std::span<const char* const> keys);

  // Adds processes to the whitelist of an export of this process. Zeros are skipped.
  Result<void> list_pids(const char* key, std::span<const std::int32_t> pids);

  // The same for the process that a pidfd stands for.
  Result<void> list_pidfd(const char* key, int pidfd);

  // The start of the range. Each needs its own close().
  Result<void*> import(const char* key);

  // An importer's: one import less, and after the last one the range, which no call finds any more
  // and which is still mapped. Otherwise the exporter's: no new imports.
  Result<std::optional<share::ClosingImport>> close(const char* key);

  // Was the key's last import closed here, and is its memory still mapped for work that was queued?
  bool closing(const char* key) const { return imports_.closing(key); }

  // Which link an import of the key shall use. There is one kind of memory here, so it is kept for
  // its rules' sake: it makes an entry that one close() takes away.
  Result<void> advise_link(const char* key);

  // An address that a call refused because this process has no memory there.
  void report_unregistered(const void* pointer, std::uint64_t size) {
    client_.report(Reason::kUnregistered, pointer, size);
  }

  // In a forked child, which has none of the parent's imports.
  void forget_after_fork() { imports_.forget_after_fork(); }

 private:
  // What is shared, and what keeps it from ending while the broker is asked.
  struct Shared {
    memory::ExportRange range;
    std::variant<memory::Heap::ExportHold, std::shared_ptr<const void>> hold;
  };
  Result<Shared> begin_export(const void* pointer, std::uint64_t size, std::uint32_t flags);
  // Of the memory at `pointer`, which is not the heap's, if it has one. An error where CANN's
  // answer is wanted.
  Result<Lender*> lender_of(const memory::Region& region, const void* pointer) const;

  void report_refused_export(const void* pointer, std::uint64_t size, std::uint32_t flags,
                             Reason reason);

  memory::Heap& heap_;
  share::Client& client_;
  share::Imports imports_;
  const bool strict_;
  std::map<memory::RegionKind, Lender*> lenders_;
  // Held while an import is closed for the last time and its address removed, and for what follows.
  std::mutex mutex_;
  std::set<std::array<std::uint8_t, 16>> advised_;  // By public id.
};

}  // namespace hufu::runtime
