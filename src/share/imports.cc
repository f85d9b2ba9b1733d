#include "share/imports.h"

#include <algorithm>
#include <array>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>

#include "os/mapping.h"
#include "share/open_keys.h"
#include "share/refusal.h"
#include "share/waiting.h"
#include "wire/codec.h"

namespace hufu::share {
namespace {

struct FirstWord {
  std::size_t operator()(const KeyHash& hash) const { return hash.words[0]; }
};

// Address space that closed imports leave for the next ones: so many places, and bytes together.
constexpr std::size_t kPlacesKept = 64;
constexpr std::uint64_t kPlaceBytesKept = 4 * kGiB;

bool is_writable(Access access) { return access == Access::kReadWrite; }

}  // namespace

struct Imports::Entry {
  enum class State : std::uint8_t { kOpening, kFailed, kOpen, kClosing };

  State state = State::kOpening;
  Error error;                   // Of kFailed.
  std::uint64_t generation = 0;  // Of the session that it was granted to.
  GrantWord grant;
  OpenKeys::Entry* counted = nullptr;  // How often it is open; from kOpen on.

  Import view{};
  os::GuardedMapping mapping;
  KeyHash key{};
};

struct Imports::Table {
  KeyHash hash(const char* key) const { return hasher.of(key); }

  const KeyHasher hasher;
  OpenKeys keys;  // What it does not do for any thread: under `mutex`.
  mutable std::mutex mutex;

  // --- Under `mutex` ---
  os::Reservation take_place(std::uint64_t length, PageSize alignment) {
    const auto fits = [&](const os::Reservation& place) {
      return place.length() == length && place.alignment() == alignment;
    };
    const auto found = std::ranges::find_if(places, fits);
    if (found == places.end()) return {};
    os::Reservation place = std::move(*found);
    places.erase(found);
    place_bytes -= length;
    return place;
  }
  // What there is no room for is returned, to be released without the lock.
  os::Reservation keep_place(os::Reservation place) {
    if (place.length() == 0 || place.length() > kPlaceBytesKept) return place;
    os::Reservation oldest;
    place_bytes += place.length();
    places.push_back(std::move(place));
    if (places.size() > kPlacesKept || place_bytes > kPlaceBytesKept) {
      oldest = std::move(places.front());
      places.pop_front();
      place_bytes -= oldest.length();
    }
    return oldest;
  }

  void adopt(Entry& entry, const Client::Grant& given) {
    // One for each session; a thread may look at a word of an ended one at any time.
    if (statuses.empty() || statuses.back() != given.status) statuses.push_back(given.status);
    entry.generation = given.generation;
    entry.grant = {
        .status = given.status.get(), .slot = given.reply.slot, .live = given.reply.status};
    entry.view.share = given.reply.share;
  }

  std::deque<os::Reservation> places;
  std::uint64_t place_bytes = 0;
  std::vector<std::shared_ptr<const Status>> statuses;
  std::condition_variable changed;  // An entry has left kOpening or the table.
  std::unordered_map<KeyHash, std::shared_ptr<Entry>, FirstWord> by_key;
  std::map<const std::byte*, const Entry*> by_base;  // Of those in kOpen.
  Table* parents = nullptr;                          // After fork. Kept reachable, never touched.
};

// --- The last close ------------------------------------------------------------------------------

struct ClosingImport::Last {
  Imports* imports;
  Imports::Table* table;
  std::shared_ptr<Imports::Entry> entry;

  Last(Imports* of, Imports::Table* in, std::shared_ptr<Imports::Entry> what)
      : imports(of), table(in), entry(std::move(what)) {}
  Last(const Last&) = delete;
  Last& operator=(const Last&) = delete;
  Last(Last&&) = delete;
  Last& operator=(Last&&) = delete;

