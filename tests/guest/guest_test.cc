// The library as a guest in somebody else's program: it leaves alone what is the program's
// (signals, descriptors, exit), survives what programs do (fork, exec, dlclose, closing foreign
// descriptors), and says so when it cannot.

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "acl/acl.h"
#include "hufu/hufu.h"
#include "os/process.h"
#include "support/probe.h"
#include "support/test_broker.h"

#include <dirent.h>

namespace hufu::test {
namespace {

constexpr std::size_t kBlock = std::size_t{64} * 1024;
constexpr std::uint64_t kAnyProcess = ACL_RT_IPC_MEM_EXPORT_FLAG_DISABLE_PID_VALIDATION;

// --- Inside the guests ---------------------------------------------------------------------------

// Throws what serve() answers as "error".
void must(aclError code, const char* what) {
  if (code == ACL_SUCCESS) return;
  const char* text = aclGetRecentErrMsg();
  throw std::runtime_error(fmt::format("{}: {} {}", what, code, text == nullptr ? "" : text));
}

void* allocate(std::size_t size = kBlock) {
  void* memory = nullptr;
  must(aclrtMalloc(&memory, size, ACL_MEM_MALLOC_NORMAL_ONLY), "malloc");
  return memory;
}

std::string export_key(void* memory, std::size_t size = kBlock) {
  std::array<char, 65> key{};
  must(aclrtIpcMemGetExportKey(memory, size, key.data(), key.size(), kAnyProcess), "export");
  return key.data();
}

void* import(const std::string& key) {
  void* memory = nullptr;
  must(aclrtIpcMemImportByKey(&memory, key.c_str(), 0), "import");
  return memory;
}

void close_import(const std::string& key) { must(aclrtIpcMemClose(key.c_str()), "close"); }

std::int32_t do_nothing(void* /*argument*/) { return 0; }

// Every call that talks to the broker, and queued work.
void use_all(const std::string& key) {
  void* memory = allocate();
  const std::string own = export_key(memory);
  const auto* imported = static_cast<const char*>(import(key));
  if (*imported != 42) throw std::runtime_error("the import is not what was exported");
  std::size_t free = 0;
  std::size_t total = 0;
  must(aclrtGetMemInfo(ACL_HBM_MEM, &free, &total), "meminfo");
  must(aclrtMemcpyAsync(memory, kBlock, imported, 4096, ACL_MEMCPY_DEVICE_TO_DEVICE, nullptr),
       "copy");
  must(hufuLaunchHostTask(nullptr, do_nothing, nullptr), "task");
  must(aclrtSynchronizeStream(nullptr), "synchronize");
  close_import(key);
  must(aclrtIpcMemClose(own.c_str()), "withdraw");
  must(aclrtFree(memory), "free");
}

// --- The guests ----------------------------------------------------------------------------------

std::atomic<int> signals = 0;

void count_signal(int /*number*/) { signals.fetch_add(1); }

std::string interrupted(const std::string& key, int rounds_wanted) {
  struct sigaction action {};
  action.sa_handler = count_signal;  // Without SA_RESTART.
  ::sigaction(SIGALRM, &action, nullptr);
  const itimerval every{.it_interval = {.tv_sec = 0, .tv_usec = 1000},
                        .it_value = {.tv_sec = 0, .tv_usec = 1000}};
  ::setitimer(ITIMER_REAL, &every, nullptr);
  for (int i = 0; i < rounds_wanted || signals < 20; ++i)
    use_all(key);
  const itimerval never{};
  ::setitimer(ITIMER_REAL, &never, nullptr);
  return "ok";
}

// Of each of the library's threads: what is wrong with it.
std::string odd_threads() {
  std::string odd;
  int found = 0;
  for (const auto& entry : entries_of("/proc/self/task")) {
    const std::string number = entry.filename();
    if (number == std::to_string(::getpid())) continue;
    std::string name;
    std::getline(std::ifstream(entry / "comm"), name);
    std::ifstream status(entry / "status");
    std::string line;
    std::uint64_t blocked = 0;
    while (std::getline(status, line)) {
      if (line.rfind("SigBlk:", 0) == 0) blocked = std::stoull(line.substr(8), nullptr, 16);
    }
    ++found;
    // All but SIGKILL and SIGSTOP, which nobody can, and the two that glibc keeps for itself.
    constexpr std::uint64_t kCannot = 1U << (SIGKILL - 1) | 1U << (SIGSTOP - 1) | 3ULL << 31U;
    if (name.rfind("hufu-", 0) != 0) odd += " name:" + name;
    if ((blocked | kCannot) != ~std::uint64_t{0}) odd += fmt::format(" {}:{:x}", name, blocked);
  }
  return fmt::format("{} threads{}", found == 0 ? "no" : "some", odd);
}

std::vector<int> sockets() {
  std::vector<int> found;
  for (const auto& entry : entries_of("/proc/self/fd")) {
    std::error_code ignored;
    const std::string target = std::filesystem::read_symlink(entry, ignored);
    const int number = std::stoi(entry.filename());
    if (target.rfind("socket:", 0) == 0 && number > 3) found.push_back(number);  // 3: the test's.
  }
  return found;
}

std::string lose_descriptors(bool replace) {
  int null = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  const auto lost = sockets();
  if (lost.empty()) return "error no socket";
  for (const int number : lost) {
    if (number < 64) return fmt::format("error {} is a program's number", number);
    if (replace) {
      ::dup2(null, number);
    } else {
      ::close(number);
    }
  }
  std::size_t free = 0;
  std::size_t total = 0;
  const aclError code = aclrtGetMemInfo(ACL_HBM_MEM, &free, &total);
  const char* text = aclGetRecentErrMsg();
  const std::string said = text == nullptr ? "" : text;
  if (code != ACL_ERROR_RT_DRV_INTERNAL_ERROR) return fmt::format("error {} {}", code, said);
  if (said.find(fmt::format("descriptor {}", lost.front())) == std::string::npos &&
      said.find(fmt::format("descriptor {}", lost.back())) == std::string::npos) {
    return "error not named: " + said;
  }
  if (replace && (::fcntl(lost.front(), F_GETFD) < 0)) return "error it closed what is not its own";
  must(aclrtFree(allocate()), "free");  // A new session.
  return "ok";
}

// Forks while eight threads allocate, free, import and queue; the children do the same afresh.
std::string fork_often(const std::string& key, int forks) {
  std::atomic<bool> over = false;
  std::atomic<bool> failed = false;
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&, i] {
      try {
        must(aclrtSetDevice(0), "device");
        while (!over) {
          if (i % 2 == 0) {
            must(aclrtFree(allocate(i == 0 ? 256 : kBlock)), "free");
          } else {
            use_all(key);
          }
        }
      } catch (const std::exception& error) {
        std::fprintf(stderr, "thread: %s\n", error.what());
        failed = true;
      }
    });
  }
  const void* imported = import(key);
  std::string answer = "ok";
  for (int i = 0; i < forks && !failed && answer == "ok"; ++i) {
    const pid_t child = ::fork();
    if (child == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      ::alarm(20);
      // Not inherited, and not known: the child has imported nothing.
      aclrtPtrAttributes attributes{};
      if (aclrtPointerGetAttributes(imported, &attributes) != ACL_SUCCESS) ::_exit(2);
      if (attributes.location.type != ACL_MEM_LOCATION_TYPE_UNREGISTERED) ::_exit(3);
      if (aclrtIpcMemClose(key.c_str()) != ACL_ERROR_RT_CONTEXT_NULL) ::_exit(4);
      if (i % 50 == 0) {  // A session takes a while; the rest of the children only begin.
        if (aclrtSetDevice(0) != ACL_SUCCESS) ::_exit(5);
        try {
          use_all(key);
        } catch (const std::exception& error) {
          std::fprintf(stderr, "child: %s\n", error.what());
          ::_exit(6);
        }
      }
      ::_exit(0);
    }
    int status = -1;
    ::waitpid(child, &status, 0);
    if (status != 0) answer = fmt::format("error child {} ended with status {:#x}", i, status);
  }
  over = true;
  for (std::thread& thread : threads)
    thread.join();
  if (failed) return "error a thread failed";
  close_import(key);
  return answer;
}

