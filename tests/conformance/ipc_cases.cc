// Contract 1.9 and 5.2: keys, with the other side in a process of its own.

#include <unistd.h>

#include "hufu/hufu.h"
#include "suite.h"

namespace hufu::conformance {
namespace {

constexpr const char* kNoAllocation = "GetExportKey of an address in no allocation: 507899";
constexpr const char* kOwnKey = "importing one's own whitelist key: 507899 (V2), allowed (V3)";
constexpr const char* kFlags = "flags 0 and 1";
constexpr const char* kStartTime = "a whitelisted pid is compared by its start time";
constexpr const char* kPeerAccess = "ImportByKey flag 1 enables peer access between devices first";
constexpr const char* kRevoked =
    "the exporter closes, frees or dies: importers' mappings are revoked (V2), the order is "
    "forbidden by the documents";
constexpr std::uint64_t kWhitelist = ACL_RT_IPC_MEM_EXPORT_FLAG_DEFAULT;
constexpr std::uint64_t kAnyProcess = ACL_RT_IPC_MEM_EXPORT_FLAG_DISABLE_PID_VALIDATION;

using Ask = Peer::Ask;
using Answer = Peer::Answer;

void* plus(void* address, std::size_t bytes) { return static_cast<std::byte*>(address) + bytes; }

Ask about(const char* key) {
  Ask ask;
  std::strncpy(ask.key.data(), key, ask.key.size() - 1);
  return ask;
}

Ask at(std::uint64_t address) { return {.address = address}; }

void* address_in(const Ask& ask) { return reinterpret_cast<void*>(ask.address); }

// In the other process.

constexpr aclError kOutputWritten = -1;  // Although the call failed.

Answer import(const Ask& ask) {
  void* address = nullptr;
  Answer answer;
  answer.code = aclrtIpcMemImportByKey(&address, ask.key.data(), ask.number);
  answer.value = reinterpret_cast<std::uint64_t>(address);
  if (answer.code != ACL_SUCCESS && address != nullptr) answer.code = kOutputWritten;
  return answer;
}

Answer close(const Ask& ask) { return {.code = aclrtIpcMemClose(ask.key.data())}; }

Answer read_byte(const Ask& ask) {
  return {.value = *static_cast<const volatile std::uint8_t*>(address_in(ask))};
}

Answer write_byte(const Ask& ask) {
  *static_cast<volatile std::uint8_t*>(address_in(ask)) = static_cast<std::uint8_t>(ask.number);
  return {};
}

Answer set_import_pid(const Ask& ask) {
  auto pid = static_cast<std::int32_t>(ask.number);
  return {.code = aclrtIpcMemSetImportPid(ask.key.data(), &pid, 1)};
}

// What the exporter of an import in another process asks for, and closes at the end.
std::uint64_t imported_there(Bench& bench, const char* key) {
  Peer& peer = bench.peer();
  const Answer answer = peer.run(import, about(key));
  need(answer.code, "aclrtIpcMemImportByKey in the other process");
  bench.finally([&peer, ask = about(key)] {
    if (!peer.dead()) (void)peer.run(close, ask);
  });
  return answer.value;
}

// The other process as exporter: of a block whose first byte is 0x77.
struct Foreign {
  std::array<char, 65> key{};
  std::uint64_t address = 0;
};
Answer share_there(const Ask& ask) {
  void* address = nullptr;
  Answer answer;
  answer.code = aclrtMalloc(&address, ask.size, static_cast<aclrtMemMallocPolicy>(ask.number));
  if (answer.code != ACL_SUCCESS) return answer;
  *static_cast<std::uint8_t*>(address) = 0x77;
  answer.value = reinterpret_cast<std::uint64_t>(address);
  answer.code = aclrtIpcMemGetExportKey(address, ask.size, answer.bytes.data(), 65, kAnyProcess);
  return answer;
}
Answer free_there(const Ask& ask) { return {.code = aclrtFree(address_in(ask))}; }

Foreign shared_by_peer(Bench& bench, std::size_t index = 0) {
  Peer& peer = bench.peer(index);
  Ask ask;
  ask.size = bench.page();
  ask.number = bench.policy();
  const Answer answer = peer.run(share_there, ask);
  need(answer.code, "sharing in the other process");
  bench.finally([&peer, address = answer.value] {
    if (!peer.dead()) (void)peer.run(free_there, at(address));
  });
  Foreign foreign{.address = answer.value};
  std::copy_n(answer.bytes.begin(), foreign.key.size(), foreign.key.begin());
  return foreign;
}

// A case whose judged call is made in the other process.
aclError there(Bench& bench, Peer::Call call, const Ask& ask, std::size_t index = 0) {
  return bench.elsewhere(bench.peer(index).run(call, ask).code);
}

void get_export_key(Table& table) {
  const auto written = [](Bench& b, auto& all) {
    const char* key = std::get<2>(all);
    const std::size_t length = ::strnlen(key, 65);
    b.check_equal(length, std::size_t{64}, "length of the key");
    for (std::size_t i = 0; i < length; ++i)
      b.check(key[i] > ' ' && key[i] <= '~', "the key is printable");
  };
  const auto make = [](Bench& b) {
    auto* const key = static_cast<char*>(b.out_bytes(65));
    b.finally([&b, key] {
      if (b.written(key)) (void)aclrtIpcMemClose(key);  // Else it ended with its block.
    });
    return std::tuple(b.block(), b.page(), key, std::size_t{65}, kAnyProcess);
  };
  Function(table, "1.9", "aclrtIpcMemGetExportKey", aclrtIpcMemGetExportKey, make)
      .good("a block, no whitelist", written)
      .when(
          "a block, with whitelist", [](Bench&, auto& all) { std::get<4>(all) = kWhitelist; },
          ACL_SUCCESS, written)
      .with<0>("devPtr null", nullptr, 100000)
      .with<2>("key null", nullptr, 100000)
      .with<1>("size 0", 0, 107000)
      .with<3>("len 0", 0, 107000)
      .with<3>("len 64", 64, 107000)
      .with<3>("len 256, of which 65 are written", 256, ACL_SUCCESS)
      .with<4>("flags 2", 2, 107000)
      .with<4>("flags 0x80000000", 0x80000000, 107000)
      .with<4>("flags 0x100", 0x100, differs(kFlags, ACL_SUCCESS, ACL_SUCCESS))
      .with<1>("1 byte of a block", 1, ACL_SUCCESS)
      .when(
          "the size that GetAddressRange reports",
          [](Bench&, auto& all) {
            need(aclrtMemGetAddressRange(std::get<0>(all), nullptr, &std::get<1>(all)),
                 "aclrtMemGetAddressRange");
          },
          ACL_SUCCESS)
      .when(
          "more than the block has",
          [](Bench&, auto& all) { std::get<1>(all) += std::get<1>(all) + 64; }, 507899)
      .with<1>("a size that wraps", SIZE_MAX, 507899)
      .when(
          "ordinary memory", [](Bench& b, auto& all) { std::get<0>(all) = b.ordinary(); },
          differs(kNoAllocation, ACL_ERROR_MEMORY_ADDRESS_UNREGISTERED, 507899))
      .when(
          "memory of MallocHost", [](Bench& b, auto& all) { std::get<0>(all) = b.host(); }, 507899)
      .when(
          "a block freed before",
          [](Bench&, auto& all) { need(aclrtFree(std::get<0>(all)), "aclrtFree"); },
          differs(kNoAllocation, ACL_ERROR_MEMORY_ADDRESS_UNREGISTERED, 507899))
      .when(
          "a piece that shares its page",
          [](Bench& b, auto& all) {
            std::get<0>(all) = b.block(1024, ACL_MEM_MALLOC_NORMAL_ONLY);
            std::get<1>(all) = 1024;
          },
          507899)
      .when(
          "64 bytes inside a block",
          [](Bench&, auto& all) {
            std::get<0>(all) = plus(std::get<0>(all), 64);
            std::get<1>(all) = 64;
          },
          507899)
      .when(
          "4096 bytes inside a 2-MiB page",
          [](Bench& b, auto& all) {
            std::get<0>(all) = plus(b.block(kHuge, ACL_MEM_MALLOC_HUGE_ONLY), kPage);
            std::get<1>(all) = kPage;
          },
          507899)
      .when(
          "the second page of a block",
          [](Bench& b, auto& all) {
            std::get<0>(all) = plus(b.block(2 * kPage, ACL_MEM_MALLOC_NORMAL_ONLY), kPage);
            std::get<1>(all) = kPage;
          },
          ACL_SUCCESS)
      .when(
          "an import",
          [](Bench& b, auto& all) {
            const Foreign foreign = shared_by_peer(b);
            need(aclrtIpcMemImportByKey(&std::get<0>(all), foreign.key.data(), 0), "import");
            b.finally([key = foreign.key] { (void)aclrtIpcMemClose(key.data()); });
          },
          507899)
      .without_context(107002)
      .without_context(100000, "devPtr null, no context",
                       [](Bench&, auto& all) { std::get<0>(all) = nullptr; });
  table.add_on_pages("5.2", "aclrtIpcMemGetExportKey", "the same block again has a key of its own",
                     ACL_SUCCESS, [](Bench& b) {
                       const auto first = b.share();
                       auto* const key = static_cast<char*>(b.out_bytes(65));
                       const aclError code =
                           aclrtIpcMemGetExportKey(first.address, b.page(), key, 65, kAnyProcess);
                       b.check(std::strncmp(first.key, key, 65) != 0, "the keys differ");
                       b.check_code(aclrtIpcMemClose(key), ACL_SUCCESS, "aclrtIpcMemClose");
                       b.check_code(there(b, import, about(first.key)), ACL_SUCCESS,
                                    "import of the first key after the second was closed");
                       (void)b.peer().run(close, about(first.key));
                       return code;
                     });
}

void set_import_pid(Table& table) {
  const char* const name = "aclrtIpcMemSetImportPid";
  const auto pids = [](Bench& b, std::size_t count) {
    auto* const made = reinterpret_cast<std::int32_t*>(b.ordinary(count * sizeof(std::int32_t)));
    std::fill_n(made, count, b.peer().pid());
    return made;
  };
  const auto many = [pids](std::size_t count) {
    return [pids, count](Bench& b, auto& all) {
      std::get<1>(all) = pids(b, count);
      std::get<2>(all) = count;
    };
  };
  const auto one = [](auto pid) {
    return [pid](Bench& b, auto& all) { std::get<1>(all)[0] = pid(b); };
  };
  Function(
      table, "1.9", name, aclrtIpcMemSetImportPid,
      [pids](Bench& b) { return std::tuple(b.share(kWhitelist).key, pids(b, 1), std::size_t{1}); })
      .good("a process that lives")
      .when("the same process twice", many(2), ACL_SUCCESS)
      .when("31 in one call", many(31), ACL_SUCCESS)
      .when("32 in one call", many(32), 107000)
      .when("its own process", one([](Bench&) { return ::getpid(); }), ACL_SUCCESS)
      .when(
          "a process and a zero",
          [pids](Bench& b, auto& all) {
            std::get<1>(all) = pids(b, 2);
            std::get<1>(all)[0] = 0;
            std::get<2>(all) = 2;
          },
          ACL_SUCCESS)
      .when("a process that does not exist", one([](Bench&) { return 0x3fffff; }),
            differs(kStartTime, 507899, 507899))
      .with<0>("key null", nullptr, 100000)
      .with<1>("pid null", nullptr, 100000)
      .with<2>("num 0", 0, 107000)
      .with<2>("num negative as an int32", 0x80000000, 107000)
      .when(
          "a made-up key", [](Bench& b, auto& all) { std::get<0>(all) = b.made_up_key(); }, 507899)
      .when(
          "key exported with flag 1", [](Bench& b, auto& all) { std::get<0>(all) = b.key(); },
          207006)
      .when(
          "a key that was withdrawn",
          [](Bench&, auto& all) { need(aclrtIpcMemClose(std::get<0>(all)), "aclrtIpcMemClose"); },
          507899)
      .without_context(107002);
  table.add("1.9", name, "not the exporter", 507899, [](Bench& b) {
    Ask ask = about(b.share(kWhitelist).key);
    ask.number = b.peer().pid();
    return there(b, set_import_pid, ask);
  });
  table.add("1.9", name, "lists accumulate over calls", ACL_SUCCESS, [](Bench& b) {
    const auto shared = b.share(kWhitelist);
    std::int32_t first = b.peer(0).pid();
    std::int32_t second = b.peer(1).pid();
    need(aclrtIpcMemSetImportPid(shared.key, &first, 1), "aclrtIpcMemSetImportPid");
    const aclError code = aclrtIpcMemSetImportPid(shared.key, &second, 1);
    for (const std::size_t index : {0, 1}) {
      b.check_code(b.peer(index).run(import, about(shared.key)).code, ACL_SUCCESS, "import");
      (void)b.peer(index).run(close, about(shared.key));
    }
    return code;
  });
}

void import_pid_inter_server(Table& table) {
  Function(table, "1.9", "aclrtIpcMemImportPidInterServer", aclrtIpcMemImportPidInterServer,
           [](Bench& b) {
             return std::tuple(
                 b.share(kWhitelist).key,
                 b.array<aclrtServerPid>(
                     {{.sdid = 0, .pid = b.array<std::int32_t>({b.peer().pid()}), .num = 1}}),
                 std::size_t{1});
           })
      .when("no super-pod, as this run's chip has none", {}, 207000)
      .with<0>("key null", nullptr, 107000)
      .with<1>("serverPids null", nullptr, 107000)
      .with<2>("num 0", 0, 107000);
}

void import_by_key(Table& table) {
  const char* const name = "aclrtIpcMemImportByKey";
  Function(table, "1.9", name, aclrtIpcMemImportByKey,
           [](Bench& b) {
             const Foreign foreign = shared_by_peer(b);
             auto* const key = reinterpret_cast<char*>(b.ordinary(foreign.key.size()));
             std::copy(foreign.key.begin(), foreign.key.end(), key);
             void** const made = b.out<void*>();
             b.finally([&b, made, key] {
               if (b.written(made)) {
                 b.check_code(aclrtIpcMemClose(key), ACL_SUCCESS, "aclrtIpcMemClose");
               }
             });
             return std::tuple(made, static_cast<const char*>(key), std::uint64_t{0});
           })
      .good("a key without whitelist",
            [](Bench& b, auto& all) {
              b.check_equal(*static_cast<std::uint8_t*>(*std::get<0>(all)), 0x77, "first byte");
            })
      .with<2>("flags 1", 1, ACL_SUCCESS)
      .with<2>("flags 2", 2, 107000)
      .with<0>("devPtr null", nullptr, 100000)
      .with<1>("key null", nullptr, 100000)
      .with<1>("an empty key", "", 507899)
      .with<1>("a key that is too short", "0123456789", 507899)
      .when(
          "a made-up key", [](Bench& b, auto& all) { std::get<1>(all) = b.made_up_key(); }, 507899)
      .when(
          "a key with one character changed",
          [](Bench&, auto& all) {
            auto* const key = const_cast<char*>(std::get<1>(all));
            key[20] = key[20] == 'A' ? 'B' : 'A';
          },
          507899)
      .without_context(107002)
      .without_context(100000, "key null, no context",
                       [](Bench&, auto& all) { std::get<1>(all) = nullptr; });

  table.add_on_pages("1.9", name, "what either side writes, the other reads", ACL_SUCCESS,
                     [](Bench& b) {
                       const auto shared = b.share();
                       auto* const mine = static_cast<volatile std::uint8_t*>(shared.address);
                       mine[b.page() - 1] = 0x31;
                       const std::uint64_t theirs = imported_there(b, shared.key);
                       Ask last = at(theirs + b.page() - 1);
                       b.check_equal(b.peer().run(read_byte, last).value, 0x31U, "their last byte");
                       last.number = 0x32;
                       (void)b.peer().run(write_byte, last);
                       b.check_equal(int{mine[b.page() - 1]}, 0x32, "my last byte");
                       return ACL_SUCCESS;
                     });
  table.add_on_pages("5.2", name, "a second import of a key has the same address", ACL_SUCCESS,
                     [](Bench& b) {
                       const auto shared = b.share();
                       const std::uint64_t first = imported_there(b, shared.key);
                       b.check_equal(imported_there(b, shared.key), first, "address");
                       return ACL_SUCCESS;
                     });
  table.add("5.2", name, "a range inside a block starts where it was exported", ACL_SUCCESS,
            [](Bench& b) {
              auto* const block =
                  static_cast<std::uint8_t*>(b.block(3 * kPage, ACL_MEM_MALLOC_NORMAL_ONLY));
              block[kPage] = 0x44;
              char key[65] = {};
              need(aclrtIpcMemGetExportKey(block + kPage, kPage, key, 65, kAnyProcess), "export");
              const std::uint64_t theirs = imported_there(b, key);
              b.check_equal(b.peer().run(read_byte, at(theirs)).value, 0x44U, "first byte");
              return ACL_SUCCESS;
            });

  // Who may.
  table.add("1.9", name, "not whitelisted", 507899,
            [](Bench& b) { return there(b, import, about(b.share(kWhitelist).key)); });
  table.add("1.9", name, "whitelisted", ACL_SUCCESS, [](Bench& b) {
    const auto shared = b.share(kWhitelist);
    std::int32_t pid = b.peer().pid();
    need(aclrtIpcMemSetImportPid(shared.key, &pid, 1), "aclrtIpcMemSetImportPid");
    const aclError code = there(b, import, about(shared.key));
    (void)b.peer().run(close, about(shared.key));
    return code;
  });
  table.add("1.9", name, "another process than the one that is whitelisted", 507899, [](Bench& b) {
    const auto shared = b.share(kWhitelist);
    std::int32_t pid = b.peer(0).pid();
    need(aclrtIpcMemSetImportPid(shared.key, &pid, 1), "aclrtIpcMemSetImportPid");
    return there(b, import, about(shared.key), 1);
  });
  table.add("5.1", name, "a new process in place of the whitelisted one", 507899, [](Bench& b) {
    const auto shared = b.share(kWhitelist);
    std::int32_t pid = b.peer().pid();
    need(aclrtIpcMemSetImportPid(shared.key, &pid, 1), "aclrtIpcMemSetImportPid");
    b.peer().kill();
    return there(b, import, about(shared.key));
  });
  for (const bool listed : {false, true}) {
    table.add(
        "1.9", name,
        listed ? "the exporter's own whitelist key, listed" : "the exporter's own whitelist key",
        differs(kOwnKey, ACL_SUCCESS, 507899), [listed](Bench& b) {
          const auto shared = b.share(kWhitelist);
          std::int32_t pid = ::getpid();
          if (listed) {
            need(aclrtIpcMemSetImportPid(shared.key, &pid, 1), "aclrtIpcMemSetImportPid");
          }
          void** const made = b.out<void*>();
          const aclError code = aclrtIpcMemImportByKey(made, shared.key, 0);
          if (code == ACL_SUCCESS) need(aclrtIpcMemClose(shared.key), "aclrtIpcMemClose");
          return code;
        });
  }
  table.add("1.9", name, "the exporter's own key without whitelist", ACL_SUCCESS, [](Bench& b) {
    const auto shared = b.share();
    *static_cast<std::uint8_t*>(shared.address) = 0x12;
    void** const made = b.out<void*>();
    const aclError code = aclrtIpcMemImportByKey(made, shared.key, 0);
    if (code == ACL_SUCCESS) {
      b.check_equal(*static_cast<std::uint8_t*>(*made), 0x12, "first byte");
      need(aclrtIpcMemClose(shared.key), "aclrtIpcMemClose");
    }
    return code;
  });
  table.add("1.9", name, "another device, peer access not enabled",
            differs(kPeerAccess, ACL_SUCCESS, ACL_SUCCESS), [](Bench& b) {
              const Foreign foreign = shared_by_peer(b);
              void** const made = b.out<void*>();
              need(aclrtSetDevice(1), "aclrtSetDevice(1)");
              const aclError code = aclrtIpcMemImportByKey(made, foreign.key.data(), 0);
              if (code == ACL_SUCCESS) (void)aclrtIpcMemClose(foreign.key.data());
              need(aclrtSetDevice(0), "aclrtSetDevice(0)");
              return code;
            });

  // When.
  table.add("5.2", name, "after the exporter closed", 507899, [](Bench& b) {
    const auto shared = b.share();
    need(aclrtIpcMemClose(shared.key), "aclrtIpcMemClose");
    return there(b, import, about(shared.key));
  });
  table.add("5.2", name, "after the exporter freed", 507899, [](Bench& b) {
    const auto shared = b.share();
    need(aclrtFree(shared.address), "aclrtFree");
    return there(b, import, about(shared.key));
  });
  table.add("5.2", name, "after the exporter died", 507899, [](Bench& b) {
    const Foreign foreign = shared_by_peer(b, 1);
    b.peer(1).kill();
    return aclrtIpcMemImportByKey(b.out<void*>(), foreign.key.data(), 0);
  });
  table.add("5.2", name, "again after the exporter closed, while the first is open", 507899,
            [](Bench& b) {
              const auto shared = b.share();
              (void)imported_there(b, shared.key);
              need(aclrtIpcMemClose(shared.key), "aclrtIpcMemClose");
              return there(b, import, about(shared.key));
            });

  // And what of those that are open then.
  struct End {
    const char* name;
    void (*end)(const Bench::Shared& shared);
  };
  for (const End& end :
       {End{"an open import is whole after the exporter closed",
            [](const Bench::Shared& shared) { need(aclrtIpcMemClose(shared.key), "close"); }},
        End{"an open import is whole after the exporter freed",
            [](const Bench::Shared& shared) { need(aclrtFree(shared.address), "aclrtFree"); }}}) {
    table.add_on_pages("5.2", name, end.name, differs(kRevoked, ACL_SUCCESS, ACL_SUCCESS),
                       [end](Bench& b) {
                         const auto shared = b.share();
                         *static_cast<std::uint8_t*>(shared.address) = 0x21;
                         const std::uint64_t theirs = imported_there(b, shared.key);
                         end.end(shared);
                         b.check_equal(b.peer().run(read_byte, at(theirs)).value, 0x21U, "byte");
                         return there(b, close, about(shared.key));
                       });
  }
  table.add_on_pages("5.2", name, "an open import is whole after the exporter died",
                     differs(kRevoked, ACL_SUCCESS, ACL_SUCCESS), [](Bench& b) {
                       const Foreign foreign = shared_by_peer(b, 1);
                       void** const made = b.out<void*>();
                       const aclError code = aclrtIpcMemImportByKey(made, foreign.key.data(), 0);
                       if (code != ACL_SUCCESS) return code;
                       b.peer(1).kill();
                       b.check_equal(*static_cast<std::uint8_t*>(*made), 0x77, "first byte");
                       b.check_code(aclrtIpcMemClose(foreign.key.data()), ACL_SUCCESS, "close");
                       return code;
                     });

  // What an import is to the other calls.
  struct Imported {
    void* address;
    Foreign foreign;
  };
  const auto imported = [](Bench& b) {
    Imported made{.address = nullptr, .foreign = shared_by_peer(b)};
    need(aclrtIpcMemImportByKey(&made.address, made.foreign.key.data(), 0), "import");
    b.finally([key = made.foreign.key] { (void)aclrtIpcMemClose(key.data()); });
    return made;
  };
  table.add_on_pages("1.4", "aclrtPointerGetAttributes", "an import", ACL_SUCCESS,
                     [imported](Bench& b) {
                       const Imported made = imported(b);
                       auto* const found = b.out<aclrtPtrAttributes>();
                       const aclError code = aclrtPointerGetAttributes(made.address, found);
                       b.check_equal(static_cast<int>(found->location.type),
                                     static_cast<int>(ACL_MEM_LOCATION_TYPE_DEVICE), "type");
                       b.check_equal(found->pageSize, b.page(), "page size");
                       return code;
                     });
  table.add("1.4", "aclrtMemGetAddressRange", "an import", ACL_SUCCESS, [imported](Bench& b) {
    const Imported made = imported(b);
    void** const base = b.out<void*>();
    auto* const size = b.out<std::size_t>();
    const aclError code = aclrtMemGetAddressRange(plus(made.address, 100), base, size);
    b.check(*base == made.address, "base");
    b.check(*size >= b.page(), "size");
    return code;
  });
  table.add("1.4", "aclrtFree", "an open import", 107000,
            [imported](Bench& b) { return aclrtFree(imported(b).address); });
  table.add("1.4", "aclrtFree", "a closed import", 107000, [imported](Bench& b) {
    const Imported made = imported(b);
    need(aclrtIpcMemClose(made.foreign.key.data()), "aclrtIpcMemClose");
    return aclrtFree(made.address);
  });
  table.add("1.7", "aclrtMemcpy", "an import to host memory", ACL_SUCCESS, [imported](Bench& b) {
    const Imported made = imported(b);
    void* const host = b.host();
    const aclError code = aclrtMemcpy(host, 16, made.address, 16, ACL_MEMCPY_DEVICE_TO_HOST);
    b.check_equal(*static_cast<std::uint8_t*>(host), 0x77, "first byte");
    return code;
  });
  table.add("5.2", "aclrtIpcMemClose", "a read of the import that was queued before it",
            ACL_SUCCESS, [imported](Bench& b) {
              const Imported made = imported(b);
              void* const host = b.host();
              const aclrtStream stream = b.stream();
              need(aclrtMemcpyAsync(host, 16, made.address, 16, ACL_MEMCPY_DEVICE_TO_HOST, stream),
                   "aclrtMemcpyAsync");
              const aclError code = aclrtIpcMemClose(made.foreign.key.data());
              need(aclrtSynchronizeStream(stream), "aclrtSynchronizeStream");
              b.check_equal(*static_cast<std::uint8_t*>(host), 0x77, "first byte");
              return code;
            });
}

void set_attr(Table& table) {
  Function function(table, "1.9", "aclrtIpcMemSetAttr", aclrtIpcMemSetAttr, [](Bench& b) {
    const Foreign foreign = shared_by_peer(b);
    auto* const key = reinterpret_cast<char*>(b.ordinary(foreign.key.size()));
    std::copy(foreign.key.begin(), foreign.key.end(), key);
    return std::tuple(static_cast<const char*>(key), ACL_RT_IPC_MEM_ATTR_ACCESS_LINK,
                      std::uint64_t{0});
  });
  for (std::uint64_t link = 0; link < 4; ++link)
    function.with<2>(fmt::format("link {}", link).c_str(), link, ACL_SUCCESS);
  function.with<0>("key null", nullptr, 107000)
      .with<1>("type 1", from_c<aclrtIpcMemAttrType>(1), 107000)
      .with<1>("type -1", from_c<aclrtIpcMemAttrType>(-1), 107000)
      .with<2>("link 4", 4, 107000);
  table.add("5.2", "aclrtIpcMemClose", "after SetAttr alone", ACL_SUCCESS, [](Bench& b) {
    const Foreign foreign = shared_by_peer(b);
    need(aclrtIpcMemSetAttr(foreign.key.data(), ACL_RT_IPC_MEM_ATTR_ACCESS_LINK, 0), "SetAttr");
    return aclrtIpcMemClose(foreign.key.data());
  });
  table.add("5.2", "aclrtIpcMemClose", "twice after SetAttr alone", 507899, [](Bench& b) {
    const Foreign foreign = shared_by_peer(b);
    need(aclrtIpcMemSetAttr(foreign.key.data(), ACL_RT_IPC_MEM_ATTR_ACCESS_LINK, 0), "SetAttr");
    need(aclrtIpcMemClose(foreign.key.data()), "aclrtIpcMemClose");
    return aclrtIpcMemClose(foreign.key.data());
  });
}

void close(Table& table) {
  const char* const name = "aclrtIpcMemClose";
  Function(table, "1.9", name, aclrtIpcMemClose, [](Bench& b) { return std::tuple(b.key()); })
      .good("by the exporter")
      .with<0>("key null", nullptr, 100000)
      .when(
          "a made-up key", [](Bench& b, auto& all) { std::get<0>(all) = b.made_up_key(); }, 507899)
      .when(
          "by the exporter, again",
          [](Bench&, auto& all) { need(aclrtIpcMemClose(std::get<0>(all)), "aclrtIpcMemClose"); },
          507899)
      .without_context(107002);
  table.add_on_pages("1.9", name, "by an importer", ACL_SUCCESS, [](Bench& b) {
    const auto shared = b.share();
    need(b.peer().run(import, about(shared.key)).code, "import");
    return there(b, close, about(shared.key));
  });
  table.add("1.9", name, "by an importer that has no import left", 507899, [](Bench& b) {
    const auto shared = b.share();
    need(b.peer().run(import, about(shared.key)).code, "import");
    need(b.peer().run(close, about(shared.key)).code, "close");
    return there(b, close, about(shared.key));
  });
  table.add("5.2", name, "by an importer, once for each import", ACL_SUCCESS, [](Bench& b) {
    const auto shared = b.share();
    need(b.peer().run(import, about(shared.key)).code, "import");
    const std::uint64_t theirs = b.peer().run(import, about(shared.key)).value;
    need(b.peer().run(close, about(shared.key)).code, "close");
    b.check_code(b.peer().run(read_byte, at(theirs)).code, ACL_SUCCESS, "reading");
    return there(b, close, about(shared.key));
  });
  table.add("1.9", name, "by a process that never imported it", 507899,
            [](Bench& b) { return there(b, close, about(b.key())); });
  table.add("1.9", name, "an importer's close leaves the key", ACL_SUCCESS, [](Bench& b) {
    const auto shared = b.share();
    need(b.peer().run(import, about(shared.key)).code, "import");
    need(b.peer().run(close, about(shared.key)).code, "close");
    const aclError code = there(b, import, about(shared.key), 1);
    (void)b.peer(1).run(close, about(shared.key));
    return code;
  });
}

}  // namespace

Table ipc_cases() {
  Table table("IPC keys");
  get_export_key(table);
  set_import_pid(table);
  import_pid_inter_server(table);
  import_by_key(table);
  set_attr(table);
  close(table);
  return table;
}

}  // namespace hufu::conformance
