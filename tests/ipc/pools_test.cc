// Pools shared between processes (R9, S17 to S19): one grant, and then pointers that cost nobody
// anything. What the other side says of a pointer is a claim.

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "acl/acl.h"
#include "acl/acl_rt_memory_soma.h"
#include "base/units.h"
#include "hufu/hufu.h"
#include "support/audit_reader.h"
#include "support/helper.h"
#include "support/test_broker.h"

namespace hufu::test {
namespace {

using audit::Type;

constexpr std::uint64_t kAnyProcess = ACL_RT_VMM_EXPORT_FLAG_DISABLE_PID_VALIDATION;
constexpr std::uint64_t kReadOnly = HUFU_IPC_MEM_EXPORT_FLAG_READ_ONLY;
constexpr std::uint64_t kUnit = 2 * kMiB;

std::byte* pointer(const std::string& word) {
  return reinterpret_cast<std::byte*>(static_cast<std::uintptr_t>(std::stoull(word)));
}
std::string number(const void* address) {
  return std::to_string(reinterpret_cast<std::uintptr_t>(address));
}

std::string hex(const aclrtMemPoolPtrExportData& data) {
  std::string text;
  for (const unsigned char byte : data.reserved)
    text += fmt::format("{:02x}", byte);
  return text;
}
aclrtMemPoolPtrExportData from_hex(const std::string& text) {
  aclrtMemPoolPtrExportData data{};
  for (std::size_t i = 0; i < sizeof(data.reserved); ++i)
    data.reserved[i] = static_cast<unsigned char>(std::stoul(text.substr(2 * i, 2), nullptr, 16));
  return data;
}

// "CODE OUTPUT" or "CODE TEXT".
std::string said(aclError code, const std::string& output = {}) {
  const char* text = aclGetRecentErrMsg();
  return std::to_string(code) + " " +
         (code == ACL_SUCCESS ? output : std::string(text == nullptr ? "" : text));
}

struct Peer {
  aclrtMemPool pool = nullptr;
  aclrtStream stream = nullptr;

  std::string answer(const Words& words) {
    const std::string& verb = words.at(0);
    void* address = nullptr;
    if (verb == "create") {
      aclrtMemPoolProps props{};
      props.location.type = ACL_MEM_LOCATION_TYPE_DEVICE;
      props.maxSize = std::stoull(words.at(1));
      return said(aclrtMemPoolCreate(&pool, &props));
    }
    if (verb == "export") {
      std::uint64_t token = 0;
      const aclError code = aclrtMemPoolExportToShareableHandle(pool, ACL_MEM_HANDLE_TYPE_NONE,
                                                                std::stoull(words.at(1)), &token);
      return said(code, std::to_string(token));
    }
    if (verb == "import") {
      return said(aclrtMemPoolImportFromShareableHandle(std::stoull(words.at(1)), 0, &pool));
    }
    if (verb == "allocate") {
      const aclError code =
          aclrtMemPoolMallocAsync(&address, std::stoull(words.at(1)), pool, stream);
      return said(code, number(address));
    }
    if (verb == "list") {
      std::int32_t pid = std::stoi(words.at(2));
      return said(aclrtMemSetPidToShareableHandle(std::stoull(words.at(1)), &pid, 1));
    }
    if (verb == "free") return said(aclrtFree(pointer(words.at(1))));
    if (verb == "free_on") return said(aclrtMemPoolFreeAsync(pointer(words.at(1)), stream));
    if (verb == "synchronise") return said(aclrtSynchronizeStream(stream));
    if (verb == "trim") return said(aclrtMemPoolTrimTo(pool, std::stoull(words.at(1))));
    if (verb == "destroy") return said(aclrtMemPoolDestroy(pool));
    if (verb == "export_pointer") {
      aclrtMemPoolPtrExportData data{};
      const aclError code = aclrtMemPoolExportPointer(pointer(words.at(1)), &data);
      return said(code, hex(data));
    }
    if (verb == "import_pointer") {
      const auto data = from_hex(words.at(1));
      const aclError code = aclrtMemPoolImportPointer(pool, &data, &address);
      return said(code, number(address));
    }
    if (verb == "get") {
      std::uint64_t value = 0;
      const auto attr = static_cast<aclrtMemPoolAttr>(std::stoi(words.at(1)));
      const aclError code = aclrtMemPoolGetAttr(pool, attr, &value);
      return said(code, std::to_string(value));
    }
    if (verb == "set") {
      std::uint64_t value = std::stoull(words.at(2));
      const auto attr = static_cast<aclrtMemPoolAttr>(std::stoi(words.at(1)));
      return said(aclrtMemPoolSetAttr(pool, attr, &value));
    }
    if (verb == "size_at") {
      std::size_t size = 0;
      const aclError code = aclrtMemGetAddressRange(pointer(words.at(1)), nullptr, &size);
      return said(code, std::to_string(size));
    }
    if (verb == "fill") {  // As the API does it, which checks.
      const std::size_t size = std::stoull(words.at(2));
      return said(aclrtMemset(pointer(words.at(1)), size, std::stoi(words.at(3)), size));
    }
    if (verb == "poke") {  // As a program may.
      *pointer(words.at(1)) = static_cast<std::byte>(std::stoi(words.at(2)));
      return said(ACL_SUCCESS);
    }
    if (verb == "peek") {
      return said(ACL_SUCCESS, std::to_string(std::to_integer<int>(*pointer(words.at(1)))));
    }
    if (verb == "hostile") return hostile(words);
    return "error no such verb";
  }