// Many imports at once, with few descriptors. The test exports; in rounds, because each must be
// answered in time.
std::string import_many(Channel& channel) {
  const rlimit few{.rlim_cur = 256, .rlim_max = 256};
  ::setrlimit(RLIMIT_NOFILE, &few);
  channel.say("ready");
  std::vector<std::string> keys;
  while (const auto line = channel.next()) {
    if (*line == "end") break;
    if (*line == "round") {
      for (const std::string& key : keys) {
        if (*static_cast<const char*>(import(key)) != 42) return "error wrong bytes";
      }
      for (const std::string& key : keys)
        close_import(key);
    } else {
      keys.push_back(*line);
    }
    channel.say("done");
  }
  return "ok";
}

std::uint32_t pending_of(const std::string& key) {
  hufuIpcMemInfo info{};
  info.structSize = sizeof(info);
  must(hufuIpcMemQuery(key.c_str(), &info), "query");
  return info.pending;
}

// Queues a task that stands still until it gets the gate, which the caller holds.
void stand_still_at(std::mutex& gate) {
  must(hufuLaunchHostTask(
           nullptr,
           [](void* argument) -> std::int32_t {
             const std::lock_guard stand(*static_cast<std::mutex*>(argument));
             return 0;
           },
           &gate),
       "task");
}

