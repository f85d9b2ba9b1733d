#include "runtime/runtime.h"

#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <mutex>
#include <new>
#include <string>
#include <utility>

#include "os/file.h"
#include "runtime/broker_source.h"
#include "runtime/device_choice.h"
#include "runtime/local_devices.h"
#include "runtime/only_copy.h"
#include "share/address.h"
#include "share/waiting.h"

namespace hufu::runtime {

constinit std::atomic<ProcessState*> process_state_page{nullptr};

namespace {

// Not wiped: how the child's handler finds what its parent had.
constinit std::atomic<Runtime*> latest_runtime{nullptr};

ProcessState& process_state() {
  ProcessState* state = process_state_page.load(std::memory_order_acquire);
  if (state != nullptr) return *state;
  void* page = ::mmap(nullptr, sizeof(ProcessState), PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) throw std::bad_alloc();
  ::madvise(page, sizeof(ProcessState), MADV_WIPEONFORK);
  ProcessState* mine = ::new (page) ProcessState{};
  if (process_state_page.compare_exchange_strong(state, mine, std::memory_order_acq_rel)) {
    return *mine;
  }
  ::munmap(page, sizeof(ProcessState));
  return *state;
}

Result<memory::Hugetlb> huge_pages_wanted() {
  const std::string mode = os::env("HUFU_HUGEPAGES");
  if (mode.empty() || mode == "auto") return memory::Hugetlb::kIfFree;
  if (mode == "require") return memory::Hugetlb::kRequired;
  if (mode == "never") return memory::Hugetlb::kNever;
  return fail(Errc::kInvalidValue, Reason::kNone,
              "HUFU_HUGEPAGES={}: write auto, require to fail rather than emulate huge pages, or "
              "never to leave the reserved ones alone",
              mode);
}

}  // namespace

struct Runtime::Parts {
  std::unique_ptr<share::Client> client;
  std::unique_ptr<memory::PageSource> source;  // None: the broker.
  std::int32_t pid = 0;
  int devices = 0;
  std::vector<int> visible;
  memory::Hugetlb huge_pages = memory::Hugetlb::kIfFree;
};

Runtime::Runtime(Parts parts)
    : client_(std::move(parts.client)),
      agent_(*client_),
      source_(parts.source ? std::move(parts.source)
                           : std::make_unique<BrokerSource>(*client_, agent_)),
      pid_(parts.pid),
      contexts_(parts.devices, std::move(parts.visible)),
      streams_(deferred_),
      heap_(*source_, parts.devices, parts.huge_pages),
      physical_(*source_, heap_, parts.huge_pages),
      reservations_(heap_.registry()),
      registrations_(heap_.registry()),
      allocators_(streams_),
      sharing_(heap_, *client_),
      mapped_lender_(reservations_),
      handles_(*client_),
      physical_sharing_(physical_, *client_, handles_),
      pools_({.heap = heap_,
              .source = *source_,
              .streams = streams_,
              .deferred = deferred_,
              .client = *client_,
              .handles = handles_}) {
  static_assert(memory::Usage::kCounts == wire::kUsageCounts, "the broker reads what usage writes");
  host_memory().attach(heap_.registry());
  sharing_.lend_from(memory::RegionKind::kMapped, mapped_lender_);
  sharing_.lend_from(memory::RegionKind::kPool, pools_);
  heap_.on_shortage([this] { return pools_.trim_all(); });
  agent_.on_return([this] { heap_.give_back_reserve(); });
  client_->report_usage_with([this](std::shared_ptr<os::ReportedMemory> memory) {
    heap_.usage().report_to(std::move(memory));
  });
}

Result<std::unique_ptr<Runtime>> Runtime::make() {
  if (auto only = check_only_copy(); !only) return only.error();
  auto address = share::choose_broker();
  if (!address) return address.error();
  const auto huge_pages = huge_pages_wanted();
  if (!huge_pages) return huge_pages.error();
  if (const auto& model = chosen_device_model(); !model) return model.error();
  const bool alone = address->mode == share::BrokerMode::kNone;
  Parts parts{.client = std::make_unique<share::Client>(std::move(*address))};
  if (alone) {
    const auto devices = local_devices();
    if (!devices) return devices.error();
    parts.source = std::make_unique<memory::LocalSource>(*devices);
    parts.pid = ::getpid();
    parts.devices = devices->count;
  } else {
    const auto session = parts.client->session();
    if (!session) return session.error();
    parts.pid = session->peer_pid;
    parts.devices = static_cast<int>(session->devices);
  }
  // NOLINTNEXTLINE(concurrency-mt-unsafe): nothing here changes the environment.
  const char* visible = ::secure_getenv("ASCEND_RT_VISIBLE_DEVICES");
  parts.visible = parse_visible_devices(visible, parts.devices);
  parts.huge_pages = *huge_pages;
  return std::unique_ptr<Runtime>(new Runtime(std::move(parts)));
}  // NOLINT(clang-analyzer-cplusplus.NewDeleteLeaks): it loses sight of what was moved

Result<Runtime*> Runtime::get() {
  ProcessState& state = process_state();
  if (Runtime* made = state.runtime.load(std::memory_order_acquire)) return made;
  const std::lock_guard lock(state.making);
  if (Runtime* made = state.runtime.load(std::memory_order_acquire)) return made;
  auto runtime = make();
  if (!runtime) return runtime.error();
  if (latest_runtime.exchange(runtime->get()) == nullptr) {
    ::pthread_atfork(nullptr, nullptr, &Runtime::abandon_parents_in_child);
  }
  state.runtime.store(runtime->get(), std::memory_order_release);
  return runtime->release();
}

void Runtime::abandon_parents_in_child() {
  Runtime* parents = latest_runtime.load();
  memory::Heap::forget_after_fork();
  parents->sharing_.forget_after_fork();
  parents->agent_.forget_after_fork();
  parents->client_->forget_after_fork();
}

Result<memory::Region> Runtime::region_of(const void* pointer, std::uint64_t size) {
  if (const auto region = heap_.describe(pointer)) return *region;
  sharing_.report_unregistered(pointer, size);
  return heap_.unknown(pointer);
}

bool Runtime::deallocate_piece(const void* pointer) {
  auto piece = heap_.retire_piece(pointer);
  if (!piece) return false;
  if (streams_.idle(piece.device())) return true;  // Looked at now, as below.
  const auto work = streams_.under_way(piece.device());
  deferred_.end_after(work, std::move(piece));
  return true;
}

Result<void> Runtime::deallocate(const void* pointer) {
  if (deallocate_piece(pointer)) return {};
  if (pools_.any()) {
    const auto address = reinterpret_cast<std::uintptr_t>(pointer);
    const auto region = heap_.registry().find(address);
    if (region && region->kind == memory::RegionKind::kPool) return pools_.free(*region, address);
  }
  auto retired = heap_.retire(pointer);
  if (!retired) {
    if (retired.error().code == Errc::kUnregistered) sharing_.report_unregistered(pointer, 0);
    return retired.error();
  }
  // Looked at now, when nobody finds the address any more.
  auto work = streams_.under_way(retired->device());
  if (!work.empty()) retired->end_keys();  // The block's end would, and comes later.
  deferred_.end_after(std::move(work), std::move(*retired));
  return {};
}

Result<void> Runtime::deallocate_on(const void* pointer, const On& on) {
  const auto address = reinterpret_cast<std::uintptr_t>(pointer);
  const auto region = heap_.registry().find(address);
  if (region && region->kind == memory::RegionKind::kPool) {
    return pools_.free_on(*region, address, on);
  }
  if (const auto stream = streams_.look_up(on.stream, on.context); !stream) return stream.error();
  return deallocate(pointer);  // Which waits for the stream's work, among other.
}

Result<void> Runtime::deallocate_host(const void* pointer) {
  auto retired = host_memory().retire(pointer);
  if (!retired) return retired.error();
  if (Runtime* runtime = get_if_any()) {
    runtime->deferred_.end_after(runtime->streams_.under_way(), std::move(*retired));
  }
  return {};
}

Result<void> Runtime::close(const char* key) {
  auto closing = sharing_.close(key);
  if (!closing) return closing.error();
  if (!*closing) return {};
  const int device = static_cast<int>((*closing)->import().device);
  deferred_.end_after(streams_.under_way(device), std::move(**closing));
  return {};
}

Result<void> Runtime::unmap(void* pointer) {
  auto leaving = reservations_.unmap(pointer);
  if (!leaving) return leaving.error();
  auto work = streams_.under_way(leaving->device());
  if (!work.empty()) leaving->end_keys_of_unused();
  deferred_.end_after(work, std::move(*leaving));
  return {};
}

Result<void> Runtime::synchronize(StreamHandle handle, const ContextId& context,
                                  Deadline deadline) {
  if (!pools_.any()) return streams_.synchronize(handle, context, deadline);
  const auto stream = streams_.look_up(handle, context);
  if (!stream) return stream.error();
  // Before the wait: what the stream is told to come after meanwhile may not be over.
  Moment over = pools_.order().before((*stream)->index);
  auto waited = streams_.synchronize(handle, context, deadline);
  if (!waited && waited.error().code != Errc::kTaskFailed) return waited;
  over[(*stream)->index] = (*stream)->done.load();
  pools_.synchronized(over);
  return waited;
}

Result<void> Runtime::synchronize_device(int device, Deadline deadline) {
  auto waited = streams_.synchronize_device(device, deadline);
  if (waited || waited.error().code == Errc::kTaskFailed) pools_.device_synchronized(device);
  return waited;
}

Result<void> Runtime::destroy_stream(StreamHandle handle, const ContextId& context, Destroy how) {
  const auto stream = streams_.look_up(handle, context);
  if (!stream) return stream.error();
  auto destroyed = streams_.destroy(handle, context, how);
  if (destroyed) pools_.synchronized({{(*stream)->index, (*stream)->done.load()}});
  return destroyed;
}

Result<void> Runtime::reset_device(int device, Reset reset) {
  const auto ended = contexts_.reset_device(device, reset);
  if (!ended) return ended.error();
  if (*ended) end(**ended);
  return {};
}

void Runtime::end(const ContextId& context) {
  const std::chrono::milliseconds patience(share::wait_limit_ms());
  streams_.end(context, patience);
  deferred_.flush(std::chrono::steady_clock::now() + patience);
  pools_.device_synchronized(context.device);
}

void Runtime::reset_all_devices() {
  for (const ContextId& context : contexts_.reset_all())
    end(context);
}

Result<Here> Here::get() {
  // What nearly every call finds, and finds without a Result.
  if (Runtime* made = Runtime::get_if_any()) {
    const ContextId context = made->contexts().current_if_any();
    if (context.life != 0) return Here{.runtime = made, .context = context};
  }
  const auto runtime = Runtime::get();
  if (!runtime) return runtime.error();
  const auto context = (*runtime)->contexts().current();
  if (!context) return context.error();
  return Here{.runtime = *runtime, .context = *context};
}

InitState& init_state() { return process_state().init; }

}  // namespace hufu::runtime