  // Changes a good pointer's bytes at random, often with a right sum, and sees what comes of it.
  std::string hostile(const Words& words) {
    const auto good = from_hex(words.at(1));
    const std::uint64_t pool_size = std::stoull(words.at(2));
    void* first = nullptr;
    if (aclrtMemPoolImportPointer(pool, &good, &first) != ACL_SUCCESS) return "error the good one";
    std::uint64_t good_offset = 0;
    std::memcpy(&good_offset, good.reserved + 24, sizeof(good_offset));
    const auto base = reinterpret_cast<std::uintptr_t>(first) - good_offset;
    std::mt19937_64 random(99);
    int accepted = 0;
    for (int i = 0; i < 20'000; ++i) {
      auto data = good;
      for (std::uint64_t changes = 1 + random() % 4; changes != 0; --changes) {
        if (random() % 4 == 0) {
          data.reserved[random() % sizeof(data.reserved)] ^= static_cast<unsigned char>(random());
        } else {  // Offset and size are what it is about.
          std::uint64_t value = random() >> (random() % 64);
          if (random() % 2 == 0) value &= ~std::uint64_t{63};
          std::memcpy(data.reserved + (random() % 2 == 0 ? 24 : 32), &value, sizeof(value));
        }
      }
      std::uint64_t sum = 0xcbf29ce484222325;
      for (std::size_t at = 0; at < 56; ++at)
        sum = (sum ^ data.reserved[at]) * 0x100000001b3;
      if (random() % 8 != 0) std::memcpy(data.reserved + 56, &sum, sizeof(sum));
      void* address = nullptr;
      if (aclrtMemPoolImportPointer(pool, &data, &address) != ACL_SUCCESS) {
        if (address != nullptr) return "error an output of a call that failed";
        continue;
      }
      ++accepted;
      std::size_t size = 0;
      if (aclrtMemGetAddressRange(address, nullptr, &size) != ACL_SUCCESS) return "error unknown";
      const auto start = reinterpret_cast<std::uintptr_t>(address);
      if (start < base || start - base > pool_size || size > pool_size - (start - base)) {
        return "error outside the pool";
      }
      if (aclrtFree(address) != ACL_SUCCESS) return "error free";
    }
    return accepted > 100 ? said(ACL_SUCCESS) : "error vacuous";
  }
};

const HelperProgram kPoolPeer("pool_peer", [](Channel& channel) {
  Peer peer;
  if (aclrtSetDevice(0) != ACL_SUCCESS || aclrtCreateStream(&peer.stream) != ACL_SUCCESS) {
    ::_exit(EXIT_FAILURE);
  }
  serve(channel, [&](const Words& words) { return peer.answer(words); });
});

struct Answer {
  aclError code;
  std::string text;
  std::uint64_t value() const { return std::stoull(text); }
};

class Pool {
 public:
  explicit Pool(const TestBroker& broker) : helper(broker.helper("pool_peer")) {}

