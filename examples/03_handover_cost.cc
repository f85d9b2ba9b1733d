// What it costs to hand a file's bytes to another process, two ways: import a key, or read them
// from a pipe. The key comes on stdin, the file (for the pipe's other end) is the argument.
//
//   hufu share FILE | (read -r key; echo "$key" | 03_handover_cost FILE)
//
// Measured in the receiver: from "I want it" to "the next instruction can read any byte of it". An
// import leaves the page table to be filled by the first touches, so these are shown as well.

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstring>
#include <fstream>
#include <iostream>
#include <iterator>
#include <string>
#include <vector>

#include "check.h"

namespace {

constexpr int kRounds = 21;

class Median {
 public:
  void add(std::chrono::steady_clock::time_point since) {
    const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - since;
    microseconds_.push_back(took.count());
  }
  double value() {
    std::ranges::sort(microseconds_);
    return microseconds_[microseconds_.size() / 2];
  }

 private:
  std::vector<double> microseconds_;
};

struct ImportCost {
  Median map;
  Median touch;  // The same, and one byte of every page read.
};

ImportCost measure_import(const std::string& key, const std::vector<char>& expected) {
  ImportCost cost;
  for (int round = 0; round < kRounds; ++round) {
    const auto start = std::chrono::steady_clock::now();
    void* memory = nullptr;
    CHECK(aclrtIpcMemImportByKey(&memory, key.c_str(), ACL_RT_IPC_MEM_IMPORT_FLAG_DEFAULT));
    cost.map.add(start);
    const auto* bytes = static_cast<const volatile char*>(memory);
    constexpr std::size_t kPage = 4096;
    for (std::size_t at = 0; at < expected.size(); at += kPage) {
      (void)bytes[at];
    }
    cost.touch.add(start);
    if (std::memcmp(memory, expected.data(), expected.size()) != 0) {
      std::puts("the imported bytes differ from the file's");
      std::exit(1);
    }
    CHECK(aclrtIpcMemClose(key.c_str()));
  }
  return cost;
}

bool write_all(int fd, const std::vector<char>& bytes) {
  std::size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t size = write(fd, bytes.data() + done, bytes.size() - done);
    if (size <= 0) return false;
    done += static_cast<std::size_t>(size);
  }
  return true;
}

// The other end holds the bytes in memory and sends them once for every byte that it is sent.
Median measure_pipe(const std::vector<char>& bytes) {
  std::array<int, 2> wish{};
  std::array<int, 2> data{};
  if (pipe(wish.data()) != 0 || pipe(data.data()) != 0) std::exit(1);
  fcntl(data[1], F_SETPIPE_SZ, 1 << 20);  // As wide as an unprivileged process may have it.
  const pid_t sender = fork();
  if (sender == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    close(wish[1]);
    close(data[0]);
    char wanted = 0;
    while (read(wish[0], &wanted, 1) == 1 && write_all(data[1], bytes)) {
    }
    _exit(0);
  }
  close(wish[0]);
  close(data[1]);
  Median median;
  std::vector<char> received(bytes.size());  // Its pages are there before the clock starts.
  for (int round = 0; round < kRounds; ++round) {
    const auto start = std::chrono::steady_clock::now();
    if (write(wish[1], "x", 1) != 1) std::exit(1);
    std::size_t done = 0;
    while (done < received.size()) {
      const ssize_t size = read(data[0], received.data() + done, received.size() - done);
      if (size <= 0) std::exit(1);
      done += static_cast<std::size_t>(size);
    }
    median.add(start);
    if (received != bytes) std::exit(1);
  }
  close(wish[1]);
  waitpid(sender, nullptr, 0);
  return median;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::puts("usage: 03_handover_cost FILE   (a key of the same bytes on stdin)");
    return 2;
  }
  std::ifstream file(argv[1], std::ios::binary);
  const std::vector<char> bytes{std::istreambuf_iterator<char>(file), {}};
  std::string key;
  std::getline(std::cin, key);

  Median pipe_cost = measure_pipe(bytes);  // Forks, so it comes before the library is used.
  CHECK(aclrtSetDevice(0));
  ImportCost import_cost = measure_import(key, bytes);
  const double map = import_cost.map.value();
  const double touch = import_cost.touch.value();
  const double copy = pipe_cost.value();
  std::printf("%zu bytes, median of %d:\n", bytes.size(), kRounds);
  std::printf("  import by key                 %8.0f us  no byte copied\n", map);
  std::printf("  the same, every page touched  %8.0f us\n", touch);
  std::printf("  read from a pipe              %8.0f us  every byte copied twice\n", copy);
  std::printf("  the pipe costs %.1f times the import, %.1f times with every page touched\n",
              copy / map, copy / touch);
  return 0;
}