// Closes an import while a copy of it is queued behind a task that stands still.
std::string close_while_copying(const std::string& key) {
  static std::mutex gate;
  auto* target = static_cast<char*>(allocate());
  std::memset(target, 0, kBlock);
  void* imported = import(key);
  {
    const std::lock_guard lock(gate);
    stand_still_at(gate);
    must(aclrtMemcpyAsync(target, kBlock, imported, kBlock, ACL_MEMCPY_DEVICE_TO_DEVICE, nullptr),
         "copy");
    close_import(key);
    if (pending_of(key) != 1) return "error not pending";
    void* base = nullptr;
    std::size_t size = 0;
    if (aclrtMemGetAddressRange(imported, &base, &size) == ACL_SUCCESS) return "error still known";
    if (aclrtIpcMemClose(key.c_str()) != ACL_ERROR_RT_DRV_INTERNAL_ERROR)
      return "error closed twice";
  }
  must(aclrtSynchronizeDevice(), "synchronize");
  if (target[kBlock - 1] != 42) return "error the copy found other bytes";
  if (place_of(::getpid(), reinterpret_cast<std::uint64_t>(imported))) return "error still mapped";
  import(key);  // As good as new.
  close_import(key);
  must(aclrtFree(target), "free");
  return "ok";
}

// Frees a block, to which there is a key, while a copy of it is queued.
std::string free_while_copying() {
  static std::mutex gate;
  void* target = allocate();
  void* source = allocate();
  std::memset(source, 42, kBlock);
  const std::string key = export_key(source);
  {
    const std::lock_guard lock(gate);
    stand_still_at(gate);
    must(aclrtMemcpyAsync(target, kBlock, source, kBlock, ACL_MEMCPY_DEVICE_TO_DEVICE, nullptr),
         "copy");
    must(aclrtFree(source), "free");
    void* imported = nullptr;
    const aclError code = aclrtIpcMemImportByKey(&imported, key.c_str(), 0);
    if (code != ACL_ERROR_RT_DRV_INTERNAL_ERROR) return fmt::format("error imported: {}", code);
  }
  must(aclrtSynchronizeDevice(), "synchronize");
  if (static_cast<char*>(target)[kBlock - 1] != 42) return "error the copy found other bytes";
  must(aclrtFree(target), "free");
  return "ok";
}

std::string broker_info() {
  hufuBrokerInfo info{};
  info.structSize = sizeof(info);
  must(hufuGetBrokerInfo(&info), "info");
  return fmt::format("{} {} {}", info.address, info.pid, info.uid);
}

