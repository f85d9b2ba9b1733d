#pragma once

// Runtime: everything a process has of Hufu, made on first use and never destroyed.
//
// It is not destroyed because programs free memory from global destructors and atexit functions, in
// an order nobody controls. What a process leaves behind when it ends, the broker takes back.
//
//   Runtime ── Contexts, Streams           which device, in which order
//      ├────── Deferred                    what ended, and waits for work that may still use it
//      ├────── PhysicalMemory, Reservations   memory that the program maps itself
//      ├────── Pools                       allocation in stream order
//      ├────── Heap ── PageSource          LocalSource, or the broker through BrokerSource
//      └────── Sharing ── share::Imports ── share::Client ── the broker
//
// Beside it lies HostMemory, which forked children keep.
//
// A forked child has none of it: its parent's memory is not mapped there and its parent's session
// is not its own. The pointer to the Runtime lies in a page that fork wipes, so the child's first
// call makes a Runtime of its own, as a fresh process would; an atfork handler lets go of the
// parent's socket before.

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>

#include "base/result.h"
#include "memory/heap.h"
#include "memory/host_memory.h"
#include "memory/physical.h"
#include "memory/registrations.h"
#include "memory/reservations.h"
#include "memory/source.h"
#include "runtime/allocators.h"
#include "runtime/contexts.h"
#include "runtime/deferred.h"
#include "runtime/mapped_lender.h"
#include "runtime/physical_sharing.h"
#include "runtime/pools.h"
#include "runtime/sharing.h"
#include "runtime/streams.h"
#include "share/agent.h"
#include "share/client.h"
#include "share/handles.h"

namespace hufu::runtime {

class Runtime;

// What aclInit counts. Fork starts over.
struct InitState {
  std::atomic<std::uint64_t> references;
  std::atomic<std::uint64_t> configuration;  // A hash of it.
};

// What a process has one of, in a page that fork wipes. All zeros is the initial state of each of
// these (for glibc's mutex too), because zeros are what a child finds here: a mutex that another
// thread of the parent held at the fork is free again.
struct ProcessState {
  std::mutex making;
  std::atomic<Runtime*> runtime;
  InitState init;
};
extern constinit std::atomic<ProcessState*> process_state_page;  // Null before the first use.

class Runtime {
 public:
  // The process's. The first call chooses and meets the broker; it fails, and may be repeated,
  // while that cannot be done.
  static Result<Runtime*> get();
  // Null before a get() has succeeded.
  static Runtime* get_if_any() {
    const ProcessState* state = process_state_page.load(std::memory_order_acquire);
    return state == nullptr ? nullptr : state->runtime.load(std::memory_order_acquire);
  }

  ~Runtime() = default;  // For unique_ptr; never run.
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;

  Contexts& contexts() { return contexts_; }
  const Contexts& contexts() const { return contexts_; }
  Streams& streams() { return streams_; }
  const Deferred& deferred() const { return deferred_; }
  memory::Heap& heap() { return heap_; }
  memory::PhysicalMemory& physical() { return physical_; }
  memory::Reservations& reservations() { return reservations_; }
  PhysicalSharing& physical_sharing() { return physical_sharing_; }
  Pools& pools() { return pools_; }
  memory::Registrations& registrations() { return registrations_; }
  Allocators& allocators() { return allocators_; }
  Sharing& sharing() { return sharing_; }
  share::Handles& handles() { return handles_; }
  memory::PageSource& source() { return *source_; }
  share::Client& client() { return *client_; }
  share::Agent& agent() { return agent_; }
  // A forked child's is its parent's, so it is not a part of this.
  static memory::HostMemory& host_memory() { return memory::HostMemory::of_process(); }

  // The process id under which the broker sees this process: the one for whitelists.
  std::int32_t broker_pid_of_self() const { return pid_; }

  // The allocation or import that contains the address. Not to have one is an offence, and reported
  // as such; `size` is what the caller wanted to touch, for the record.
  Result<memory::Region> region_of(const void* pointer, std::uint64_t size);

  // These end memory: its address leads nowhere when they return, and the memory goes when the work
  // that was queued before is over.
  Result<void> deallocate(const void* pointer);
  // The same in the order of a stream, where that makes a difference: for memory of a pool.
  Result<void> deallocate_on(const void* pointer, const On& on);
  // The same for a piece of the slab: the short way for what is freed most. False for anything else
  // and for what deallocate() would refuse.
  bool deallocate_piece(const void* pointer);
  Result<void> close(const char* key);
  Result<void> unmap(void* pointer);
  static Result<void> deallocate_host(const void* pointer);

  // As Streams has it; the pools are told. What a stream that is destroyed has freed is anybody's.
  Result<void> synchronize(StreamHandle handle, const ContextId& context, Deadline deadline);
  Result<void> synchronize_device(int device, Deadline deadline);
  Result<void> destroy_stream(StreamHandle handle, const ContextId& context, Destroy how);

  // Waits for the work of what it ends, as long as that gets on (HUFU_TIMEOUT_MS).
  Result<void> reset_device(int device, Reset reset);
  // Ends all contexts and their streams. Memory stays: somebody may yet free it.
  void reset_all_devices();

 private:
  struct Parts;
  explicit Runtime(Parts parts);
  static Result<std::unique_ptr<Runtime>> make();
  static void abandon_parents_in_child();
  void end(const ContextId& context);

  std::unique_ptr<share::Client> client_;
  share::Agent agent_;
  std::unique_ptr<memory::PageSource> source_;
  std::int32_t pid_;
  Contexts contexts_;
  Deferred deferred_;
  Streams streams_;
  memory::Heap heap_;
  memory::PhysicalMemory physical_;
  memory::Reservations reservations_;
  memory::Registrations registrations_;
  Allocators allocators_;
  Sharing sharing_;
  MappedLender mapped_lender_;
  share::Handles handles_;
  PhysicalSharing physical_sharing_;
  Pools pools_;
};

// The runtime and the calling thread's context in it: what most calls need.
struct Here {
  Runtime* runtime = nullptr;
  ContextId context;

  static Result<Here> get();
};

InitState& init_state();

}  // namespace hufu::runtime
