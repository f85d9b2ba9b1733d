#pragma once

// Where blocks come from: somebody who counts the device's capacity and makes empty memory files.
//
// memory/ knows no broker. With one, the runtime hands the heap a source that asks it; without one
// (HUFU_BROKER=none) LocalSource makes the files in this process and counts for this process alone.
// Either way the file is empty: it is the heap that commits its pages, so that they are charged to
// the process that uses them.

#include <cstdint>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"
#include "base/units.h"
#include "memory/usage.h"
#include "os/memfd.h"

namespace hufu::memory {

// May a block be made of the machine's reserved huge pages?
enum class Hugetlb : std::uint8_t {
  kNever,     // What wants small pages, or has tried.
  kIfFree,    // Else of others, which the kernel may be able to make huge.
  kRequired,  // Of nothing else.
};

// What a block is charged: its size, from the beginning; or, in a sparse one, what charge() says is
// in use, which is nothing at first.
enum class Charging : std::uint8_t { kWhole, kByUse };

// In what a sparse block is charged, and its size a multiple of.
inline constexpr std::uint64_t kChargeUnit = 2 * kMiB;

struct BlockSpec {
  int device = 0;
  std::uint64_t size = 0;  // Of the file: a multiple of the page.
  PageSize page = PageSize::k4KiB;
  Hugetlb hugetlb = Hugetlb::kNever;  // Of a sparse one always this, and no page of 1 GiB.
  Charging charging = Charging::kWhole;

  bool operator==(const BlockSpec&) const = default;
};

struct Minted {
  std::uint64_t id = 0;
  UniqueFd fd;
  os::Backing backing = os::Backing::kShmem;
};

struct Capacity {
  std::uint64_t total = 0;
  std::uint64_t free = 0;
};

// Did a descriptor of the block ever leave this process?
enum class Lent : std::uint8_t { kNever, kOnce };

// Implementations are thread-safe.
class PageSource {
 public:
  PageSource() = default;
  virtual ~PageSource() = default;
  PageSource(const PageSource&) = delete;
  PageSource& operator=(const PageSource&) = delete;

  // An empty, sealed file, charged to the device until give_back. Whether it is what the spec
  // requires is for the caller to see.
  virtual Result<Minted> mint(const BlockSpec& spec) = 0;

  // A sparse block uses this many bytes from now on, a multiple of kChargeUnit and at most its
  // size. Say more before it is used and less after it was given back to the kernel. Only more can
  // fail, with kOutOfMemory, or with kRefused when whoever counted the block is gone (see
  // session()). One call at a time for one block: the last one said counts.
  virtual Result<void> charge(std::uint64_t id, std::uint64_t bytes) = 0;

  // The block's life ends. If it was lent, no key of it can be imported once this returns. It
  // cannot fail in a way that the caller could mend, so it answers nothing.
  virtual void give_back(std::uint64_t id, Lent lent) = 0;

  // No key of the block can be imported once this returns; it goes on being charged and used.
  virtual void end_keys(std::uint64_t id) = 0;
  // The same for keys to parts of the block that lie wholly in this one.
  virtual void end_keys(std::uint64_t /*id*/, std::uint64_t /*offset*/, std::uint64_t /*size*/) {}

  virtual Result<Capacity> capacity(int device) = 0;

  // Grows when whoever counted the blocks is gone: what was minted before counts nowhere any more.
  virtual std::uint64_t session() const { return 0; }

  // The heap begins to keep freed blocks: whoever may ask for them must find somebody who listens.
  // False: there is nobody, so nothing may be kept.
  virtual bool reserve_begins() { return true; }

  // What the source keeps ready is to be counted there from now on, and nothing was kept before.
  virtual void count_in(Usage* /*usage*/) {}

  // Ends what the source itself has ready beyond what it gave out; how many bytes that was.
  virtual std::uint64_t give_back_spares() { return 0; }
};

struct LocalDevices {
  int count = 0;
  std::uint64_t capacity = 0;  // Of each.
};

class LocalSource final : public PageSource {
 public:
  explicit LocalSource(const LocalDevices& devices);

  Result<Minted> mint(const BlockSpec& spec) override;
  Result<void> charge(std::uint64_t id, std::uint64_t bytes) override;
  void give_back(std::uint64_t id, Lent lent) override;
  void end_keys(std::uint64_t /*id*/) override {}  // There are none.
  Result<Capacity> capacity(int device) override;

 private:
  struct Charge {
    int device = 0;
    std::uint64_t bytes = 0;
    std::uint64_t most = 0;  // Of a sparse one its size, else 0.
  };

  Error fail_capacity(int device, std::uint64_t bytes) const;

  const std::uint64_t capacity_per_device_;
  std::mutex mutex_;
  std::vector<std::uint64_t> used_;  // By device.
  std::unordered_map<std::uint64_t, Charge> live_;
  std::uint64_t last_id_ = 0;
};

}  // namespace hufu::memory
