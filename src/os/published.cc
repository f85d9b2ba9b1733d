#include "os/published.h"

#include <linux/futex.h>
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cassert>
#include <cerrno>
#include <new>
#include <utility>

#include "base/units.h"
#include "os/kernel_abi.h"
#include "os/memfd.h"

namespace hufu::os {
namespace {

constexpr std::size_t kPage = 4 * kKiB;

// glibc keeps the futex at the start of its mutex; the kernel writes FUTEX_OWNER_DIED there.
static_assert(offsetof(pthread_mutex_t, __data.__lock) == 0);

}  // namespace

Result<PublishedMemory> PublishedMemory::make(const char* name, std::size_t bytes) {
  const std::size_t size = (bytes + kPage - 1) / kPage * kPage;
  auto fd = make_memfd(name, size, Backing::kShmem);
  if (!fd) return fd.error();
  void* base = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd->get(), 0);
  if (base == MAP_FAILED) return fail_errno("mmap(published memory)", errno);
  PublishedMemory memory(std::move(*fd), static_cast<std::byte*>(base), size);
  // From here on the mapping above is the only writable one there can ever be.
  if (auto sealed = add_seals(memory.fd_.get(), F_SEAL_FUTURE_WRITE | F_SEAL_SEAL); !sealed) {
    return sealed.error();
  }
  return memory;
}

PublishedMemory::PublishedMemory(PublishedMemory&& other) noexcept
    : fd_(std::move(other.fd_)), base_(std::exchange(other.base_, nullptr)), bytes_(other.bytes_) {}

PublishedMemory::~PublishedMemory() {
  if (base_ != nullptr) ::munmap(base_, bytes_);
}

std::atomic<std::uint64_t>& PublishedMemory::word(std::size_t index) const {
  static_assert(std::atomic<std::uint64_t>::is_always_lock_free);
  assert((index + 1) * sizeof(std::uint64_t) <= bytes_);
  return *reinterpret_cast<std::atomic<std::uint64_t>*>(base_ + index * sizeof(std::uint64_t));
}

Result<UniqueFd> PublishedMemory::reader() const { return reopen(fd_.get(), Access::kReadOnly); }

void PublishedMemory::claim_life_word() {
  auto* mutex = new (base_) pthread_mutex_t;
  pthread_mutexattr_t attributes;
  ::pthread_mutexattr_init(&attributes);
  ::pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
  ::pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
  ::pthread_mutex_init(mutex, &attributes);
  ::pthread_mutexattr_destroy(&attributes);
  [[maybe_unused]] const int locked = ::pthread_mutex_lock(mutex);
  assert(locked == 0);
}

Result<PublishedView> PublishedView::map(int fd, std::size_t bytes) {
  const auto facts = facts_of(fd);
  if (!facts) return facts.error();
  const auto seals = seals_of(fd);
  if (!seals) return seals.error();
  constexpr int kNeeded = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL;
  if ((*seals & kNeeded) != kNeeded || facts->size < bytes) {
    return fail(Errc::kUnavailable, Reason::kBrokerUntrusted,
                "the broker's status memory has {} bytes and seals {:#x}; {} bytes and seals {:#x} "
                "are needed: hufud and libhufu may be of different versions",
                facts->size, *seals, bytes, kNeeded);
  }
  const std::size_t size = (bytes + kPage - 1) / kPage * kPage;
  void* base = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, fd, 0);
  if (base == MAP_FAILED) return fail_errno("mmap(status memory)", errno);
  (void)::madvise(base, size, MADV_DONTFORK);
  return PublishedView(static_cast<const std::byte*>(base), size);
}

PublishedView::PublishedView(PublishedView&& other) noexcept
    : base_(std::exchange(other.base_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

PublishedView& PublishedView::operator=(PublishedView&& other) noexcept {
  std::swap(base_, other.base_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

PublishedView::~PublishedView() {
  // const_cast: munmap() has no const form.
  if (base_ != nullptr) ::munmap(const_cast<std::byte*>(base_), bytes_);
}

std::uint64_t PublishedView::word(std::size_t index) const {
  assert((index + 1) * sizeof(std::uint64_t) <= bytes_);
  const auto* word =
      reinterpret_cast<const std::atomic<std::uint64_t>*>(base_ + index * sizeof(std::uint64_t));
  return word->load(std::memory_order_acquire);
}

bool PublishedView::writer_ended() const {
  const auto* lock = reinterpret_cast<const std::atomic<std::uint32_t>*>(base_);
  const std::uint32_t value = lock->load(std::memory_order_acquire);
  return value == 0 || (value & FUTEX_OWNER_DIED) != 0;
}

}  // namespace hufu::os
