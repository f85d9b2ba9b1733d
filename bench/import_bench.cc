// What does an import cost, against the least the kernel can do it for?
//
//   floor  a server that passes a descriptor over a SOCK_SEQPACKET socket (SCM_RIGHTS) with no
//          check, and a client that maps it
//   Hufu   aclrtIpcMemImportByKey of a key nobody here has open: every check, a chained audit
//          record in the log file, a descriptor of its own, the guard page
//
// Each alone, and with its end. The ends are not alike: the floor unmaps, and nobody hears of it.
// aclrtIpcMemClose tells the broker, which writes a record, asks the kernel whether anybody still
// has the memory, and writes down the answer.
//
// In one run, once with the server on the client's CPU and once on another one: a wake-up across
// CPUs costs more than all the work, so the two must not be mixed. On another CPU the broker looks
// for the next request before it sleeps (broker/lookout.h), which the floor's server does not; on
// the same CPU both sleep. docs/adr/0011 says what the rest is spent on.
//
// Run: make bench, or build/release/bin/import_bench

#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "acl/acl.h"
#include "bench/harness.h"
#include "hufu/hufu.h"

namespace {

using hufu::bench::give_up;

constexpr std::size_t kBytes = 1 << 20;
constexpr std::size_t kKeys = 64;

using Key = std::array<char, 65>;

void check(aclError code, const char* what) {
  if (code == ACL_SUCCESS) return;
  const char* text = aclGetRecentErrMsg();
  std::fprintf(stderr, "%s: %d %s\n", what, code, text == nullptr ? "" : text);
  give_up(what);
}

struct Child {
  pid_t pid;
  int channel;  // The child ends when this end is closed.
};

template <class Body>
Child start(Body body) {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) give_up("socketpair");
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    // Its own end only: with a copy of another child's, that child would never see its end.
    constexpr int kChannel = 3;
    if (::dup2(ends[1], kChannel) != kChannel) give_up("dup2");
    if (::close_range(kChannel + 1, ~0U, 0) != 0) give_up("close_range");
    body(kChannel);
    ::_exit(0);
  }
  ::close(ends[1]);
  return {.pid = pid, .channel = ends[0]};
}

void stop(const Child& child) {
  ::close(child.channel);
  ::waitpid(child.pid, nullptr, 0);
}

// Answers every packet with the same descriptor.
void serve_floor(int channel) {
  const int memory = ::memfd_create("floor", MFD_CLOEXEC);
  if (memory < 0 || ::ftruncate(memory, kBytes) != 0) give_up("memfd");
  void* pages =
      ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, memory, 0);
  if (pages == MAP_FAILED) give_up("mmap");
  char request[128];
  while (::recv(channel, request, sizeof(request), 0) > 0) {
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
    char reply[96] = {};
    iovec data{.iov_base = reply, .iov_len = sizeof(reply)};
    msghdr message{};
    message.msg_iov = &data;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
    cmsghdr* part = CMSG_FIRSTHDR(&message);
    part->cmsg_level = SOL_SOCKET;
    part->cmsg_type = SCM_RIGHTS;
    part->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(part), &memory, sizeof(memory));
    if (::sendmsg(channel, &message, MSG_NOSIGNAL) < 0) return;
  }
}

void* import_floor(int channel) {
  char request[96] = {};
  if (::send(channel, request, sizeof(request), MSG_NOSIGNAL) < 0) give_up("send");
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))];
  char reply[128];
  iovec data{.iov_base = reply, .iov_len = sizeof(reply)};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  if (::recvmsg(channel, &message, MSG_CMSG_CLOEXEC) <= 0) give_up("recvmsg");
  const cmsghdr* part = CMSG_FIRSTHDR(&message);
  if (part == nullptr) give_up("recvmsg of a descriptor");
  int memory = -1;
  std::memcpy(&memory, CMSG_DATA(part), sizeof(memory));
  void* pages = ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0);
  if (pages == MAP_FAILED) give_up("mmap");
  ::close(memory);
  hufu::bench::keep(pages);
  return pages;
}

void serve_exports(int channel) {
  check(aclrtSetDevice(0), "aclrtSetDevice");
  for (std::size_t i = 0; i < kKeys; ++i) {
    void* memory = nullptr;
    check(aclrtMalloc(&memory, kBytes, ACL_MEM_MALLOC_NORMAL_ONLY), "aclrtMalloc");
    Key key;
    check(aclrtIpcMemGetExportKey(memory, kBytes, key.data(), key.size(),
                                  ACL_RT_IPC_MEM_EXPORT_FLAG_DISABLE_PID_VALIDATION),
          "aclrtIpcMemGetExportKey");
    if (::send(channel, key.data(), key.size(), 0) < 0) give_up("send");
  }
  char end;
  while (::recv(channel, &end, 1, 0) > 0) {
  }
}

