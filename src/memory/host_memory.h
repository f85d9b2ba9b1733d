#pragma once

// HostMemory: what aclrtMallocHost gives out. Private memory of this process, committed at once.
//
// It is the one kind of memory that a forked child keeps: the child has its own copy, may read,
// write and free it, and is no concern of the broker's. So these books live for as long as the
// process and its children do, outside the Runtime, which a child makes anew. Whatever registry of
// addresses is in use is told of each range.
//
// Device programs of a real card reach such memory by DMA, for which it is locked. Here nothing
// does, so it is not locked and takes nothing of RLIMIT_MEMLOCK.
//
// Thread-safe, also across fork: no child is made while a thread is in the middle of a change.

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <utility>

#include "base/result.h"
#include "memory/address_registry.h"

namespace hufu::memory {

class HostMemory {
 public:
  // The process's. Never destroyed.
  static HostMemory& of_process();

  // From now on `registry` knows all ranges, the older ones too. It stays usable for as long as the
  // process lives; a child attaches its own.
  void attach(AddressRegistry& registry);

  // Whole pages of zeros; the size is rounded up to 32 bytes, as queries then report it.
  Result<void*> allocate(std::uint64_t size);

  // Owns a mapping.
  class Pages {
   public:
    static Result<Pages> map(std::uint64_t length);
    ~Pages();
    Pages(Pages&& other) noexcept
        : base_(std::exchange(other.base_, nullptr)), length_(other.length_) {}
    Pages& operator=(Pages&&) = delete;
    Pages(const Pages&) = delete;
    Pages& operator=(const Pages&) = delete;

    std::byte* base() const { return base_; }
    std::uint64_t length() const { return length_; }

   private:
    Pages(std::byte* base, std::uint64_t length) : base_(base), length_(length) {}

    std::byte* base_;
    std::uint64_t length_;
  };

  // `pointer` is the start of an allocation made here; for every call from now on it is nothing.
  // The end of what this returns unmaps it: work that was queued may still use it.
  Result<Pages> retire(const void* pointer);

 private:
  HostMemory() = default;

  struct Range {
    Pages pages;
    std::uint64_t size;
  };

  std::mutex mutex_;
  std::map<std::uintptr_t, Range> ranges_;  // By base.
  AddressRegistry* registry_ = nullptr;
};

}  // namespace hufu::memory
