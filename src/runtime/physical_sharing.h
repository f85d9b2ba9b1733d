#pragma once

// PhysicalSharing: shareable handles of physical memory, where handles of this process and the
// broker's client meet.
//
// What is exported has one shareable handle at a time, which the broker sees to; what was imported
// has none. A shareable handle ends when the program frees the handle that it was made of for the
// last time, whatever is mapped still: no new imports from then on, and who has imported it keeps
// the memory. Thread-safe.

#include <cstdint>
#include <map>
#include <mutex>
#include <span>

#include "base/result.h"
#include "memory/physical.h"
#include "share/client.h"
#include "share/handle_name.h"
#include "share/handles.h"

namespace hufu::runtime {

class PhysicalSharing {
 public:
  // All outlive this.
  PhysicalSharing(memory::PhysicalMemory& memory, share::Client& client, share::Handles& handles)
      : memory_(memory), client_(client), handles_(handles) {}

  // `flags` are wire::ExportFlag.
  Result<wire::ExportHandleReply> export_handle(memory::PhysicalHandle handle, std::uint32_t flags);

  // Adds processes to the whitelist of an export of this process. Zeros are skipped.
  Result<void> list_pids(const share::HandleName& name, std::span<const std::int32_t> pids) {
    return handles_.list_pids(name, pids);
  }

  enum class Properties : bool { kUnknown, kKnown };
  // A handle of this process's own, whose memory counts as `device`'s. What this process exported
  // itself, of the same device, is refused as CANN's driver does.
  Result<memory::PhysicalHandle> import(const share::HandleName& name, int device,
                                        Properties properties);

  // One reference of the program's less.
  Result<void> free(memory::PhysicalHandle handle);

 private:
  struct Exported {
    share::HandleName token;
    share::HandleName fabric;
    int device;
  };

  memory::PhysicalMemory& memory_;
  share::Client& client_;
  share::Handles& handles_;
  // Held while a shareable handle is made, so that no free misses it.
  std::mutex mutex_;
  std::map<std::uint64_t, Exported> exported_;  // By block.
};

}  // namespace hufu::runtime
