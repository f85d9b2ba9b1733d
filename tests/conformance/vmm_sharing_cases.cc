// Contract 1.8 and 5.3: physical memory that is shared by handle, with the other side in a process
// of its own.

#include <unistd.h>

#include "hufu/hufu.h"
#include "suite.h"
#include "vmm_bench.h"

namespace hufu::conformance {
namespace {

// NOLINTNEXTLINE(google-build-using-namespace): the two are one suite.
using namespace vmm;

constexpr std::uint64_t kWhitelist = ACL_RT_VMM_EXPORT_FLAG_DEFAULT;
constexpr std::uint64_t kAnyProcess = ACL_RT_VMM_EXPORT_FLAG_DISABLE_PID_VALIDATION;

using Ask = Peer::Ask;
using Answer = Peer::Answer;

// In the other process. Its handle, where it is mapped.
struct There {
  aclrtDrvMemHandle handle = nullptr;
  void* base = nullptr;
};
There& there() {
  static There state;
  return state;
}

Answer import_there(const Ask& ask) {
  std::uint64_t token = ask.address;
  const auto type = static_cast<aclrtMemSharedHandleType>(ask.number);
  Answer answer;
  if (ask.number == 0) {
    answer.code = aclrtMemImportFromShareableHandle(token, 0, &there().handle);
  } else if (type == ACL_MEM_SHARE_HANDLE_TYPE_DEFAULT) {
    answer.code = aclrtMemImportFromShareableHandleV2(&token, type, 0, &there().handle);
  } else {
    aclrtMemFabricHandle fabric{};
    std::memcpy(fabric.data, ask.bytes.data(), sizeof(fabric.data));
    answer.code = aclrtMemImportFromShareableHandleV2(&fabric, type, 0, &there().handle);
  }
  return answer;
}

Answer map_there(const Ask& /*ask*/) {
  Answer answer;
  answer.code = aclrtReserveMemAddress(&there().base, kHuge, 0, nullptr, 0);
  if (answer.code == ACL_SUCCESS) {
    answer.code = aclrtMapMem(there().base, kHuge, 0, there().handle, 0);
  }
  return answer;
}

Answer read_there(const Ask& ask) {
  return {.value = static_cast<const volatile std::uint8_t*>(there().base)[ask.address]};
}

Answer write_there(const Ask& ask) {
  static_cast<volatile std::uint8_t*>(there().base)[ask.address] =
      static_cast<std::uint8_t>(ask.number);
  return {};
}

Answer leave(const Ask& /*ask*/) {
  Answer answer;
  if (there().base != nullptr) {
    (void)aclrtUnmapMem(there().base);
    answer.code = aclrtReleaseMemAddress(there().base);
  }
  if (there().handle != nullptr && answer.code == ACL_SUCCESS) {
    answer.code = aclrtFreePhysical(there().handle);
  }
  there() = {};
  return answer;
}

Answer export_there(const Ask& /*ask*/) {
  const aclrtPhysicalMemProp wanted = props();
  Answer answer;
  answer.code = aclrtMallocPhysical(&there().handle, kHuge, &wanted, 0);
  if (answer.code != ACL_SUCCESS) return answer;
  answer.code = map_there({}).code;
  if (answer.code != ACL_SUCCESS) return answer;
  *static_cast<std::uint8_t*>(there().base) = 0x66;
  answer.code = aclrtMemExportToShareableHandle(there().handle, ACL_MEM_HANDLE_TYPE_NONE,
                                                kAnyProcess, &answer.value);
  return answer;
}

Answer set_pid_there(const Ask& ask) {
  auto pid = static_cast<std::int32_t>(ask.number);
  return {.code = aclrtMemSetPidToShareableHandle(ask.address, &pid, 1)};
}

Answer export_again_there(const Ask& /*ask*/) {
  Answer answer;
  answer.code = aclrtMemExportToShareableHandle(there().handle, ACL_MEM_HANDLE_TYPE_NONE,
                                                kAnyProcess, &answer.value);
  return answer;
}

Answer properties_there(const Ask& /*ask*/) {
  aclrtPhysicalMemProp found{};
  return {.code = aclrtMemGetAllocationPropertiesFromHandle(there().handle, &found)};
}

aclError in_peer(Bench& bench, Peer::Call call, const Ask& ask, std::size_t index = 0) {
  return bench.elsewhere(bench.peer(index).run(call, ask).code);
}

Ask token_ask(std::uint64_t token, int type = 0) {
  Ask ask;
  ask.address = token;
  ask.number = type;
  return ask;
}

// Whatever becomes of the case, the other process lets go.
void leave_at_end(Bench& bench, std::size_t index = 0) {
  Peer& peer = bench.peer(index);
  bench.finally([&peer] {
    if (!peer.dead()) (void)peer.run(leave, {});
  });
}

struct Token {
  aclrtDrvMemHandle handle;
  std::uint64_t value;
};

Token token(Bench& bench, std::uint64_t flags = kAnyProcess) {
  Token made{.handle = physical(bench), .value = 0};
  need(aclrtMemExportToShareableHandle(made.handle, ACL_MEM_HANDLE_TYPE_NONE, flags, &made.value),
       "aclrtMemExportToShareableHandle");
  return made;
}

void exports(Table& table) {
  Function(table, "1.8", "aclrtMemExportToShareableHandle", aclrtMemExportToShareableHandle,
           [](Bench& b) {
             return std::tuple(physical(b), ACL_MEM_HANDLE_TYPE_NONE, kAnyProcess,
                               b.out<std::uint64_t>());
           })
      .good("no whitelist")
      .with<2>("with whitelist", kWhitelist, ACL_SUCCESS)
      .with<0>("handle null", nullptr, 100000)
      .with<3>("shareableHandle null", nullptr, 100000)
      .with<1>("handleType POSIX", ACL_MEM_HANDLE_TYPE_POSIX, 100000)
      .with<2>("flags 2", 2, 107000)
      .when(
          "a handle exported before",
          [](Bench& b, auto& all) { std::get<0>(all) = token(b).handle; }, 507899);
  for (const auto type : {ACL_MEM_SHARE_HANDLE_TYPE_DEFAULT, ACL_MEM_SHARE_HANDLE_TYPE_FABRIC}) {
    const bool fabric = type == ACL_MEM_SHARE_HANDLE_TYPE_FABRIC;
    table.add("1.8", "aclrtMemExportToShareableHandleV2",
              fabric ? "FABRIC writes 128 bytes" : "DEFAULT writes 8 bytes", ACL_SUCCESS,
              [=](Bench& b) {
                void* const made =
                    b.out_bytes(fabric ? sizeof(aclrtMemFabricHandle) : sizeof(std::uint64_t));
                return aclrtMemExportToShareableHandleV2(physical(b), kAnyProcess, type, made);
              });
  }
  Function(table, "1.8", "aclrtMemExportToShareableHandleV2", aclrtMemExportToShareableHandleV2,
           [](Bench& b) {
             return std::tuple(physical(b), kAnyProcess, ACL_MEM_SHARE_HANDLE_TYPE_DEFAULT,
                               b.out_bytes(sizeof(std::uint64_t)));
           })
      .with<0>("handle null", nullptr, 100000)
      .with<3>("shareableHandle null", nullptr, 100000)
      .with<1>("flags 2", 2, 107000)
      .with<2>("shareType 0", from_c<aclrtMemSharedHandleType>(0), 107000)
      .with<2>("shareType 3", from_c<aclrtMemSharedHandleType>(3), 107000)
      .when(
          "a handle exported before",
          [](Bench& b, auto& all) { std::get<0>(all) = token(b).handle; }, 507899);
  table.add("1.8", "aclrtMemExportToShareableHandle", "an imported handle", 507899, [](Bench& b) {
    const Token made = token(b);
    need(b.peer().run(import_there, token_ask(made.value)).code, "import");
    leave_at_end(b);
    return in_peer(b, export_again_there, {});
  });
}

void lists(Table& table) {
  const auto zeros = [](Bench& b, auto& all) { std::get<1>(all) = b.array<std::int32_t>({0}); };
  Function(table, "1.8", "aclrtMemSetPidToShareableHandle", aclrtMemSetPidToShareableHandle,
           [](Bench& b) {
             return std::tuple(token(b, kWhitelist).value,
                               b.array<std::int32_t>({b.peer().pid(), 0}), std::size_t{1});
           })
      .good("a process that lives")
      .with<2>("a process and a zero", 2, ACL_SUCCESS)
      .with<1>("pid null", nullptr, 100000)
      .with<2>("pidNum 0", 0, 100000)
      .with<2>("pidNum 65536", 65536, 107000)
      .with<0>("a token that is none", 0x123456789abcdef0, 107017)
      .when("only zeros", zeros, 507899)
      .when(
          "exported with flag 1", [](Bench& b, auto& all) { std::get<0>(all) = token(b).value; },
          207006);
  Function(table, "1.8", "aclrtMemSetPidToShareableHandleV2", aclrtMemSetPidToShareableHandleV2,
           [](Bench& b) {
             return std::tuple(
                 static_cast<void*>(b.array<std::uint64_t>({token(b, kWhitelist).value})),
                 ACL_MEM_SHARE_HANDLE_TYPE_DEFAULT, b.array<std::int32_t>({b.peer().pid()}),
                 std::size_t{1});
           })
      .good("a process that lives")
      .with<0>("shareableHandle null", nullptr, 100000)
      .with<2>("pid null", nullptr, 100000)
      .with<3>("pidNum 0", 0, 100000)
      .with<1>("shareType 0", from_c<aclrtMemSharedHandleType>(0), 107000)
      .with<1>("shareType 3", from_c<aclrtMemSharedHandleType>(3), 107000);
  table.add("1.8", "aclrtMemSetPidToShareableHandle", "not the exporter", 507899, [](Bench& b) {
    Ask ask;
    ask.address = token(b, kWhitelist).value;
    ask.number = b.peer().pid();
    return in_peer(b, set_pid_there, ask);
  });
}

void imports(Table& table) {
  const char* const name = "aclrtMemImportFromShareableHandle";
  const auto foreign = [](Bench& b) {
    const Answer made = b.peer().run(export_there, {});
    leave_at_end(b);
    need(made.code, "sharing in the other process");
    return made.value;
  };
  Function(table, "1.8", name, aclrtMemImportFromShareableHandle,
           [foreign](Bench& b) { return std::tuple(foreign(b), 0, b.freed_by(aclrtFreePhysical)); })
      .good("a token without whitelist",
            [](Bench& b, auto& all) {
              void* const base = reserve(b);
              need(aclrtMapMem(base, kHuge, 0, *std::get<2>(all), 0), "aclrtMapMem");
              b.check_equal(*static_cast<std::uint8_t*>(base), 0x66, "first byte");
              need(aclrtUnmapMem(base), "aclrtUnmapMem");
            })
      .with<2>("handle null", nullptr, 100000)
      .with<1>("device 2", 2, 107001)
      .with<1>("device -1", -1, 107001)
      .with<0>("a token that is none", 0x123456789abcdef0, 107017)
      .without_context(107002);
  Function(table, "1.8", "aclrtMemImportFromShareableHandleV2", aclrtMemImportFromShareableHandleV2,
           [foreign](Bench& b) {
             return std::tuple(static_cast<void*>(b.array<std::uint64_t>({foreign(b)})),
                               ACL_MEM_SHARE_HANDLE_TYPE_DEFAULT, std::uint64_t{0},
                               b.freed_by(aclrtFreePhysical));
           })
      .good("a token without whitelist")
      .with<0>("shareableHandle null", nullptr, 100000)
      .with<3>("handle null", nullptr, 100000)
      .with<2>("flags 1", 1, 100000)
      .with<1>("shareType 0", from_c<aclrtMemSharedHandleType>(0), 107000)
      .with<1>("shareType 3", from_c<aclrtMemSharedHandleType>(3), 107000)
      .when(
          "a token that is none",
          [](Bench& b, auto& all) {
            std::get<0>(all) = b.array<std::uint64_t>({0x123456789abcdef0});
          },
          107017)
      .without_context(107002);
  table.add("1.8", "aclrtMemImportFromShareableHandleV2", "a fabric handle", ACL_SUCCESS,
            [](Bench& b) {
              Ask ask = token_ask(0, ACL_MEM_SHARE_HANDLE_TYPE_FABRIC);
              const aclrtDrvMemHandle handle = physical(b);
              need(aclrtMemExportToShareableHandleV2(
                       handle, kAnyProcess, ACL_MEM_SHARE_HANDLE_TYPE_FABRIC, ask.bytes.data()),
                   "aclrtMemExportToShareableHandleV2");
              leave_at_end(b);
              return in_peer(b, import_there, ask);
            });
  table.add_on_pages("1.8", name, "what either side writes, the other reads", ACL_SUCCESS,
                     [](Bench& b) {
                       const Mapped mine = mapped(b);
                       auto* const bytes = static_cast<volatile std::uint8_t*>(mine.base);
                       bytes[kHuge - 1] = 0x31;
                       std::uint64_t value = 0;
                       need(aclrtMemExportToShareableHandle(mine.handle, ACL_MEM_HANDLE_TYPE_NONE,
                                                            kAnyProcess, &value),
                            "export");
                       const aclError code = in_peer(b, import_there, token_ask(value));
                       leave_at_end(b);
                       if (code != ACL_SUCCESS) return code;
                       need(b.peer().run(map_there, {}).code, "mapping in the other process");
                       Ask last;
                       last.address = kHuge - 1;
                       b.check_equal(b.peer().run(read_there, last).value, 0x31U, "their byte");
                       last.number = 0x32;
                       (void)b.peer().run(write_there, last);
                       b.check_equal(int{bytes[kHuge - 1]}, 0x32, "my byte");
                       return code;
                     });
  table.add("1.8", name, "not whitelisted", 507899, [](Bench& b) {
    return in_peer(b, import_there, token_ask(token(b, kWhitelist).value));
  });
  table.add("1.8", name, "whitelisted", ACL_SUCCESS, [](Bench& b) {
    const Token made = token(b, kWhitelist);
    std::int32_t pid = b.peer().pid();
    need(aclrtMemSetPidToShareableHandle(made.value, &pid, 1), "SetPid");
    leave_at_end(b);
    return in_peer(b, import_there, token_ask(made.value));
  });
  table.add("1.8", name, "another process than the one that is whitelisted", 507899, [](Bench& b) {
    const Token made = token(b, kWhitelist);
    std::int32_t pid = b.peer(0).pid();
    need(aclrtMemSetPidToShareableHandle(made.value, &pid, 1), "SetPid");
    return in_peer(b, import_there, token_ask(made.value), 1);
  });
  table.add("5.3", name, "after the exporter freed its handle", 107017, [](Bench& b) {
    const Token made = token(b);
    need(aclrtFreePhysical(made.handle), "aclrtFreePhysical");
    return in_peer(b, import_there, token_ask(made.value));
  });
  table.add_on_pages("5.3", "aclrtFreePhysical", "importers keep the memory", ACL_SUCCESS,
                     [](Bench& b) {
                       const Mapped mine = mapped(b);
                       *static_cast<std::uint8_t*>(mine.base) = 0x2a;
                       std::uint64_t value = 0;
                       need(aclrtMemExportToShareableHandle(mine.handle, ACL_MEM_HANDLE_TYPE_NONE,
                                                            kAnyProcess, &value),
                            "export");
                       need(b.peer().run(import_there, token_ask(value)).code, "import");
                       leave_at_end(b);
                       need(b.peer().run(map_there, {}).code, "mapping in the other process");
                       need(aclrtUnmapMem(mine.base), "aclrtUnmapMem");
                       const aclError code = aclrtFreePhysical(mine.handle);
                       b.check_equal(b.peer().run(read_there, {}).value, 0x2aU, "their byte");
                       return code;
                     });
  table.add("5.3", "aclrtFreePhysical", "an imported handle after the exporter died", ACL_SUCCESS,
            [](Bench& b) {
              const Answer made = b.peer(1).run(export_there, {});
              need(made.code, "sharing in the other process");
              aclrtDrvMemHandle handle = nullptr;
              need(aclrtMemImportFromShareableHandle(made.value, 0, &handle), "import");
              void* const base = reserve(b);
              need(aclrtMapMem(base, kHuge, 0, handle, 0), "aclrtMapMem");
              b.peer(1).kill();
              b.check_equal(*static_cast<std::uint8_t*>(base), 0x66, "first byte");
              need(aclrtUnmapMem(base), "aclrtUnmapMem");
              return aclrtFreePhysical(handle);
            });
  table.add("1.8", "aclrtMemGetAllocationPropertiesFromHandle", "a handle that V1 imported", 207000,
            [](Bench& b) {
              need(b.peer().run(import_there, token_ask(token(b).value)).code, "import");
              leave_at_end(b);
              return in_peer(b, properties_there, {});
            });
}

void keys(Table& table) {
  table.add_on_pages("1.9", "aclrtIpcMemGetExportKey", "a mapping",
                     differs("VMM and pool memory by key: 507899", ACL_SUCCESS, 507899),
                     [](Bench& b) {
                       const Mapped made = mapped(b);
                       return aclrtIpcMemGetExportKey(
                           made.base, kHuge, static_cast<char*>(b.out_bytes(65)), 65, kAnyProcess);
                     });
  table.add("1.9", "aclrtIpcMemGetExportKey", "a reserved range",
            differs("GetExportKey of an address in no allocation: 507899",
                    ACL_ERROR_MEMORY_ADDRESS_UNREGISTERED, 507899),
            [](Bench& b) {
              return aclrtIpcMemGetExportKey(reserve(b), kHuge, static_cast<char*>(b.out_bytes(65)),
                                             65, kAnyProcess);
            });
}

}  // namespace

Table vmm_sharing_cases() {
  Table table("VMM, shared");
  exports(table);
  lists(table);
  imports(table);
  keys(table);
  return table;
}

}  // namespace hufu::conformance