void* import_key(const Key& key) {
  void* memory = nullptr;
  check(aclrtIpcMemImportByKey(&memory, key.data(), 0), "aclrtIpcMemImportByKey");
  hufu::bench::keep(memory);
  return memory;
}

void close_key(const Key& key) { check(aclrtIpcMemClose(key.data()), "aclrtIpcMemClose"); }

void measure(int server_cpu, const char* title, const std::vector<Key>& keys, const Child& floor,
             int broker) {
  constexpr std::size_t kOperations = 500;
  const std::string floor_alone = "floor: SCM_RIGHTS, mmap";
  const std::string floor_whole = "floor: SCM_RIGHTS, mmap, munmap";
  hufu::bench::pin(floor.pid, server_cpu);
  hufu::bench::pin(broker, server_cpu);
  std::vector<void*> mapped;
  hufu::bench::Suite suite(title);
  suite.add(
      floor_alone, kKeys,
      [&](std::size_t n) {
        for (std::size_t i = 0; i < n; ++i)
          mapped.push_back(import_floor(floor.channel));
      },
      {},
      [&] {
        for (void* pages : mapped)
          ::munmap(pages, kBytes);
        mapped.clear();
      });
  suite.add(
      "Hufu: import by key", kKeys,
      [&](std::size_t n) {
        for (std::size_t i = 0; i < n; ++i)
          import_key(keys[i]);
      },
      floor_alone,
      [&] {
        for (const Key& key : keys)
          close_key(key);
      });
  suite.add(floor_whole, kOperations, [&](std::size_t n) {
    for (std::size_t i = 0; i < n; ++i)
      ::munmap(import_floor(floor.channel), kBytes);
  });
  suite.add(
      "Hufu: import by key, close", kOperations,
      [&](std::size_t n) {
        for (std::size_t i = 0; i < n; ++i) {
          import_key(keys[0]);
          close_key(keys[0]);
        }
      },
      floor_whole);
  suite.run();
}

void measure_open_again(const Key& key) {
  import_key(key);
  hufu::bench::Suite suite("Import of a key that is open already, and its close");
  suite.add("floor: fetch_add, fetch_sub", 1'000'000, [](std::size_t n) {
    static int count = 0;
    for (std::size_t i = 0; i < n; ++i) {
      __atomic_fetch_add(&count, 1, __ATOMIC_ACQ_REL);
      __atomic_fetch_sub(&count, 1, __ATOMIC_ACQ_REL);
    }
  });
  suite.add(
      "Hufu: import by key, close", 200'000,
      [&](std::size_t n) {
        for (std::size_t i = 0; i < n; ++i) {
          import_key(key);
          close_key(key);
        }
      },
      "floor: fetch_add, fetch_sub");
  suite.run();
  close_key(key);
}

}  // namespace

int main() {
  // A broker of its own, so that nobody's log and nobody's clients are in the figures.
  char directory[] = "/tmp/hufu-bench-XXXXXX";
  if (::mkdtemp(directory) == nullptr) give_up("mkdtemp");
  const std::string base = directory;
  ::setenv("HUFU_BROKER", ("unix:" + base + "/broker.sock").c_str(), 1);
  ::setenv("HUFU_AUDIT_DIR", (base + "/audit").c_str(), 1);
  ::setenv("HUFU_IDLE_MS", "100", 1);

  // The children fork before the library is used here.
  const Child floor = start(serve_floor);
  const Child exporter = start(serve_exports);
  std::vector<Key> keys(kKeys);
  for (Key& key : keys) {
    if (::recv(exporter.channel, key.data(), key.size(), 0) != static_cast<ssize_t>(key.size())) {
      give_up("exporter");
    }
  }

  hufu::bench::pin(0, 0);
  check(aclrtSetDevice(0), "aclrtSetDevice");
  hufuBrokerInfo broker{};
  broker.structSize = sizeof(broker);
  check(hufuGetBrokerInfo(&broker), "hufuGetBrokerInfo");

  measure(0, "Cold import of 1 MiB, server on the same CPU", keys, floor, broker.pid);
  if (::sysconf(_SC_NPROCESSORS_ONLN) > 1) {
    measure(1, "Cold import of 1 MiB, server on another CPU", keys, floor, broker.pid);
  }
  measure_open_again(keys[0]);

  (void)aclrtResetDevice(0);
  stop(floor);
  stop(exporter);
  std::filesystem::remove_all(base);
  return 0;
}
