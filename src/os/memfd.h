#pragma once

// Memory as a file that has no name: made, sized, sealed, reopened.
//
// Two facts rule everything here. A descriptor that was opened read-write can be passed on or
// reopened read-write, so what an importer gets is always a FRESH open with the access it was
// granted. And a seal is a promise of the kernel: without SHRINK and GROW a peer could truncate the
// file under somebody's mapping, which ends in SIGBUS.

#include <cstdint>
#include <utility>

#include "base/result.h"
#include "base/unique_fd.h"
#include "base/units.h"

namespace hufu::os {

enum class Backing : std::uint8_t {
  kShmem,
  kHugetlb,  // The machine's reserved huge pages, of 2 MiB or 1 GiB.
};

// An empty (uncommitted), sealed (SHRINK|GROW, and EXEC where the kernel has it) file of mode 0600.
// `name` is only for /proc/PID/maps. `page` is for hugetlb. Fails with kOutOfMemory at a descriptor
// limit.
Result<UniqueFd> make_memfd(const char* name, std::uint64_t size, Backing backing,
                            PageSize page = PageSize::k2MiB);

// What a block is made of. Of reserved huge pages if they are wanted and the machine has enough
// available; nothing is taken of them before somebody maps the file.
struct BlockFile {
  UniqueFd fd;
  Backing backing = Backing::kShmem;
};
Result<BlockFile> make_block_file(const char* name, std::uint64_t size, PageSize page,
                                  bool want_hugetlb);

// The seals make_memfd() leaves on this kernel: 0x26, or 0x06 before Linux 6.3.
Result<int> seals_of(int fd);
Result<void> add_seals(int fd, int seals);

// A new open file description of the same inode. EAGAIN (a lease in the way) is retried a few times
// and then reported; the open itself never blocks.
Result<UniqueFd> reopen(int fd, Access access);

struct FileFacts {
  std::uint64_t size;
  std::uint64_t committed;  // Bytes of memory behind the file.
  std::uint64_t device;
  std::uint64_t inode;
};
Result<FileFacts> facts_of(int fd);

// Asks the kernel whether anybody but the holders of the ORIGINAL descriptor has a file open or
// mapped. It grants a write lease only when no other reopened file of the inode is left, mappings
// included; an O_PATH descriptor escapes it. SIGIO must be ignored (the default action of a broken
// lease ends the process), and nobody may reopen the file while held() runs.
class HolderProbe {
 public:
  // A file description of its own to carry the lease: on the original it would speak of the
  // exporter too. Nobody but this object has it, until release() gives it away.
  static Result<HolderProbe> open(int fd, Access access);

  // Fails where the kernel grants no leases. Leaves nothing behind on the file, no owner either:
  // who had the file next could have signals sent in our name.
  Result<bool> held() const;

  Access access() const { return access_; }
  UniqueFd release() { return std::move(file_); }

 private:
  HolderProbe(UniqueFd file, Access access) : file_(std::move(file)), access_(access) {}

  UniqueFd file_;
  Access access_;
};

// Gives the file's pages back to the kernel; every mapping then reads zeros. Best effort: a file
// sealed against future writes keeps its pages until it is closed.
void drop_pages(int fd);

}  // namespace hufu::os
