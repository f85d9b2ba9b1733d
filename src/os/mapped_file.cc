#include "os/mapped_file.h"

#include <sys/mman.h>

#include <atomic>
#include <cassert>
#include <cerrno>
#include <csetjmp>
#include <csignal>
#include <cstring>
#include <mutex>
#include <utility>

#include <ucontext.h>

namespace hufu::os {
namespace {

// Where this thread goes when its store fails; null while it does not store.
thread_local constinit sigjmp_buf* t_way_out = nullptr;

struct sigaction g_before {};

void on_sigbus(int /*signal*/, siginfo_t* /*info*/, void* context) {
  if (t_way_out != nullptr) {
    // The jump restores no mask (saving one for each store would be a system call), so what was
    // blocked when the store failed is blocked again before it.
    ::pthread_sigmask(SIG_SETMASK, &static_cast<ucontext_t*>(context)->uc_sigmask, nullptr);
    ::siglongjmp(*t_way_out, 1);
  }
  // Somebody else's. What was there before gets it when the instruction is tried again.
  ::sigaction(SIGBUS, &g_before, nullptr);
}

void handle_sigbus() {
  static std::once_flag once;
  std::call_once(once, [] {
    struct sigaction action {};
    action.sa_sigaction = on_sigbus;
    action.sa_flags = SA_SIGINFO;
    ::sigaction(SIGBUS, &action, &g_before);
  });
}

}  // namespace

Result<MappedFile> MappedFile::map(int fd, std::size_t length) {
  handle_sigbus();
  void* base = ::mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (base == MAP_FAILED) return fail_errno("mmap(file)", errno);
  return MappedFile(static_cast<std::byte*>(base), length);
}

MappedFile::~MappedFile() {
  if (base_ != nullptr) ::munmap(base_, length_);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : base_(std::exchange(other.base_, nullptr)), length_(std::exchange(other.length_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(base_, other.base_);
  std::swap(length_, other.length_);
  return *this;
}

Result<void> MappedFile::store(std::size_t offset, std::span<const std::byte> bytes) {
  assert(offset <= length_ && bytes.size() <= length_ - offset);
  sigjmp_buf way_out;
  // NOLINTNEXTLINE(cert-err52-cpp): nothing between here and the jump has a destructor.
  if (sigsetjmp(way_out, 0) != 0) {
    t_way_out = nullptr;
    Error error = fail_errno("store into a mapped file", EIO);
    return error;
  }
  t_way_out = &way_out;
  std::atomic_signal_fence(std::memory_order_seq_cst);
  std::memcpy(base_ + offset, bytes.data(), bytes.size());
  std::atomic_signal_fence(std::memory_order_seq_cst);
  t_way_out = nullptr;
  return {};
}

}  // namespace hufu::os