  template <class... Parts>
  Answer ask(const Parts&... parts) {
    std::string line;
    ((line += (line.empty() ? "" : " ") + fmt::format("{}", parts)), ...);
    const std::string answer = helper.ask(line);
    const auto space = answer.find(' ');
    if (space == std::string::npos) throw Stuck(line + ": " + answer);
    if (answer.starts_with("error")) throw Stuck(line + ": " + answer);
    return {.code = std::stoi(answer), .text = answer.substr(space + 1)};
  }
  template <class... Parts>
  Answer must(const Parts&... parts) {
    auto answer = ask(parts...);
    if (answer.code != ACL_SUCCESS) throw Stuck(answer.text);
    return answer;
  }
  std::uint64_t reserved() {
    return must("get", int{ACL_RT_MEM_POOL_ATTR_RESERVED_MEM_CURRENT}).value();
  }

  Helper helper;
};

class SharedPools : public testing::Test {
 protected:
  // A pool of 16 MiB, shared.
  std::uint64_t share(std::uint64_t flags = kAnyProcess) {
    exporter.must("create", 16 * kMiB);
    return exporter.must("export", flags).value();
  }
  std::string say(std::uint64_t address) { return exporter.must("export_pointer", address).text; }

  TestBroker broker;
  Pool exporter{broker};
  Pool importer{broker};
};

TEST_F(SharedPools, AreGrantedOnceAndTheirPointersCostNothing) {  // S19
  importer.must("import", share());
  const std::size_t records = broker.records().size();
  EXPECT_EQ(count(broker.records(), {.type = Type::kImport}), 1U);
  for (int i = 1; i <= 100; ++i) {
    const auto address = exporter.must("allocate", 100 * i).value();
    exporter.must("fill", address, 100 * i, i);
    const auto imported = importer.must("import_pointer", say(address)).value();
    EXPECT_EQ(importer.must("size_at", imported).value(), *round_up(100 * i, 64U));
    EXPECT_EQ(importer.must("peek", imported + 100 * i - 1).value(), std::uint64_t(i));
    importer.must("poke", imported, 200);
    EXPECT_EQ(exporter.must("peek", address).value(), 200U);
    if (i % 2 == 0) {  // Either side may be first.
      importer.must(i % 4 == 0 ? "free" : "free_on", imported);
      exporter.must("free_on", address);
    } else {
      exporter.must("free", address);
      importer.must("free", imported);
    }
    EXPECT_EQ(importer.ask("free", imported).code, ACL_ERROR_RT_PARAM_INVALID);
  }
  EXPECT_EQ(broker.records().size(), records) << "a pointer is nobody's business but theirs";
  importer.must("destroy");
  exporter.must("destroy");
}

TEST_F(SharedPools, AnAllocationAfterTheShareNeedsNoNewGrant) {  // S19
  const auto token = share();
  importer.must("import", token);
  const auto address = exporter.must("allocate", 5 * kMiB).value();
  exporter.must("fill", address, 5 * kMiB, 7);
  const auto imported = importer.must("import_pointer", say(address)).value();
  EXPECT_EQ(importer.must("peek", imported + 5 * kMiB - 1).value(), 7U);
  EXPECT_EQ(importer.ask("fill", imported, 5 * kMiB + 1, 0).code, ACL_ERROR_RT_PARAM_INVALID)
      << "it ends where the allocation does";
  EXPECT_EQ(exporter.must("export", kAnyProcess).value(), token) << "it has one handle";
  EXPECT_EQ(count(broker.records(), {.type = Type::kImport}), 1U);
}

TEST_F(SharedPools, AnImportedPoolAllocatesNothingAndSaysWhy) {
  importer.must("import", share());
  for (const char* line : {"allocate 64", "trim 0", "export 1", "get 5", "set 4 0"}) {
    const auto answer = importer.ask(line);
    EXPECT_EQ(answer.code, ACL_ERROR_RT_INTERNAL_ERROR) << line;
    EXPECT_NE(answer.text.find("another process's"), std::string::npos) << answer.text;
  }
}

TEST_F(SharedPools, TrimmedMemoryReadsZerosForAnImporterThatStillLooks) {  // S17, P41
  importer.must("import", share());
  exporter.must("set", int{ACL_RT_MEM_POOL_ATTR_RELEASE_THRESHOLD}, 16 * kMiB);
  const auto address = exporter.must("allocate", 4 * kMiB).value();
  exporter.must("fill", address, 4 * kMiB, 7);
  const auto imported = importer.must("import_pointer", say(address)).value();
  exporter.must("free_on", address);
  exporter.must("synchronise");
  EXPECT_EQ(exporter.reserved(), 4 * kMiB) << "below the threshold it stays";
  EXPECT_EQ(importer.must("peek", imported).value(), 7U);
  exporter.must("trim", 0);
  EXPECT_EQ(exporter.reserved(), 0U);
  EXPECT_EQ(importer.must("peek", imported).value(), 0U);
  importer.must("free", imported);
}

TEST_F(SharedPools, WhatTheExporterUsesAnewIsWhatItSaysLast) {
  importer.must("import", share());
  const auto address = exporter.must("allocate", 1024).value();
  const auto before = importer.must("import_pointer", say(address)).value();
  exporter.must("free_on", address);
  const auto first = exporter.must("allocate", 256).value();
  const auto second = exporter.must("allocate", 256).value();
  ASSERT_EQ(first, address);
  ASSERT_EQ(second, address + 256);
  const auto now = importer.must("import_pointer", say(second)).value();
  EXPECT_EQ(now, before + 256);
  EXPECT_EQ(importer.must("size_at", now).value(), 256U);
  EXPECT_EQ(importer.ask("size_at", before).code, ACL_ERROR_MEMORY_ADDRESS_UNREGISTERED);
  importer.must("free", before);
  importer.must("free", now);
  EXPECT_EQ(importer.ask("free", before).code, ACL_ERROR_RT_PARAM_INVALID);
}

TEST_F(SharedPools, ReadOnlyIsTheKernelsWordAndKeepsTheMemory) {
  importer.must("import", share(kAnyProcess | kReadOnly));
  const auto address = exporter.must("allocate", 4 * kMiB).value();
  exporter.must("fill", address, 4 * kMiB, 7);
  const auto imported = importer.must("import_pointer", say(address)).value();
  EXPECT_EQ(importer.must("peek", imported).value(), 7U);
  const auto refused = importer.ask("fill", imported, 64, 1);
  EXPECT_EQ(refused.code, ACL_ERROR_RT_DRV_INTERNAL_ERROR) << refused.text;
  exporter.must("free_on", address);
  exporter.must("synchronise");
  EXPECT_EQ(exporter.reserved(), 4 * kMiB) << "not trimmed";
  const auto kept = exporter.ask("trim", 0);
  EXPECT_EQ(kept.code, ACL_ERROR_RT_INTERNAL_ERROR);
  EXPECT_NE(kept.text.find("read-only"), std::string::npos) << kept.text;
  importer.helper.tell(fmt::format("poke {} 1", imported));
  const Ending ending = importer.helper.wait();
  // A sanitizer reports the signal and exits.
  EXPECT_TRUE(kSanitized ? ending != Ending::exited(0) : ending == Ending::killed(SIGSEGV));
  const auto again = exporter.must("allocate", 8 * kMiB).value();
  exporter.must("fill", again, 8 * kMiB, 9);
}

TEST_F(SharedPools, HostilePointersNeverReachOutOfThePool) {
  importer.must("import", share());
  const auto address = exporter.must("allocate", 4096).value();
  importer.must("hostile", say(address), 16 * kMiB);
}

TEST_F(SharedPools, APointerOfAnotherPoolOrOfOneThatHasEndedIsRefused) {
  importer.must("import", share());
  Pool third(broker);
  third.must("create", 16 * kMiB);
  const auto not_shared = third.must("allocate", 64).value();
  EXPECT_EQ(third.ask("export_pointer", not_shared).code, ACL_ERROR_RT_INTERNAL_ERROR);
  third.must("export", kAnyProcess);
  const auto foreign = third.must("export_pointer", not_shared).text;
  const auto answer = importer.ask("import_pointer", foreign);
  EXPECT_EQ(answer.code, ACL_ERROR_RT_PARAM_INVALID);
  EXPECT_NE(answer.text.find("another pool"), std::string::npos) << answer.text;
  EXPECT_EQ(exporter.ask("import_pointer", foreign).code, ACL_ERROR_RT_INTERNAL_ERROR)
      << "a pool of its own imports nothing";

  const auto address = exporter.must("allocate", 64).value();
  exporter.must("fill", address, 64, 5);
  EXPECT_EQ(exporter.ask("export_pointer", address + 1).code, ACL_ERROR_RT_PARAM_INVALID);
  const std::string said = say(address);
  const auto imported = importer.must("import_pointer", said).value();
  exporter.must("destroy");
  const auto late = importer.ask("import_pointer", said);
  EXPECT_EQ(late.code, ACL_ERROR_RT_DRV_INTERNAL_ERROR);
  EXPECT_NE(late.text.find("destroyed"), std::string::npos) << late.text;
  EXPECT_EQ(importer.must("peek", imported).value(), 5U) << "what it has it keeps";
  importer.must("free", imported);
}

TEST_F(SharedPools, AHandleThatNobodyGaveOpensNothing) {
  const auto token = share();
  EXPECT_EQ(importer.ask("import", token ^ 1U).code, ACL_ERROR_RT_INVALID_HANDLE);
  exporter.must("destroy");
  EXPECT_EQ(importer.ask("import", token).code, ACL_ERROR_RT_INVALID_HANDLE);
}

TEST_F(SharedPools, OnlyWhoIsListedImportsWhereThereIsAList) {
  const auto token = share(0);
  const auto refused = importer.ask("import", token);
  EXPECT_EQ(refused.code, ACL_ERROR_RT_DRV_INTERNAL_ERROR) << refused.text;
  EXPECT_EQ(importer.ask("list", token, importer.helper.pid()).code,
            ACL_ERROR_RT_DRV_INTERNAL_ERROR)
      << "not the exporter";
  exporter.must("list", token, importer.helper.pid());
  importer.must("import", token);
  Pool third(broker);
  EXPECT_EQ(third.ask("import", token).code, ACL_ERROR_RT_DRV_INTERNAL_ERROR);
  third.must("create", kUnit);
  const auto open = third.must("export", kAnyProcess).value();
  EXPECT_EQ(third.ask("list", open, importer.helper.pid()).code, ACL_ERROR_RT_NO_PERMISSION);
}

TEST_F(SharedPools, TheDeathOfEitherSideTakesNothingFromTheOther) {
  const auto token = share();
  importer.must("import", token);
  const auto address = exporter.must("allocate", kUnit).value();
  exporter.must("fill", address, kUnit, 3);
  const std::string said = say(address);
  {
    Pool third(broker);
    third.must("import", token);
    third.must("import_pointer", said);
    third.helper.kill();
  }
  exporter.must("fill", address, kUnit, 4);
  const auto imported = importer.must("import_pointer", said).value();
  EXPECT_EQ(importer.must("peek", imported).value(), 4U);
  exporter.helper.kill();
  EXPECT_EQ(importer.must("peek", imported + kUnit - 1).value(), 4U);
  Pool fourth(broker);
  EXPECT_EQ(fourth.ask("import", token).code, ACL_ERROR_RT_INVALID_HANDLE);
  EXPECT_EQ(importer.ask("import_pointer", said).code, ACL_ERROR_RT_DRV_INTERNAL_ERROR);
  importer.must("free", imported);
  importer.must("destroy");
}

TEST_F(SharedPools, ABrokerThatIsKilledLeavesThemToGoOn) {
  importer.must("import", share());
  const auto address = exporter.must("allocate", kUnit).value();
  broker.kill();
  const auto later = exporter.must("allocate", 2 * kUnit).value();
  for (const auto each : {address, later}) {
    exporter.must("fill", each, kUnit, 6);
    const auto imported = importer.must("import_pointer", say(each)).value();
    EXPECT_EQ(importer.must("peek", imported).value(), 6U);
  }
}

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
    ::_exit(4);
  }
}

