#pragma once

// Imports: what this process has imported, by key and by address.
//
//   absent ── open ──▶ opening ──▶ open, count 1 ◀── open/close ──▶ open, count n
//      ▲                  │ refused                                     │ last close
//      └──────────────────┴───────────── unmapped, broker told ◀── closing
//
// A key is mapped once: every further open gives the same address and costs no call to the broker,
// which counts mappings, not opens (D17). It costs two loads: of the export's status word and of
// the broker's life word. When either says that the grant is over, the broker is asked anew, and
// what it answers counts; what is mapped stays mapped until it is closed. The first open of a key
// and its last close happen one at a time; who comes meanwhile waits, and shares the outcome of an
// open. A mapping needs no broker: it survives the broker's death, and is closed locally then.
//
// Exactly the granted range is mapped, not inherited by fork, not in core dumps; the descriptor is
// closed at once. The keys themselves are not kept, only a keyed hash of them. Thread-safe.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/result.h"
#include "base/units.h"
#include "share/client.h"
#include "share/public_id.h"

namespace hufu::share {

struct Import {
  std::byte* base;
  std::uint64_t size;           // Mapped.
  std::uint64_t reported_size;  // What the exporter shared; not more than `size`.
  PageSize page;
  Access access;
  std::uint32_t device;
  std::int32_t exporter_pid;
  std::uint64_t share;
  PublicId key_id;
};

class Imports;

// An import that nobody has open any more, still mapped. Its address must lead nowhere before it is
// unmapped, and work queued on it must be over: so the last closer gets this, and its end unmaps
// the range and tells the broker.
class ClosingImport {
 public:
  ~ClosingImport();
  ClosingImport(ClosingImport&& other) noexcept;
  ClosingImport& operator=(ClosingImport&&) = delete;
  ClosingImport(const ClosingImport&) = delete;
  ClosingImport& operator=(const ClosingImport&) = delete;

  const Import& import() const;

 private:
  friend class Imports;
  struct Last;
  explicit ClosingImport(std::unique_ptr<Last> last);
  std::unique_ptr<Last> last_;
};

class Imports {
 public:
  // Told of each import that is mapped, before anybody can have it from open().
  using Opened = std::function<void(const Import&)>;

  // `client` must outlive this.
  explicit Imports(Client& client, Opened opened = {});
  ~Imports();  // Unmaps what is still open. No ClosingImport may be left.
  Imports(const Imports&) = delete;
  Imports& operator=(const Imports&) = delete;

  // `access` is a hufu::Access, or 0 for whatever the export grants. A key that is open already is
  // not granted anew: asking for more than it was opened with is refused.
  Result<Import> open(const char* key, std::uint32_t access);

  // The same for many keys with few requests, in the keys' order.
  std::vector<Result<Import>> open_batch(std::span<const char* const> keys, std::uint32_t access);

  // Both without a lock, for keys that are open; share/open_keys.h has the details. The address, or
  // null when open() must be asked. False when close() must be asked.
  std::byte* open_again(const char* key);
  bool close_one_of_many(const char* key);

  // One open less. Holds a value for the last one. A key that is not open is refused with
  // kNotImported, which tells an exporter's withdrawal from an importer's close.
  Result<std::optional<ClosingImport>> close(const char* key);

  // The open import that this address is inside.
  std::optional<Import> find(const void* address) const;

  // Is its last close on its way, with the range still mapped?
  bool closing(const char* key) const;

  // In a forked child, where none of this is mapped.
  void forget_after_fork();

 private:
  friend class ClosingImport;
  struct Entry;
  struct Table;

  // Maps what was granted, and lets those who wait for the entry go on.
  Result<Import> finish(const std::shared_ptr<Entry>& entry, Result<Client::Grant> grant);
  void settle(const std::shared_ptr<Entry>& entry, const Error* error);

  Client& client_;
  Opened opened_;
  Table* table_;  // Owned; see Client::state_.
};

}  // namespace hufu::share
