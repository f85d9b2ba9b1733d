#pragma once

// Handles: shareable handles that this process has imported.
//
// A handle stands for a whole block, and its importer gets the block's descriptor: unlike a key's
// (share/imports.h), its memory is mapped by whoever asked, where and as often as he likes. So what
// is held here is not a mapping but the right to one, from import() until its Hold ends.
//
// The broker counts one hold for each process; several imports of one handle in one process are
// independent here, and the broker hears of the first and of the end of the last. A Hold must end
// after what was mapped from its descriptor is unmapped, for the broker then asks the kernel
// whether anybody has the memory still.
//
// Thread-safe. Outlives its Holds.

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <utility>

#include "base/result.h"
#include "base/unique_fd.h"
#include "base/units.h"
#include "share/client.h"
#include "share/handle_name.h"
#include "share/open_keys.h"
#include "share/public_id.h"

namespace hufu::share {

class Handles {
 public:
  class Hold {
   public:
    Hold() = default;
    ~Hold();
    Hold(Hold&& other) noexcept;
    Hold& operator=(Hold&& other) noexcept;
    Hold(const Hold&) = delete;
    Hold& operator=(const Hold&) = delete;

    bool valid() const { return of_ != nullptr; }

   private:
    friend class Handles;
    Hold(Handles* of, Client::Held held) : of_(of), held_(held) {}

    Handles* of_ = nullptr;
    Client::Held held_{};
  };

  struct Import {
    Hold hold;
    // A fresh open of the block's file with `access`, the caller's to map and to close. What
    // it is was compared with what the broker said: at least `size` bytes, sealed against
    // shrinking and growing.
    UniqueFd fd;
    std::uint64_t size = 0;  // Of the block, whole from offset 0.
    PageSize page = PageSize::k4KiB;
    Access access = Access::kReadOnly;
    std::uint32_t device = 0;  // The exporter's.
    wire::Backing backing = wire::Backing::kShmem;
    std::int32_t exporter_pid = 0;
    std::uint64_t share = 0;
    PublicId public_id;  // For errors and listings.
    // Whether the export lives costs two loads: grant.holds(), while somebody keeps the status.
    std::shared_ptr<const Status> status;
    GrantWord grant;
  };

  explicit Handles(Client& client) : client_(client) {}

  // `access` is a hufu::Access, or 0 for whatever the export grants. A handle that no living export
  // has is refused with Errc::kInvalidHandle, one that this process may not import with kRefused.
  Result<Import> import(const HandleName& name, std::uint32_t access);

  // Adds processes to the whitelist of this process's export, as many as there are. Zeros and this
  // process are skipped; where nothing else is listed, that is refused.
  Result<void> list_pids(const HandleName& name, std::span<const std::int32_t> pids);

 private:
  void let_go(const Client::Held& held);

  Client& client_;
  std::mutex mutex_;
  // How often each is imported, by session and share.
  std::map<std::pair<std::uint64_t, std::uint64_t>, std::uint64_t> open_;
};

}  // namespace hufu::share
