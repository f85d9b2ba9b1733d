#include "runtime/streams.h"

#include <pthread.h>

#include <algorithm>
#include <bit>
#include <new>
#include <thread>

namespace hufu::runtime {
namespace {

// "ST", above what x86-64 and aarch64 can address from user space; then a counter, then the place
// in the table, then six zero bits: the alignment that a pointer to an object would have.
constexpr std::uintptr_t kTag = std::uintptr_t{0x5354} << 48U;
constexpr unsigned kPlaceShift = 6;
constexpr unsigned kPlaceBits = 13;
constexpr unsigned kCountShift = kPlaceShift + kPlaceBits;
constexpr std::uintptr_t kMostCount = (std::uintptr_t{1} << (48 - kCountShift)) - 1;

// The process's, and not in a Streams: a forked child has its parent's numbers behind it.
constinit std::atomic<std::uintptr_t> handles_made{0};
constinit std::atomic<std::uint64_t> streams_made{1};

std::uintptr_t number_of(StreamHandle handle) { return reinterpret_cast<std::uintptr_t>(handle); }

std::size_t place_of(std::uintptr_t number) {
  return number >> kPlaceShift & ((std::size_t{1} << kPlaceBits) - 1);
}

Error fail_context(StreamHandle handle, int owner, const ContextId& context) {
  return fail(Errc::kForeignStream, Reason::kNone,
              "stream {} belongs to another context (device {}) than the thread's current one "
              "(device {}); make its context current first",
              handle, owner, context.device);
}

Error fail_task(StreamHandle handle, std::int32_t code) {
  const std::string_view why =
      code == kNoCopy ? "When the turn of a copy by cells or by descriptor came, it named no range "
                        "of device memory; or a program that was queued says so"
                      : "The program that was queued knows why";
  Error error = fail(Errc::kTaskFailed, Reason::kNone,
                     "a task of stream {} failed with code {}; the tasks behind it were done. {}",
                     handle, code, why);
  error.task_code = code;
  return error;
}

Error fail_late(std::string_view what) {
  return fail(Errc::kTimedOut, Reason::kNone,
              "{} has work that is not done yet, and the time given is over; wait longer, or find "
              "out what it waits for",
              what);
}

// What the calling thread has queued and not waited for. Plain pointers, as for its last error: a
// thread may call while its other destructors run.
struct Queued {
  const Stream* stream;
  std::uintptr_t handle;
  std::uint64_t ticket;
};
struct OwnWork {
  std::uint64_t of;  // Which Streams: a number, because another one may come to lie where it lay.
  std::vector<Queued> queued;
};
[[gnu::tls_model("initial-exec")]] constinit thread_local OwnWork* own_work = nullptr;

void forget_own_work(void* mine) {
  own_work = nullptr;
  delete static_cast<OwnWork*>(mine);
}

OwnWork& own_work_of(std::uint64_t streams) {
  if (own_work == nullptr) {
    static const pthread_key_t key = [] {
      pthread_key_t made{};
      ::pthread_key_create(&made, forget_own_work);
      return made;
    }();
    own_work = new OwnWork{.of = streams, .queued = {}};
    ::pthread_setspecific(key, own_work);
  }
  if (own_work->of != streams) *own_work = {.of = streams, .queued = {}};  // A parent's.
  return *own_work;
}

}  // namespace

Error fail_stream(StreamHandle handle) {
  return fail(Errc::kInvalidHandle, Reason::kNone,
              "stream {} is not a stream of this process, or was destroyed; pass a handle that "
              "aclrtCreateStream returned",
              handle);
}

Streams::Streams(Deferred& deferred) : deferred_(deferred), number_(streams_made.fetch_add(1)) {}

Streams::~Streams() {
  for (Stream& stream : streams_)
    stream.wait_done(stream.issued.load(), {});
}

// --- Handles -------------------------------------------------------------------------------------

Stream* Streams::find(std::uintptr_t number) const {
  if (number >> 48U != kTag >> 48U) return nullptr;
  Stream* stream = places_[place_of(number)].load();
  return stream != nullptr && stream->handle.load() == number ? stream : nullptr;
}

bool Streams::exists(StreamHandle handle) const {
  return handle != nullptr && find(number_of(handle)) != nullptr;
}

Result<Stream*> Streams::look_up(StreamHandle handle, const ContextId& context) {
  if (handle == nullptr) return default_stream(context);
  Stream* stream = find(number_of(handle));
  if (stream == nullptr) return fail_stream(handle);
  if (stream->life.load() != context.life) {
    return fail_context(handle, stream->device.load(), context);
  }
  return stream;
}

Result<Stream*> Streams::take_place(const ContextId& context) {
  std::size_t of_device = 0;
  Stream* unused = nullptr;
  std::size_t place = streams_.size();
  for (std::size_t i = 0; i < streams_.size(); ++i) {
    Stream& stream = streams_[i];
    const bool free = stream.handle.load() == 0 && stream.idle();
    if (!free && stream.device.load() == context.device) ++of_device;
    if (free && unused == nullptr) {
      unused = &stream;
      place = i;
    }
  }
  if (of_device >= kMostPerDevice || place == kPlaces || handles_made.load() >= kMostCount) {
    return fail(Errc::kNoStream, Reason::kNone,
                "device {} has {} streams, of {} that it can have; destroy streams that are not "
                "needed (one whose queue stands still counts until it moves)",
                context.device, of_device, kMostPerDevice);
  }
  if (unused == nullptr) {
    unused = &streams_.emplace_back(workers_, deferred_);
    unused->index = place;
  }
  unused->take_failure();
  unused->crosses = false;
  unused->is_default = false;
  unused->device = context.device;
  unused->life = context.life;
  const std::uintptr_t number =
      kTag | (handles_made.fetch_add(1) + 1) << kCountShift | place << kPlaceShift;
  unused->handle = number;
  places_[place] = unused;
  places_used_ = streams_.size();
  return unused;
}

Result<StreamHandle> Streams::create(const ContextId& context) {
  const std::lock_guard lock(mutex_);
  const auto stream = take_place(context);
  if (!stream) return stream.error();
  return reinterpret_cast<StreamHandle>((*stream)->handle.load());
}

Result<Stream*> Streams::default_stream(const ContextId& context) {
  const auto known = [&]() -> Stream* {
    const std::size_t used = places_used_.load();
    for (std::size_t i = 0; i < used; ++i) {
      Stream* stream = places_[i].load();
      if (stream->is_default.load() && stream->life.load() == context.life &&
          stream->handle.load() != 0) {
        return stream;
      }
    }
    return nullptr;
  };
  if (Stream* stream = known()) return stream;
  const std::lock_guard lock(mutex_);
  if (Stream* stream = known()) return stream;
  auto stream = take_place(context);
  if (stream) (*stream)->is_default = true;
  return stream;
}

Result<StreamHandle> Streams::default_of(const ContextId& context) {
  const auto stream = default_stream(context);
  if (!stream) return stream.error();
  return reinterpret_cast<StreamHandle>((*stream)->handle.load());
}

Result<void> Streams::destroy(StreamHandle handle, const ContextId& context, Destroy how) {
  const auto stream = look_up(handle, context);
  if (!stream) return stream.error();
  if ((*stream)->is_default.load()) {
    return fail(Errc::kInvalidValue, Reason::kNone,
                "stream {} is the context's default stream; it ends with the context and cannot "
                "be destroyed",
                handle);
  }
  std::uintptr_t number = number_of(handle);
  // Of two that destroy it, one does.
  if (!(*stream)->handle.compare_exchange_strong(number, 0)) return fail_stream(handle);
  if (how == Destroy::kAfterItsWork) (*stream)->wait_done((*stream)->issued.load(), {});
  return {};
}

void Streams::end(const ContextId& context, std::chrono::milliseconds patience) {
  std::vector<Stream*> ending;
  for (Stream* stream : all_of(context.device)) {
    if (stream->life.load() != context.life) continue;
    stream->handle = 0;
    ending.push_back(stream);  // Also what was destroyed by force and still works.
  }
  for (Stream* stream : ending) {
    const std::uint64_t tail = stream->issued.load();
    std::uint64_t before = 0;
    do {
      before = stream->done.load();
    } while (!stream->wait_done(tail, std::chrono::steady_clock::now() + patience) &&
             stream->done.load() != before);
  }
}

// --- Waiting -------------------------------------------------------------------------------------

std::vector<Stream*> Streams::all_of(int device) const {
  std::vector<Stream*> all;
  const std::size_t used = places_used_.load();
  for (std::size_t i = 0; i < used; ++i) {
    Stream* stream = places_[i].load();
    if (stream->device.load() == device) all.push_back(stream);
  }
  return all;
}

Result<void> Streams::synchronize(StreamHandle handle, const ContextId& context,
                                  Deadline deadline) {
  const auto stream = look_up(handle, context);
  if (!stream) return stream.error();
  if (!(*stream)->wait_done((*stream)->issued.load(), deadline)) {
    return fail_late(fmt::format("stream {}", handle));
  }
  const std::int32_t code = (*stream)->take_failure();
  if (code != 0) return fail_task(handle, code);
  return {};
}

Result<void> Streams::synchronize_device(int device, Deadline deadline) {
  std::optional<Error> first;
  for (Stream* stream : all_of(device)) {
    if (!stream->wait_done(stream->issued.load(), deadline)) {
      return fail_late(fmt::format("device {}", device));
    }
    const auto handle = reinterpret_cast<StreamHandle>(stream->handle.load());
    const std::int32_t code = stream->take_failure();
    if (code != 0 && !first) first = fail_task(handle, code);
  }
  if (!deferred_.flush(deadline)) return fail_late(fmt::format("device {}", device));
  if (first) return *first;
  return {};
}

Result<void> Streams::wait_for(StreamHandle handle, const ContextId& context) {
  const auto stream = look_up(handle, context);
  if (!stream) return stream.error();
  (*stream)->wait_done((*stream)->issued.load(), {});
  return {};
}

Result<bool> Streams::idle(StreamHandle handle, const ContextId& context) {
  const auto stream = look_up(handle, context);
  if (!stream) return stream.error();
  if (!(*stream)->idle()) return false;
  if (const std::int32_t code = (*stream)->failure()) return fail_task(handle, code);
  return true;
}

template <class Look>
inline bool Streams::all_lines(std::optional<int> device, const Look& look) {
  const std::size_t used = places_used_.load();
  for (std::size_t i = 0; i < used; ++i) {
    Stream* stream = places_[i].load();
    const bool told = !device || stream->device.load() == *device || stream->crosses.load();
    if (told && !look(*stream)) return false;
  }
  for (std::uint32_t left = lanes_taken_.load(); left != 0; left &= left - 1) {
    if (!look(lanes_[static_cast<std::size_t>(std::countr_zero(left))])) return false;
  }
  return true;
}

std::vector<Stamp> Streams::under_way(std::optional<int> device) {
  std::vector<Stamp> stamps;
  all_lines(device, [&](Progress& line) {
    // In this order: `done` never overtakes what `issued` was before.
    const std::uint64_t done = line.done.load();
    const std::uint64_t issued = line.issued.load();
    if (done != issued) stamps.push_back({.line = &line, .ticket = issued});
    return true;
  });
  return stamps;
}

bool Streams::idle(int device) {
  return all_lines(device, [](const Progress& line) { return line.idle(); });
}

// --- A thread's own order ------------------------------------------------------------------------

void Streams::remember_own(const Stream& stream, std::uintptr_t handle,
                           std::uint64_t ticket) const {
  auto& queued = own_work_of(number_).queued;
  const auto same = std::find_if(queued.begin(), queued.end(),
                                 [&](const Queued& other) { return other.stream == &stream; });
  if (same != queued.end()) {
    *same = {.stream = &stream, .handle = handle, .ticket = ticket};
    return;
  }
  std::erase_if(queued, [](const Queued& old) { return old.stream->done.load() >= old.ticket; });
  queued.push_back({.stream = &stream, .handle = handle, .ticket = ticket});
}

void Streams::wait_for_own() const {
  if (own_work == nullptr || own_work->of != number_) return;
  for (const Queued& own : own_work->queued) {
    // A stream that was destroyed is nobody's to wait for: it may stand still for ever.
    if (Stream* stream = find(own.handle)) stream->wait_done(own.ticket, {});
  }
  own_work->queued.clear();
}

Progress& Streams::take_lane() {
  const auto hint = static_cast<std::size_t>(::pthread_self() >> 12U);
  while (true) {
    for (std::size_t i = 0; i < kLanes; ++i) {
      const std::size_t index = (hint + i) % kLanes;
      const std::uint32_t bit = std::uint32_t{1} << index;
      // Before the ticket, for who looks for tickets looks at this first.
      if ((lanes_taken_.load() & bit) == 0) lanes_taken_.fetch_or(bit);
      Progress& lane = lanes_[index];
      std::uint64_t last = lane.done.load();
      if (lane.issued.compare_exchange_strong(last, last + 1)) return lane;
    }
    std::this_thread::yield();  // So many copies at once do not get faster by one more.
  }
}

Streams::Lane::Lane(Streams& streams)
    : deferred_(streams.deferred_), line_((streams.wait_for_own(), streams.take_lane())) {}

Streams::Lane::~Lane() {
  const std::uint64_t over = line_.issued.load(std::memory_order_relaxed);
  line_.done.store(over);
  if (over < line_.awaited.load()) return;
  deferred_.passed(line_);
  deferred_.settle();
}

}  // namespace hufu::runtime