// "BYTES": shares a pool with itself, and then allocates, says, imports and frees in silence.
const HelperProgram kSilent("silent_pool", [](Channel& channel) {
  const std::size_t silent_size = std::stoull(channel.next().value());
  aclrtMemPoolProps props{};
  props.location.type = ACL_MEM_LOCATION_TYPE_DEVICE;
  props.maxSize = 16 * kMiB;
  aclrtMemPool own = nullptr;
  aclrtMemPool other = nullptr;
  aclrtStream stream = nullptr;
  std::uint64_t token = 0;
  if (aclrtSetDevice(0) != ACL_SUCCESS || aclrtCreateStream(&stream) != ACL_SUCCESS ||
      aclrtMemPoolCreate(&own, &props) != ACL_SUCCESS ||
      aclrtMemPoolExportToShareableHandle(own, ACL_MEM_HANDLE_TYPE_NONE, kAnyProcess, &token) !=
          ACL_SUCCESS ||
      aclrtMemPoolImportFromShareableHandle(token, 0, &other) != ACL_SUCCESS) {
    ::_exit(3);
  }
  const auto round = [&](std::size_t size) {
    std::array<void*, 3> memory{};
    for (void*& one : memory) {
      void* imported = nullptr;
      aclrtMemPoolPtrExportData data{};
      if (aclrtMemPoolMallocAsync(&one, size, own, stream) != ACL_SUCCESS ||
          aclrtMemPoolExportPointer(one, &data) != ACL_SUCCESS ||
          aclrtMemPoolImportPointer(other, &data, &imported) != ACL_SUCCESS ||
          aclrtFree(imported) != ACL_SUCCESS) {
        ::_exit(3);
      }
    }
    for (void* one : memory) {
      if (aclrtMemPoolFreeAsync(one, stream) != ACL_SUCCESS) ::_exit(3);
    }
  };
  for (int i = 0; i < 100; ++i)
    round(1000);
  forbid_system_calls();
  for (int i = 0; i < 10'000; ++i)
    round(silent_size);
  ::_exit(EXIT_SUCCESS);
});

TEST_F(SharedPools, TheirPointersTalkNeitherToTheBrokerNorToTheKernel) {
  if (kSanitized) GTEST_SKIP() << "a sanitizer makes system calls of its own";
  const auto silent = [&](std::uint64_t size) {
    Helper helper = broker.helper("silent_pool");
    helper.tell(std::to_string(size));
    return helper.wait();
  };
  EXPECT_EQ(silent(1000), Ending::exited(EXIT_SUCCESS));
  EXPECT_EQ(silent(3 * kMiB), Ending::killed(SIGSYS)) << "a unit that is new needs both";
}

}  // namespace
}  // namespace hufu::test
