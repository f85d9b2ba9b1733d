// A team that reads one memory: N processes import one key, and each proves that what it reads is
// not a copy.
//
//   02_workers N      prints "pids P1 P2 ..."; then obeys stdin, line by line:
//     KEY             every worker imports it and reports
//     anything else   every worker reads all of it again and reports
//     end of file     every worker closes it and ends
//
// A report says the SHA-256 of the bytes, the inode that is mapped (the same in all of them and in
// the exporter), and by how much the worker's own memory has grown.

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdint>
#include <fstream>
#include <iostream>
#include <span>
#include <sstream>
#include <string>
#include <vector>

#include "check.h"

#include <openssl/evp.h>

namespace {

std::string sha256_of(std::span<const unsigned char> bytes) {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned int size = 0;
  EVP_Digest(bytes.data(), bytes.size(), digest.data(), &size, EVP_sha256(), nullptr);
  std::string text;
  for (unsigned int i = 0; i < size; ++i) {
    std::array<char, 3> hex{};
    std::snprintf(hex.data(), hex.size(), "%02x", digest[i]);
    text += hex.data();
  }
  return text;
}

// Memory that is this process's alone, in KiB. A copy of the bytes would be in it.
long private_kib() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("RssAnon:")) return std::stol(line.substr(8));
  }
  return 0;
}

// "00:01 1044": device and inode of what is mapped at an address.
std::string mapped_file(const void* address) {
  const auto wanted = reinterpret_cast<std::uintptr_t>(address);
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    std::istringstream fields(line);
    std::uintptr_t begin = 0;
    std::uintptr_t end = 0;
    char dash = 0;
    std::string mode;
    std::string offset;
    std::string device;
    std::string inode;
    fields >> std::hex >> begin >> dash >> end >> mode >> offset >> device >> inode;
    if (begin <= wanted && wanted < end) return device.append(" ").append(inode);
  }
  return "nothing";
}

[[noreturn]] void work(int number) {
  CHECK(aclrtSetDevice(0));
  std::string key;
  std::getline(std::cin, key);
  const auto report = [&](std::span<const unsigned char> bytes, long before) {
    const std::string hash = sha256_of(bytes);
    std::cout << "worker " << number << " pid " << getpid() << " sha256 " << hash << " inode "
              << mapped_file(bytes.data()) << " grew " << private_kib() - before << " KiB"
              << std::endl;
  };
  (void)sha256_of(std::array<unsigned char, 1>{});  // So that its tables are not counted.
  (void)private_kib();
  (void)mapped_file(&key);
  const long before = private_kib();

  void* memory = nullptr;
  CHECK(aclrtIpcMemImportByKey(&memory, key.c_str(), ACL_RT_IPC_MEM_IMPORT_FLAG_DEFAULT));
  void* base = nullptr;
  std::size_t size = 0;
  CHECK(aclrtMemGetAddressRange(memory, &base, &size));
  const std::span<const unsigned char> bytes(static_cast<unsigned char*>(memory), size);
  report(bytes, before);
  for (std::string line; std::getline(std::cin, line);) {
    report(bytes, before);
  }
  CHECK(aclrtIpcMemClose(key.c_str()));
  std::exit(0);
}

struct Worker {
  pid_t pid = 0;
  FILE* orders = nullptr;
  FILE* reports = nullptr;
};

// The child's standard streams become pipes. It has opened nothing of Hufu's yet: what a parent
// has opened, a forked child could not use.
Worker start_worker(int number, const std::vector<Worker>& others) {
  std::array<int, 2> down{};
  std::array<int, 2> up{};
  if (pipe(down.data()) != 0 || pipe(up.data()) != 0) std::exit(1);
  const pid_t pid = fork();
  if (pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    dup2(down[0], STDIN_FILENO);
    dup2(up[1], STDOUT_FILENO);
    for (const int end : {down[0], down[1], up[0], up[1]})
      close(end);
    for (const Worker& other : others) {  // Else the end of their orders would never come.
      fclose(other.orders);
      fclose(other.reports);
    }
    work(number);
  }
  close(down[0]);
  close(up[1]);
  return {.pid = pid, .orders = fdopen(down[1], "w"), .reports = fdopen(up[0], "r")};
}

// One line from each, in order. A worker that has ended has no line, but perhaps a last word.
bool pass_on_reports(const std::vector<Worker>& workers) {
  for (const Worker& worker : workers) {
    std::array<char, 1024> line{};
    if (fgets(line.data(), line.size(), worker.reports) == nullptr) return false;
    std::cout << line.data() << std::flush;
    if (!std::string_view(line.data()).starts_with("worker ")) return false;
  }
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  std::signal(SIGPIPE, SIG_IGN);
  const int count = argc > 1 ? std::atoi(argv[1]) : 4;
  std::vector<Worker> workers;
  for (int number = 1; number <= count; ++number) {
    workers.push_back(start_worker(number, workers));
  }
  std::cout << "pids";
  for (const Worker& worker : workers) {
    std::cout << " " << worker.pid;
  }
  std::cout << std::endl;

  bool good = true;
  for (std::string line; good && std::getline(std::cin, line);) {
    for (const Worker& worker : workers) {
      fprintf(worker.orders, "%s\n", line.c_str());
      fflush(worker.orders);
    }
    good = pass_on_reports(workers);
  }
  for (const Worker& worker : workers) {
    fclose(worker.orders);
  }
  for (const Worker& worker : workers) {
    int status = 0;
    good = waitpid(worker.pid, &status, 0) == worker.pid && status == 0 && good;
  }
  return good ? 0 : 1;
}