std::string answer(Channel& channel, const Words& words) {
  const std::string& verb = words.at(0);
  if (verb == "device") {
    must(aclrtSetDevice(0), "device");
    return "ok";
  }
  if (verb == "export") {
    void* memory = allocate();
    std::memset(memory, 42, kBlock);
    return export_key(memory);
  }
  if (verb == "use") {
    use_all(words.at(1));
    return "ok";
  }
  if (verb == "try") {  // Expected to fail.
    std::size_t free = 0;
    std::size_t total = 0;
    return std::to_string(aclrtGetMemInfo(ACL_HBM_MEM, &free, &total));
  }
  if (verb == "watch") {
    must(hufuIpcMemSetCallback(
             words.at(1).c_str(), [](const char*, hufuIpcMemEvent, void*) {}, nullptr),
         "callback");
    return "ok";
  }
  if (verb == "try-import") {
    void* imported = nullptr;
    return std::to_string(aclrtIpcMemImportByKey(&imported, words.at(1).c_str(), 0));
  }
  if (verb == "broker") return broker_info();
  if (verb == "close-while-copying") return close_while_copying(words.at(1));
  if (verb == "free-while-copying") return free_while_copying();
  if (verb == "interrupted") return interrupted(words.at(1), std::stoi(words.at(2)));
  if (verb == "threads") return odd_threads();
  if (verb == "lose") return lose_descriptors(words.at(1) == "replaced");
  if (verb == "fork") return fork_often(words.at(1), std::stoi(words.at(2)));
  if (verb == "many") return import_many(channel);
  return "error no such command: " + verb;
}

const HelperProgram kGuest("guest", [](Channel& channel) {
  ::signal(SIGPIPE, [](int) { ::_exit(13); });
  serve(channel, [&](const Words& words) { return answer(channel, words); });
});

// --- The tests -----------------------------------------------------------------------------------

class Guest : public ::testing::Test {
 protected:
  static Helper ready(const TestBroker& of) {
    Helper guest = of.helper("guest");
    EXPECT_EQ(guest.ask("device"), "ok");
    return guest;
  }
  static std::string program(const char* name) {
    return (std::filesystem::read_symlink("/proc/self/exe").parent_path() / name).string();
  }
  Ending run(std::vector<std::string> command) const {
    command[0] = program(command[0].c_str());
    return Child({.command = std::move(command), .environment = broker.environment()}).wait();
  }

  TestBroker broker;
};

TEST_F(Guest, MemoryIsFreedFromGlobalsAndExitHandlers) {
  EXPECT_EQ(run({"guest_ends_late"}), Ending::exited(0));
}

TEST_F(Guest, ExitDoesNotWaitForWorkThatStandsStill) {
  auto environment = broker.environment();
  environment.emplace_back("HUFU_TIMEOUT_MS", "200");
  EXPECT_EQ(
      Child({.command = {program("guest_ends_late"), "stuck"}, .environment = environment}).wait(),
      Ending::exited(0));
}

TEST_F(Guest, ClosingTheLibraryIsHarmless) {
  EXPECT_EQ(run({"guest_loads_late", HUFU_TEST_LIBRARY}), Ending::exited(0));
}

TEST_F(Guest, ASecondCopyOfTheLibraryIsToldWhereTheFirstOneIs) {
  const std::string copy = broker.directory() + "/libhufu.so.0";
  std::filesystem::copy_file(HUFU_TEST_LIBRARY, copy);
  EXPECT_EQ(run({"guest_loads_late", HUFU_TEST_LIBRARY, copy}), Ending::exited(0));
}

TEST_F(Guest, AProgramMayBecomeAnotherOneFiftyTimes) {
  Helper exporter = ready(broker);
  const std::string key = exporter.ask("export");
  EXPECT_EQ(run({"guest_starts_again", std::to_string(rounds(50)), key}), Ending::exited(0));
}

TEST_F(Guest, SignalsOfTheProgramInterruptNothing) {
  Helper exporter = ready(broker);
  Helper guest = ready(broker);
  EXPECT_EQ(guest.ask(fmt::format("interrupted {} {}", exporter.ask("export"), rounds(200))), "ok");
}

TEST_F(Guest, ThreadsHaveNamesAndBlockSignals) {
  if (kSanitized) GTEST_SKIP() << "a sanitizer has threads of its own";
  Helper exporter = ready(broker);
  Helper guest = ready(broker);
  const std::string key = exporter.ask("export");
  EXPECT_EQ(exporter.ask("watch " + key), "ok");
  EXPECT_EQ(exporter.ask("threads"), "some threads");
  EXPECT_EQ(guest.ask("threads"), "no threads");
  EXPECT_EQ(guest.ask("use " + key), "ok");
  EXPECT_EQ(guest.ask("threads"), "some threads");
}

