#include "os/memfd.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <utility>

#include "os/huge_pages.h"
#include "os/kernel_abi.h"

namespace hufu::os {
namespace {

Error memfd_failed(const char* step, std::uint64_t size, int sys_errno) {
  if (sys_errno == EMFILE || sys_errno == ENFILE) {
    return fail(Errc::kOutOfMemory, Reason::kDescriptors,
                "{} for {} bytes: no file descriptor left (RLIMIT_NOFILE); raise it with "
                "`ulimit -n`, or share many small objects as one pool",
                step, size);
  }
  if (sys_errno == EFBIG) {
    return fail(Errc::kOutOfMemory, Reason::kSizeTooLarge,
                "{} for {} bytes exceeds the file size limit (RLIMIT_FSIZE); raise it with "
                "`ulimit -f unlimited`",
                step, size);
  }
  if (sys_errno == ENOMEM || sys_errno == ENOSPC) {
    return fail(Errc::kOutOfMemory, Reason::kMemory, "{} for {} bytes: the kernel has no memory",
                step, size);
  }
  return fail_errno(step, sys_errno);
}

}  // namespace

Result<UniqueFd> make_memfd(const char* name, std::uint64_t size, Backing backing, PageSize page) {
  const unsigned huge = MFD_HUGETLB | (page == PageSize::k1GiB ? MFD_HUGE_1GB : MFD_HUGE_2MB);
  const unsigned base =
      MFD_CLOEXEC | MFD_ALLOW_SEALING | (backing == Backing::kHugetlb ? huge : 0U);
  UniqueFd fd(::memfd_create(name, base | MFD_NOEXEC_SEAL));
  // Kernels before 6.3 do not know NOEXEC_SEAL and say EINVAL.
  if (!fd && errno == EINVAL) fd = UniqueFd(::memfd_create(name, base));
  if (!fd) return memfd_failed("memfd_create", size, errno);
  // A memfd's mode is 0777 or 0666: anybody who can name it through /proc could open it.
  if (::fchmod(fd.get(), S_IRUSR | S_IWUSR) != 0) return fail_errno("fchmod(memfd)", errno);
  if (::ftruncate(fd.get(), static_cast<off_t>(size)) != 0) {
    return memfd_failed("ftruncate(memfd)", size, errno);
  }
  if (auto sealed = add_seals(fd.get(), F_SEAL_SHRINK | F_SEAL_GROW); !sealed)
    return sealed.error();
  return fd;
}

Result<BlockFile> make_block_file(const char* name, std::uint64_t size, PageSize page,
                                  bool want_hugetlb) {
  const bool hugetlb = want_hugetlb && page != PageSize::k4KiB &&
                       huge_pages(page).available >= size / bytes_of(page);
  BlockFile file{.backing = hugetlb ? Backing::kHugetlb : Backing::kShmem};
  auto fd = make_memfd(name, size, file.backing, page);
  if (!fd) return fd.error();
  file.fd = std::move(*fd);
  return file;
}

Result<int> seals_of(int fd) {
  const int seals = ::fcntl(fd, F_GET_SEALS);
  if (seals < 0) return fail_errno("fcntl(F_GET_SEALS)", errno);
  return seals;
}

Result<void> add_seals(int fd, int seals) {
  if (::fcntl(fd, F_ADD_SEALS, seals) != 0) return fail_errno("fcntl(F_ADD_SEALS)", errno);
  return {};
}

Result<UniqueFd> reopen(int fd, Access access) {
  std::array<char, 32> path{};
  *fmt::format_to_n(path.data(), path.size() - 1, "/proc/self/fd/{}", fd).out = '\0';
  const int flags = (access == Access::kReadWrite ? O_RDWR : O_RDONLY) | O_CLOEXEC | O_NONBLOCK;
  constexpr int kTries = 8;
  for (int i = 0; i < kTries; ++i) {
    UniqueFd fresh(::open(path.data(), flags));
    if (fresh) return fresh;
    if (errno != EAGAIN && errno != EINTR) break;
  }
  return memfd_failed("reopen", 0, errno);
}

Result<FileFacts> facts_of(int fd) {
  struct stat status {};
  if (::fstat(fd, &status) != 0) return fail_errno("fstat", errno);
  constexpr std::uint64_t kBlockUnit = 512;
  return FileFacts{.size = static_cast<std::uint64_t>(status.st_size),
                   .committed = static_cast<std::uint64_t>(status.st_blocks) * kBlockUnit,
                   .device = status.st_dev,
                   .inode = status.st_ino};
}

Result<HolderProbe> HolderProbe::open(int fd, Access access) {
  auto file = reopen(fd, access);
  if (!file) return file.error();
  return HolderProbe(std::move(*file), access);
}

Result<bool> HolderProbe::held() const {
  if (::fcntl(file_.get(), F_SETLEASE, F_WRLCK) == 0) {
    (void)::fcntl(file_.get(), F_SETLEASE, F_UNLCK);
    return false;
  }
  if (errno == EAGAIN || errno == EBUSY) return true;
  return fail_errno("fcntl(F_SETLEASE)", errno);
}

void drop_pages(int fd) {
  const auto facts = facts_of(fd);
  if (!facts) return;
  (void)::fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0,
                    static_cast<off_t>(facts->size));
}

}  // namespace hufu::os