  ~Last() {
    // A child's copy of its parent's: nothing is mapped here, and the session is not ours.
    if (imports->table_ != table) return;
    os::Reservation place = entry->mapping.vacate();
    imports->client_.close({entry->view.share, entry->generation});
    // Only now may the key be imported again: the broker counts one mapping for each process, and
    // must hear of this one's end first.
    const std::lock_guard lock(table->mutex);
    place = table->keep_place(std::move(place));
    table->keys.remove(entry->counted);
    table->by_key.erase(entry->key);
    table->changed.notify_all();
  }
};

ClosingImport::ClosingImport(std::unique_ptr<Last> last) : last_(std::move(last)) {}
ClosingImport::ClosingImport(ClosingImport&& other) noexcept = default;
ClosingImport::~ClosingImport() = default;
const Import& ClosingImport::import() const { return last_->entry->view; }

// --- Imports -------------------------------------------------------------------------------------

Imports::Imports(Client& client, Opened opened)
    : client_(client), opened_(std::move(opened)), table_(new Table) {}

Imports::~Imports() {
  for (auto& [key, entry] : table_->by_key) {
    if (entry->state != Entry::State::kOpen) continue;
    entry->mapping.unmap();
    client_.close({entry->view.share, entry->generation});
  }
  delete table_;
}

std::byte* Imports::open_again(const char* key) {
  return table_->keys.open_again(table_->hash(key));
}

bool Imports::close_one_of_many(const char* key) {
  return table_->keys.close_one_of_many(table_->hash(key));
}

Result<Import> Imports::open(const char* key, std::uint32_t access) {
  const KeyHash hash = table_->hash(key);
  std::shared_ptr<Entry> entry;
  {
    std::unique_lock lock(table_->mutex);
    const int limit_ms = wait_limit_ms();
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(limit_ms);
    while (true) {
      const auto found = table_->by_key.find(hash);
      if (found == table_->by_key.end()) break;
      entry = found->second;
      if (entry->state == Entry::State::kOpening) {
        // Ends: each of the opener's waits is bounded.
        table_->changed.wait(lock, [&] { return entry->state != Entry::State::kOpening; });
        if (entry->state == Entry::State::kFailed) return entry->error;
        continue;
      }
      if (entry->state == Entry::State::kClosing) {
        if (table_->changed.wait_until(lock, deadline) == std::cv_status::no_timeout) continue;
        return fail(Errc::kUnavailable, Reason::kExportEnded,
                    "{}: its last close still waits, after {} ms, for work that was queued on it; "
                    "synchronize the stream, then import again",
                    what_with_key("import", key), limit_ms);
      }
      const bool wants_more = access == static_cast<std::uint32_t>(Access::kReadWrite) &&
                              !is_writable(entry->view.access);
      if (wants_more) {
        return fail(Errc::kRefused, Reason::kReadOnlyExport,
                    "{}: this process holds it read-only and asks for read-write access now; close "
                    "it, then open it read-write",
                    what_with_key("import", key));
      }
      if (!entry->grant.holds()) {
        // Asking is not for show: the refusal belongs in the record, and a broker that came back
        // with its keys may grant it again.
        lock.unlock();
        auto grant = client_.import(key, access);
        if (!grant) return grant.error();
        lock.lock();
        if (entry->state != Entry::State::kOpen) {
          lock.unlock();
          client_.close({grant->reply.share, grant->generation});
          lock.lock();
          continue;
        }
        table_->adopt(*entry, *grant);
      }
      OpenKeys::reopen(entry->counted, entry->grant, OpenKeys::shut(entry->counted) + 1);
      return entry->view;
    }
    entry = std::make_shared<Entry>();
    entry->key = hash;
    table_->by_key.emplace(hash, entry);
  }

  return finish(entry, client_.import(key, access));
}

std::vector<Result<Import>> Imports::open_batch(std::span<const char* const> keys,
                                                std::uint32_t access) {
  // Keys that nobody here has are asked for together, each once. The others, and those that are
  // named again, come one by one behind them: nobody waits for anybody while an entry is opening.
  std::vector<std::optional<Result<Import>>> done(keys.size());
  std::vector<std::size_t> asked;
  std::vector<const char*> texts;
  std::vector<std::shared_ptr<Entry>> entries;
  {
    const std::lock_guard lock(table_->mutex);
    for (std::size_t i = 0; i < keys.size(); ++i) {
      const KeyHash hash = table_->hash(keys[i]);
      if (table_->by_key.contains(hash)) continue;
      auto entry = std::make_shared<Entry>();
      entry->key = hash;
      table_->by_key.emplace(hash, entry);
      entries.push_back(std::move(entry));
      asked.push_back(i);
      texts.push_back(keys[i]);
    }
  }
  for (std::size_t from = 0; from < asked.size(); from += wire::kMaxBatch) {
    const std::size_t count = std::min(wire::kMaxBatch, asked.size() - from);
    auto grants = client_.import_batch(std::span(texts).subspan(from, count), access);
    for (std::size_t i = from; i < from + count; ++i) {
      done[asked[i]] = finish(entries[i], grants ? std::move((*grants)[i - from])
                                                 : Result<Client::Grant>(grants.error()));
    }
  }
  std::vector<Result<Import>> results;
  results.reserve(keys.size());
  for (std::size_t i = 0; i < keys.size(); ++i)
    results.push_back(done[i] ? std::move(*done[i]) : open(keys[i], access));
  return results;
}

void Imports::settle(const std::shared_ptr<Entry>& entry, const Error* error) {
  const std::lock_guard lock(table_->mutex);
  if (error != nullptr) {
    entry->error = *error;
    entry->state = Entry::State::kFailed;
    table_->by_key.erase(entry->key);
  } else {
    entry->state = Entry::State::kOpen;
    table_->by_base.emplace(entry->view.base, entry.get());
    entry->counted = table_->keys.enter(entry->key, entry->view.base);
    OpenKeys::reopen(entry->counted, entry->grant, 1);
  }
  table_->changed.notify_all();
}

Result<Import> Imports::finish(const std::shared_ptr<Entry>& entry, Result<Client::Grant> grant) {
  if (!grant) {
    settle(entry, &grant.error());
    return grant.error();
  }
  const wire::ImportReply& reply = grant->reply;
  const PageSize page = *page_size_of(reply.page);  // The codec lets no other pass.
  const auto granted = static_cast<Access>(reply.access);
  const os::MapRange range{.offset = reply.offset,
                           .length = reply.size,
                           .access = granted,
                           .alignment = page,
                           .in_core_dumps = false};
  auto place = [&] {
    const std::lock_guard lock(table_->mutex);
    return table_->take_place(range.length, range.alignment);
  }();
  auto mapping = place.length() == 0
                     ? os::GuardedMapping::map(grant->fd.get(), range)
                     : os::GuardedMapping::map(grant->fd.get(), range, std::move(place));
  grant->fd.reset();
  if (!mapping) {
    client_.close({reply.share, grant->generation});
    settle(entry, &mapping.error());
    return mapping.error();
  }
  entry->mapping = std::move(*mapping);
  entry->view = {.base = entry->mapping.base(),
                 .size = reply.size,
                 .reported_size = reply.reported_size,
                 .page = page,
                 .access = granted,
                 .device = reply.device,
                 .exporter_pid = reply.exporter_pid,
                 .share = reply.share,
                 .key_id = {reply.public_id}};
  {
    const std::lock_guard lock(table_->mutex);
    table_->adopt(*entry, *grant);
  }
  if (opened_) opened_(entry->view);
  settle(entry, nullptr);
  return entry->view;
}

Result<std::optional<ClosingImport>> Imports::close(const char* key) {
  const KeyHash hash = table_->hash(key);
  const std::lock_guard lock(table_->mutex);
  const auto found = table_->by_key.find(hash);
  if (found == table_->by_key.end() || found->second->state != Entry::State::kOpen) {
    return to_error(Reason::kNotImported, {}, {.what = what_with_key("close", key)});
  }
  const auto& entry = found->second;
  const std::uint32_t opens = OpenKeys::shut(entry->counted);
  if (opens > 1) {
    OpenKeys::reopen(entry->counted, entry->grant, opens - 1);
    return std::optional<ClosingImport>();
  }
  entry->state = Entry::State::kClosing;
  table_->by_base.erase(entry->view.base);
  return std::optional<ClosingImport>(
      ClosingImport(std::make_unique<ClosingImport::Last>(this, table_, entry)));
}

std::optional<Import> Imports::find(const void* address) const {
  const auto* wanted = static_cast<const std::byte*>(address);
  const std::lock_guard lock(table_->mutex);
  auto after = table_->by_base.upper_bound(wanted);
  if (after == table_->by_base.begin()) return std::nullopt;
  const Import& candidate = std::prev(after)->second->view;
  if (wanted >= candidate.base + candidate.size) return std::nullopt;
  return candidate;
}

bool Imports::closing(const char* key) const {
  const KeyHash hash = table_->hash(key);
  const std::lock_guard lock(table_->mutex);
  const auto found = table_->by_key.find(hash);
  return found != table_->by_key.end() && found->second->state == Entry::State::kClosing;
}

void Imports::forget_after_fork() {
  auto* fresh = new Table;
  fresh->parents = table_;
  table_ = fresh;
}

}  // namespace hufu::share