TEST_F(Guest, ABrokersDeathRaisesNoSignal) {
  Helper guest = ready(broker);
  broker.kill();
  static_cast<void>(guest.ask("try"));
  static_cast<void>(guest.ask("try"));
  EXPECT_EQ(guest.ask("device"), "ok");  // Alive, and with a broker again.
}

TEST_F(Guest, AClosedConnectionIsNamedAndBegunAnew) {
  Helper guest = ready(broker);
  EXPECT_EQ(guest.ask("lose closed"), "ok");
}

TEST_F(Guest, AReplacedConnectionIsNamedAndLeftAlone) {
  Helper guest = ready(broker);
  EXPECT_EQ(guest.ask("lose replaced"), "ok");
}

TEST_F(Guest, ForkingWhileThreadsWorkIsSafe) {
  if (kSanitized) {
    GTEST_SKIP() << "SKIPPED: the sanitizer's allocator has locks of its own, which a child of a "
                    "process with threads finds taken, for ever";
  }
  Helper exporter = ready(broker);
  Helper guest = ready(broker);
  const std::string key = exporter.ask("export");
  // A thousand, in pieces: each must be answered in time.
  for (int i = 0; i < rounds(20); ++i)
    ASSERT_EQ(guest.ask(fmt::format("fork {} 50", key)), "ok");
}

using P21 = Guest;
TEST_F(P21, AnImportThatIsClosedWhileItIsCopiedIsPendingUntilTheCopyIsDone) {
  Helper exporter = ready(broker);
  Helper guest = ready(broker);
  EXPECT_EQ(guest.ask("close-while-copying " + exporter.ask("export")), "ok");
}

TEST_F(P21, AKeyEndsWhenItsMemoryIsFreedThoughQueuedWorkStillReadsIt) {
  Helper guest = ready(broker);
  EXPECT_EQ(guest.ask("free-while-copying"), "ok");
}

// Without HUFU_BROKER, as users are.
TEST(P37, TwoUsersOfAHostHaveABrokerEachAndNothingInCommon) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can start processes of other users";
  constexpr std::array<std::uint32_t, 2> kUsers = {61037, 61038};
  std::vector<UniqueFd> brokers;
  {
    std::vector<Helper> guests;
    std::vector<std::string> keys;
    std::set<std::string> addresses;
    for (const std::uint32_t uid : kUsers) {
      guests.emplace_back("guest", Helper::Options{.environment = {{"HUFU_IDLE_MS", "200"},
                                                                   {"HUFU_DEVICE_CAPACITY", "64M"}},
                                                   .uid = uid});
      ASSERT_EQ(guests.back().ask("device"), "ok");
      keys.push_back(guests.back().ask("export"));
      const Words info = split(guests.back().ask("broker"));
      addresses.insert(info.at(0));
      EXPECT_EQ(info.at(2), std::to_string(uid));
      auto pidfd = os::open_pidfd(std::stoi(info.at(1)));
      ASSERT_TRUE(pidfd);
      brokers.push_back(std::move(*pidfd));
    }
    EXPECT_EQ(addresses.size(), kUsers.size());
    for (std::size_t i = 0; i < kUsers.size(); ++i) {
      EXPECT_EQ(guests[i].ask("use " + keys[i]), "ok");
      EXPECT_EQ(guests[i].ask("try-import " + keys[1 - i]),
                std::to_string(ACL_ERROR_RT_DRV_INTERNAL_ERROR));
    }
  }
  for (const UniqueFd& pidfd : brokers)
    EXPECT_TRUE(wait_readable(pidfd.get()));
  for (const std::uint32_t uid : kUsers)
    std::filesystem::remove_all(fmt::format("/tmp/hufu-{}", uid));
}

using P53 = Guest;
constexpr int kKeys = 500;
TEST_F(P53, TenThousandImportsTakeNoDescriptors) {
  Helper exporter = ready(broker);
  Helper guest = ready(broker);
  guest.tell("many");
  ASSERT_EQ(guest.hear(), "ready");
  for (int i = 0; i < kKeys; ++i)
    ASSERT_EQ(guest.ask(exporter.ask("export")), "done");
  for (int i = 0; i < rounds(10'000 / kKeys); ++i)
    ASSERT_EQ(guest.ask("round"), "done");
  EXPECT_EQ(guest.ask("end"), "ok");
}

}  // namespace
}  // namespace hufu::test
