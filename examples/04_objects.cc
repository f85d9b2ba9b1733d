// The C++ face: a parent shares a block by key, physical memory by token and a thousand pieces of a
// pool by pointer. Its child reads all of them where they are, and cannot get what was not meant
// for it.

#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <string>
#include <vector>

#include "hufu/hufu.hpp"

namespace {

constexpr std::uint64_t kPieces = 1000;
constexpr std::size_t kBlock = 1 << 20;

struct Names {
  char key[65];
  char of_others[65];
  std::uint64_t physical;
  std::uint64_t pool;
};

void must(bool holds, const char* what) {
  if (holds) return;
  std::printf("this was expected and is not so: %s\n", what);
  std::exit(1);
}

template <class T>
void tell(int socket, const T& what) {
  must(::send(socket, &what, sizeof what, MSG_NOSIGNAL) == sizeof what, "the other one listens");
}

template <class T>
T hear(int socket) {
  T what;
  must(::recv(socket, &what, sizeof what, MSG_WAITALL) == sizeof what, "the other one speaks");
  return what;
}

void call(const char* name, aclError code) {
  if (code != ACL_SUCCESS) throw hufu::Error(name, code, aclGetRecentErrMsg());
}

std::int32_t begin() {
  call("aclrtSetDevice", aclrtSetDevice(0));
  std::int32_t pid = 0;
  call("aclrtDeviceGetBareTgid", aclrtDeviceGetBareTgid(&pid));
  return pid;
}

void import_all(int socket) {
  tell(socket, begin());
  const auto names = hear<Names>(socket);

  const hufu::Import block(names.key);
  must(block.size() == kBlock, "the block is as large as it was exported");
  must(block.as<unsigned char>()[kBlock - 1] == 1, "the block's last byte is what was written");

  const std::size_t unit = hufu::PhysicalMemory::granularity();
  const hufu::Mapping mapping(hufu::PhysicalMemory::import(names.physical, unit));
  must(mapping.as<unsigned char>()[unit - 1] == 2, "so is the physical memory's");

  hufu::Pool pool = hufu::Pool::import(names.pool);
  std::vector<hufu::PoolAllocation> pieces;
  for (std::uint64_t i = 0; i < kPieces; ++i) {
    pieces.push_back(pool.import_pointer(hear<aclrtMemPoolPtrExportData>(socket)));
    must(*pieces.back().as<std::uint64_t>() == i, "so is each piece's");
  }

  try {
    const hufu::Import never(names.of_others);
    must(false, "a key for nobody else is refused");
  } catch (const hufu::Error& refusal) {
    std::printf("refused, as it should be: %s\n", refusal.what());
  }
  tell(socket, kPieces);
}

void export_all(int socket) {
  begin();
  hufu::Allocation block(kBlock);
  std::memset(block.data(), 1, block.size());
  hufu::SharedKey key(block.data(), block.size());
  const hufu::SharedKey of_others(block.data(), block.size());

  const hufu::PhysicalMemory physical(hufu::PhysicalMemory::granularity());
  const hufu::Mapping mapping(physical);
  std::memset(mapping.data(), 2, mapping.size());

  aclrtStream stream = nullptr;
  call("aclrtCreateStream", aclrtCreateStream(&stream));
  hufu::Pool pool(64 << 20);
  std::vector<hufu::PoolAllocation> pieces;
  for (std::uint64_t i = 0; i < kPieces; ++i) {
    pieces.push_back(pool.allocate(sizeof i, stream));
    *pieces.back().as<std::uint64_t>() = i;
  }

  Names names{};
  std::memcpy(names.key, key.text().c_str(), sizeof names.key);
  std::memcpy(names.of_others, of_others.text().c_str(), sizeof names.of_others);
  names.physical = physical.share();
  names.pool = pool.share();

  const auto importer = hear<std::int32_t>(socket);
  key.allow(importer);
  hufu::PhysicalMemory::allow(names.physical, importer);
  hufu::Pool::allow(names.pool, importer);
  tell(socket, names);
  for (const hufu::PoolAllocation& piece : pieces)
    tell(socket, piece.share());
  must(hear<std::uint64_t>(socket) == kPieces, "the child has read everything");
  key.wait_released();

  pieces.clear();
  must(pool.used() == 0, "the pool is empty when its pieces have ended");
  call("aclrtDestroyStream", aclrtDestroyStream(stream));
}

int run(void (*part)(int), int socket) {
  try {
    part(socket);
    return 0;
  } catch (const std::exception& error) {
    std::printf("%s\n", error.what());
    return 1;
  }
}

}  // namespace

int main() {
  int ends[2];
  must(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0, "there are sockets");
  const pid_t parent = ::getpid();
  const pid_t child = ::fork();
  if (child == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    ::close(ends[0]);
    const int code = ::getppid() == parent ? run(import_all, ends[1]) : 1;
    std::fflush(stdout);
    std::_Exit(code);
  }
  ::close(ends[1]);
  const int code = run(export_all, ends[0]);
  ::close(ends[0]);
  int status = 0;
  must(::waitpid(child, &status, 0) == child && WIFEXITED(status), "the child has ended by itself");
  return code != 0 ? code : WEXITSTATUS(status);
}
