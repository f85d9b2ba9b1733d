#pragma once

// Client: this process's session with the broker.
//
// One connection, one request in flight, a mutex around it: a request and its answer are one call.
// Nothing happens before the first call, which connects, starts a personal broker if none listens,
// checks who listens there, and says HELLO.
//
// Every wait is bounded (HUFU_TIMEOUT_MS). After a timeout the connection is given up: an answer
// that comes late must never be taken for the next one's. When the broker has gone, a request that
// may be repeated is repeated once with the next broker; one about a block cannot be, because the
// block was the old broker's. Block numbers are this client's own and never return, so that an old
// one cannot mean a new broker's block.
//
// Thread-safe. No call throws or raises a signal.

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "base/reason.h"
#include "base/result.h"
#include "base/unique_fd.h"
#include "os/published.h"
#include "os/reported.h"
#include "share/address.h"
#include "share/handle_name.h"
#include "wire/message.h"

namespace hufu::share {

// What a session's broker says without being asked, for as long as anybody holds this: outlives the
// session.
struct Status {
  os::PublishedView words;  // Of the session's imports.
  os::PublishedView life;   // Of the broker.
};

class Client {
 public:
  struct Session {
    std::array<std::uint8_t, 16> instance;  // Of the broker.
    std::int32_t peer_pid;                  // This process, as the broker sees it.
    std::int32_t broker_pid;
    std::uint32_t broker_uid;
    std::uint32_t devices;
    std::uint64_t device_capacity;
    std::uint32_t mode;  // 1 personal, 2 system.
  };

  struct Minted {
    std::uint64_t block;
    UniqueFd fd;
    wire::Backing backing;
  };

  struct ExportRequest {
    std::uint64_t block;
    std::uint64_t offset;
    std::uint64_t size;
    std::uint64_t reported_size;  // What the user was told about the block (D6).
    std::uint32_t flags;          // wire::ExportFlag
  };

  struct Grant {
    UniqueFd fd;
    wire::ImportReply reply;
    std::uint64_t generation;  // Of the session that was granted it; close() wants it back.
    std::shared_ptr<const Status> status;
  };

  // An import, as the session that was granted it knows it.
  struct Held {
    std::uint64_t share;
    std::uint64_t generation;
  };

  explicit Client(BrokerAddress address);
  ~Client();  // Says BYE.
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  const BrokerAddress& address() const { return address_; }

  Result<Session> session();

  // All or nothing, at most wire::kMaxMint, one entry per spec in order.
  Result<std::vector<Minted>> mint(std::uint32_t device, std::span<const wire::MintSpec> specs);

  // A block that was exported is waited for: no import succeeds after this returns. A block of a
  // broker that is gone is refused with kUnknownBlock: nothing is left to be freed.
  Result<void> free(std::uint64_t block, bool exported);

  Result<wire::ExportReply> export_range(const ExportRequest& request);
  Result<void> withdraw(const char* key);
  // Every key of the block, which stays: no import succeeds after this returns.
  Result<void> end_all(std::uint64_t block);
  // Of the keys to parts of it, those that lie wholly in this one.
  Result<void> end_range(std::uint64_t block, std::uint64_t offset, std::uint64_t size);

  // `access` is a hufu::Access, or 0 for whatever the export grants. The descriptor has been
  // compared with what the reply says of it.
  Result<Grant> import(const char* key, std::uint32_t access);

  // Shareable handles: a whole block, its token and its key (fabric_handle_of()). A block has one
  // at a time. `flags` are wire::ExportFlag. Imports are for share/handles.h, which counts them.
  Result<wire::ExportHandleReply> export_handle(std::uint64_t block, std::uint32_t flags);
  // No import of it succeeds after this returns; who has imported it keeps the memory.
  Result<void> withdraw(const HandleName& name);
  Result<Grant> import(const HandleName& name, std::uint32_t access);

  // How much of a block that was minted with wire::kSparse is used from now on: a multiple of
  // wire::kChargeUnit, at most its size. Say more before it is used, and less after it was given
  // back to the kernel. Returns what is charged, which is more if the file has more. Only more can
  // be refused, with Errc::kOutOfMemory.
  Result<std::uint64_t> charge(std::uint64_t block, std::uint64_t bytes);

  // Up to wire::kMaxBatch at once, each answered as if it were alone.
  Result<std::vector<Result<wire::ExportReply>>> export_batch(
      std::span<const ExportRequest> requests);
  Result<std::vector<Result<Grant>>> import_batch(std::span<const char* const> keys,
                                                  std::uint32_t access);

  // Nothing to do, and nothing is done, when the session has ended.
  void close(const Held& import);

  // 1..wire::kMaxListPids at a time.
  Result<wire::ListPidReply> list_pids(const char* key, std::span<const std::int32_t> pids);
  Result<wire::ListPidReply> list_pids(const HandleName& name, std::span<const std::int32_t> pids);
  // A process by the number of its pidfd's inode in pidfs, which is never used twice.
  Result<wire::ListPidReply> list_process(const char* key, std::uint64_t pidfs_inode);
  Result<wire::StatReply> stat(std::uint32_t device);
  Result<std::vector<wire::ListReply>> list();
  Result<std::vector<wire::UsageReply>> usage();

  // Gets the memory in which this process says what it uses: this session's, and then each new
  // one's, as it begins. Called under a lock of the client's.
  using UsageWriter = std::function<void(std::shared_ptr<os::ReportedMemory>)>;
  void report_usage_with(UsageWriter writer);

  // How an export or import of this process is. With kStart its events go to attach()'s socket
  // from now on.
  Result<wire::ListReply> watch(const char* key, wire::WatchMode mode);
  Result<wire::ListReply> watch(std::uint64_t share, wire::WatchMode mode);

  // A second connection of the session, on which the broker talks; `generation` is the session's.
  struct Line {
    UniqueFd socket;
    std::uint64_t generation;
  };
  Result<Line> attach();

  // While one lives, closes are collected, and said many in one message: at its end, or before the
  // next request, which must come behind them.
  class ClosesTogether {
   public:
    explicit ClosesTogether(Client& client);
    ~ClosesTogether();
    ClosesTogether(const ClosesTogether&) = delete;
    ClosesTogether& operator=(const ClosesTogether&) = delete;

   private:
    Client& client_;
  };

  // Told of each import that close() gives back, by its share. Set once, before anything is
  // imported.
  void when_closed(std::function<void(std::uint64_t share)> told) { closed_ = std::move(told); }

  // For the record only: opens no session, waits for nothing but a request in flight, and says at
  // most 100 in a second.
  void report(Reason reason, const void* address, std::uint64_t size);
  // The same for an export of memory that was imported by this share.
  void report_imported(std::uint64_t share, std::uint64_t size);

  // The session's number, 0 before the first. It grows whenever a new session begins.
  std::uint64_t generation() const;

  // In a forked child, before anything else and while it has one thread: takes no lock, leaves the
  // parent's session alone, starts afresh with the next call.
  void forget_after_fork();

 private:
  struct State;

  BrokerAddress address_;
  std::function<void(std::uint64_t share)> closed_ = [](std::uint64_t) {};
  State* state_;  // Owned. A child abandons its parent's: a lock in it may be held for ever.
};

}  // namespace hufu::share
