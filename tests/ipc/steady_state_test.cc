// A program that allocates and frees in turn talks to nobody: not to the broker, not even to the
// kernel. Nor does one that opens and closes a key that it holds anyway. The judge is a filter that
// kills at the first system call.

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstddef>
#include <cstdlib>
#include <string>

#include <gtest/gtest.h>

#include "acl/acl.h"
#include "support/helper.h"
#include "support/test_broker.h"

namespace hufu::test {
namespace {

constexpr int kRefused = 3;
constexpr int kNoFilter = 4;

// From here on this thread may end the process, and nothing else.
void forbid_system_calls() {
  std::array<sock_filter, 4> program = {
      sock_filter BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      sock_filter BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_exit_group, 0, 1),
      sock_filter BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
      sock_filter BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS)};
  sock_fprog filter{.len = program.size(), .filter = program.data()};
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
      ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) != 0) {
    ::_exit(kNoFilter);
  }
}

void allocate_and_free(std::size_t size, aclrtMemMallocPolicy policy) {
  // Three at once, so that the order of frees is not always that of the last allocation.
  std::array<void*, 3> memory{};
  for (void*& one : memory) {
    if (aclrtMalloc(&one, size, policy) != ACL_SUCCESS) ::_exit(kRefused);
  }
  for (void* one : memory) {
    if (aclrtFree(one) != ACL_SUCCESS) ::_exit(kRefused);
  }
}

// "SIZE POLICY SIZE-IN-SILENCE": what is allocated first, and what when nothing is allowed.
const HelperProgram kSteady("steady", [](Channel& channel) {
  const Words words = split(channel.next().value());
  const auto policy = static_cast<aclrtMemMallocPolicy>(std::stoi(words.at(1)));
  if (aclrtSetDevice(0) != ACL_SUCCESS) ::_exit(kRefused);
  for (int round = 0; round < 100; ++round)
    allocate_and_free(std::stoull(words.at(0)), policy);
  const std::size_t silent_size = std::stoull(words.at(2));
  forbid_system_calls();
  for (int round = 0; round < 10'000; ++round)
    allocate_and_free(silent_size, policy);
  ::_exit(EXIT_SUCCESS);
});

// Exports a block, says its key, and keeps it until the test hangs up.
const HelperProgram kExporter("exporter", [](Channel& channel) {
  constexpr std::size_t kBytes = 4096;
  void* memory = nullptr;
  std::array<char, 65> key{};
  if (aclrtSetDevice(0) != ACL_SUCCESS ||
      aclrtMalloc(&memory, kBytes, ACL_MEM_MALLOC_NORMAL_ONLY) != ACL_SUCCESS ||
      aclrtIpcMemGetExportKey(memory, kBytes, key.data(), key.size(),
                              ACL_RT_IPC_MEM_EXPORT_FLAG_DISABLE_PID_VALIDATION) != ACL_SUCCESS) {
    ::_exit(kRefused);
  }
  channel.say(key.data());
  while (channel.next()) {
  }
});

// "KEY HELD": holds the key open so many times, then opens and closes it once more, often, in
// silence.
const HelperProgram kImporter("importer", [](Channel& channel) {
  const Words words = split(channel.next().value());
  const std::string& key = words.at(0);
  void* first = nullptr;
  if (aclrtSetDevice(0) != ACL_SUCCESS) ::_exit(kRefused);
  for (int i = 0; i < std::stoi(words.at(1)); ++i) {
    if (aclrtIpcMemImportByKey(&first, key.c_str(), 0) != ACL_SUCCESS) ::_exit(kRefused);
  }
  forbid_system_calls();
  for (int round = 0; round < 10'000; ++round) {
    void* again = nullptr;
    if (aclrtIpcMemImportByKey(&again, key.c_str(), 0) != ACL_SUCCESS || again != first ||
        aclrtIpcMemClose(key.c_str()) != ACL_SUCCESS) {
      ::_exit(kRefused);
    }
  }
  ::_exit(EXIT_SUCCESS);
});

Ending run(const Environment& environment, const std::string& line) {
  Helper helper("steady", {.environment = environment});
  helper.tell(line);
  return helper.wait();
}

class SteadyState : public testing::Test {
 protected:
  void SetUp() override {
    if (kSanitized) GTEST_SKIP() << "a sanitizer makes system calls of its own";
  }
  static void expect_silence(const Environment& environment) {
    // Pieces, small blocks, a block of 2 MiB pages, and three that just fit into the reserve.
    for (const char* line : {"64 2 64", "1000 2 1000", "4096 2 4096", "1048576 2 1048576",
                             "4194304 1 4194304", "20000000 0 20000000"}) {
      EXPECT_EQ(run(environment, line), Ending::exited(EXIT_SUCCESS)) << line;
    }
    EXPECT_EQ(run(environment, "4096 2 8192"), Ending::killed(SIGSYS))
        << "the first block of a size needs the kernel: does the filter filter?";
  }
};

TEST_F(SteadyState, OfAllocationTalksNeitherToTheBrokerNorToTheKernel) {
  TestBroker broker;
  expect_silence(broker.environment());
}

TEST_F(SteadyState, WithoutABrokerIsTheSame) { expect_silence({{"HUFU_BROKER", "none"}}); }

TEST_F(SteadyState, OfAKeyThatIsHeldTalksNeitherToTheBrokerNorToTheKernel) {
  TestBroker broker;
  Helper exporter = broker.helper("exporter");
  const std::string key = exporter.hear();
  const auto importer = [&](int held) {
    Helper helper = broker.helper("importer");
    helper.tell(fmt::format("{} {}", key, held));
    return helper.wait();
  };
  EXPECT_EQ(importer(1), Ending::exited(EXIT_SUCCESS));
  EXPECT_EQ(importer(0), Ending::killed(SIGSYS)) << "a first import needs both";
}

}  // namespace
}  // namespace hufu::test
