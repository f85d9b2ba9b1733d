// Contract 1.4, 4.1 and 4.2, and what 1.2 says of memory.

#include "hufu/hufu.h"
#include "suite.h"

namespace hufu::conformance {
namespace {

constexpr const char* kNeverAllocated = "aclrtFree of an address never allocated: 107000";
constexpr const char* kNeverAllocatedElsewhere =
    "the same in MemGetAddressRange and on the device side of copies and sets";
constexpr aclError kUnregistered = ACL_ERROR_MEMORY_ADDRESS_UNREGISTERED;

std::size_t free_bytes() {
  std::size_t free = 0;
  std::size_t total = 0;
  need(aclrtGetMemInfo(ACL_HBM_MEM, &free, &total), "aclrtGetMemInfo");
  return free;
}

std::size_t total_bytes() {
  std::size_t free = 0;
  std::size_t total = 0;
  need(aclrtGetMemInfo(ACL_HBM_MEM, &free, &total), "aclrtGetMemInfo");
  return total;
}

std::size_t reported(void* address) {
  std::size_t size = 0;
  need(aclrtMemGetAddressRange(address, nullptr, &size), "aclrtMemGetAddressRange");
  return size;
}

aclrtPtrAttributes attributes_of(const void* address) {
  aclrtPtrAttributes found{};
  need(aclrtPointerGetAttributes(address, &found), "aclrtPointerGetAttributes");
  return found;
}

bool aligned(const void* address, std::size_t to) {
  return reinterpret_cast<std::uintptr_t>(address) % to == 0;
}

void* plus(void* address, std::size_t bytes) { return static_cast<std::byte*>(address) + bytes; }

using Malloc = aclError (*)(void**, std::size_t, aclrtMemMallocPolicy);

void mallocs(Table& table, const char* name, Malloc call) {
  Function(table, "1.4", name, call,
           [](Bench& b) { return std::tuple(b.freed_by(aclrtFree), kPage, b.policy()); })
      .good("4096 bytes",
            [](Bench& b, auto& all) {
              auto* bytes = static_cast<std::byte*>(*std::get<0>(all));
              b.check(aligned(bytes, 64), "the address is 64-byte aligned");
              bytes[0] = std::byte{1};
              bytes[kPage - 1 + 32] = std::byte{1};  // A kernel reads and writes so far.
            })
      .with<1>("1 byte", 1, ACL_SUCCESS)
      .with<2>("a policy that is no enumerator", from_c<aclrtMemMallocPolicy>(77), ACL_SUCCESS)
      .with<2>("HUGE_FIRST", ACL_MEM_MALLOC_HUGE_FIRST, ACL_SUCCESS)
      .with<2>("NORMAL_ONLY", ACL_MEM_MALLOC_NORMAL_ONLY, ACL_SUCCESS)
      .with<0>("devPtr null", nullptr, 100000)
      .with<1>("size 0", 0, 100000)
      .with<1>("size whose padding overflows", SIZE_MAX, 100000)
      .when(
          "more than the device has",
          [](Bench&, auto& all) { std::get<1>(all) = total_bytes() + kHuge; }, 207001)
      .without_context(107002)
      .without_context(100000, "size 0, no context",
                       [](Bench&, auto& all) { std::get<1>(all) = 0; });
}

// For MallocWithCfg and MallocForTaskScheduler.
using MallocWithCfg = aclError (*)(void**, std::size_t, aclrtMemMallocPolicy, aclrtMallocConfig*);

void mallocs_with_cfg(Table& table, const char* name, MallocWithCfg call) {
  struct Config {
    aclrtMallocAttribute attribute;
    aclrtMallocConfig config;
  };
  // The good argument: one attribute, the module's id.
  const auto with_attribute = [](auto set) {
    return [set](Bench&, auto& all) { set(std::get<3>(all)->attrs[0]); };
  };
  const auto with_config = [](auto set) {
    return [set](Bench&, auto& all) { set(*std::get<3>(all)); };
  };
  Function(table, "1.4", name, call,
           [](Bench& b) {
             auto* made = reinterpret_cast<Config*>(b.ordinary(sizeof(Config)));
             made->attribute.attr = ACL_RT_MEM_ATTR_MODULE_ID;
             made->attribute.value.moduleId = 1;
             made->config = {.attrs = &made->attribute, .numAttrs = 1};
             return std::tuple(b.freed_by(aclrtFree), kPage, b.policy(), &made->config);
           })
      .good("a module's id")
      .with<3>("cfg null", nullptr, ACL_SUCCESS)
      .when("this device's id", with_attribute([](aclrtMallocAttribute& attribute) {
              attribute.attr = ACL_RT_MEM_ATTR_DEVICE_ID;
              attribute.value.deviceId = 0;
            }),
            ACL_SUCCESS)
      .when("another device's id", with_attribute([](aclrtMallocAttribute& attribute) {
              attribute.attr = ACL_RT_MEM_ATTR_DEVICE_ID;
              attribute.value.deviceId = 1;
            }),
            107000)
      .when("attribute 0",
            with_attribute([](auto& attribute) { attribute.attr = ACL_RT_MEM_ATTR_RSV; }), 107000)
      .when("attribute VA_FLAG",
            with_attribute([](auto& attribute) { attribute.attr = ACL_RT_MEM_ATTR_VA_FLAG; }),
            107000)
      .when("attribute 99", with_attribute([](auto& attribute) {
              attribute.attr = from_c<aclrtMallocAttrType>(99);
            }),
            107000)
      .when("numAttrs 1 and attrs null", with_config([](auto& config) { config.attrs = nullptr; }),
            100000)
      .when("numAttrs 0 and attrs null",
            with_config([](auto& config) { config = {.attrs = nullptr, .numAttrs = 0}; }), 107000)
      .when(
          "policy with LOW_BAND_WIDTH",
          [](Bench&, auto& all) {
            std::get<2>(all) =
                from_c<aclrtMemMallocPolicy>(std::get<2>(all) | ACL_MEM_TYPE_LOW_BAND_WIDTH);
          },
          ACL_SUCCESS)
      .when(
          "policy with HIGH_BAND_WIDTH",
          [](Bench&, auto& all) {
            std::get<2>(all) =
                from_c<aclrtMemMallocPolicy>(std::get<2>(all) | ACL_MEM_TYPE_HIGH_BAND_WIDTH);
          },
          ACL_SUCCESS)
      .with<0>("devPtr null", nullptr, 100000)
      .with<1>("size 0", 0, 100000)
      .with<1>("size whose rounding overflows", SIZE_MAX, 100000)
      .when(
          "more than the device has",
          [](Bench&, auto& all) { std::get<1>(all) = total_bytes() + kHuge; }, 207001)
      .without_context(107002);
}

void sizes(Table& table) {
  struct Padding {
    const char* function;
    Malloc call;
    std::size_t size;
    std::size_t expected;
  };
  const auto with_cfg = [](void** out, std::size_t size, aclrtMemMallocPolicy policy) {
    return aclrtMallocWithCfg(out, size, policy, nullptr);
  };
  const Padding rows[] = {
      {"aclrtMalloc", aclrtMalloc, 1, 64},
      {"aclrtMalloc", aclrtMalloc, 32, 64},
      {"aclrtMalloc", aclrtMalloc, 1000, 1056},
      {"aclrtMalloc", aclrtMalloc, 4096, 4128},
      {"aclrtMalloc", aclrtMalloc, 4097, 4160},
      {"aclrtMallocCached", aclrtMallocCached, 4096, 4128},
      {"aclrtMallocAlign32", aclrtMallocAlign32, 1, 32},
      {"aclrtMallocAlign32", aclrtMallocAlign32, 4096, 4096},
      {"aclrtMallocAlign32", aclrtMallocAlign32, 4097, 4128},
      {"aclrtMallocWithCfg", with_cfg, 1, 32},
      {"aclrtMallocWithCfg", with_cfg, 4096, 4096},
  };
  for (const Padding& row : rows) {
    table.add("4.1", row.function,
              fmt::format("{} bytes are reported as {}", row.size, row.expected), ACL_SUCCESS,
              [row](Bench& b) {
                void** const made = b.freed_by(aclrtFree);
                const aclError code = row.call(made, row.size, ACL_MEM_MALLOC_NORMAL_ONLY);
                if (code == ACL_SUCCESS) b.check_equal(reported(*made), row.expected, "size");
                return code;
              });
  }
}

void pages(Table& table) {
  struct Choice {
    const char* function;
    Malloc call;
    std::size_t size;
    aclrtMemMallocPolicy policy;
    const char* name;
    std::uint32_t page;
  };
  constexpr std::size_t kMega = std::size_t{1} << 20U;
  const Choice rows[] = {
      {"aclrtMalloc", aclrtMalloc, kMega, ACL_MEM_MALLOC_HUGE_FIRST, "1 MiB HUGE_FIRST", kHuge},
      {"aclrtMalloc", aclrtMalloc, kMega - 32, ACL_MEM_MALLOC_HUGE_FIRST, "1 MiB - 32 HUGE_FIRST",
       kPage},
      {"aclrtMalloc", aclrtMalloc, kMega, ACL_MEM_MALLOC_HUGE_FIRST_P2P, "1 MiB HUGE_FIRST_P2P",
       kHuge},
      {"aclrtMallocAlign32", aclrtMallocAlign32, kMega, ACL_MEM_MALLOC_HUGE_FIRST,
       "1 MiB HUGE_FIRST", kPage},
      {"aclrtMallocAlign32", aclrtMallocAlign32, kMega + 1, ACL_MEM_MALLOC_HUGE_FIRST,
       "1 MiB + 1 HUGE_FIRST", kHuge},
      {"aclrtMalloc", aclrtMalloc, 4096, ACL_MEM_MALLOC_HUGE_FIRST, "4096 HUGE_FIRST", kPage},
      {"aclrtMalloc", aclrtMalloc, 1024, ACL_MEM_MALLOC_HUGE_ONLY, "1 KiB HUGE_ONLY", kHuge},
      {"aclrtMalloc", aclrtMalloc, 1024, ACL_MEM_MALLOC_HUGE_ONLY_P2P, "1 KiB HUGE_ONLY_P2P",
       kHuge},
      {"aclrtMalloc", aclrtMalloc, kHuge, ACL_MEM_MALLOC_NORMAL_ONLY, "2 MiB NORMAL_ONLY", kPage},
      {"aclrtMalloc", aclrtMalloc, kHuge, ACL_MEM_MALLOC_NORMAL_ONLY_P2P, "2 MiB NORMAL_ONLY_P2P",
       kPage},
      {"aclrtMalloc", aclrtMalloc, kHuge, from_c<aclrtMemMallocPolicy>(77), "2 MiB policy 77",
       kHuge},
      {"aclrtMallocCached", aclrtMallocCached, kMega, ACL_MEM_MALLOC_HUGE_FIRST, "1 MiB HUGE_FIRST",
       kHuge},
  };
  for (const Choice& row : rows) {
    table.add("4.2", row.function, fmt::format("{} has pages of {}", row.name, row.page),
              ACL_SUCCESS, [row](Bench& b) {
                void** const made = b.freed_by(aclrtFree);
                const aclError code = row.call(made, row.size, row.policy);
                if (code == ACL_SUCCESS) {
                  b.check_equal(attributes_of(*made).pageSize, row.page, "page size");
                  if (row.page == kHuge) b.check(aligned(*made, kHuge), "it starts a huge page");
                }
                return code;
              });
  }
  table.add_on_pages("4.2", "aclrtMalloc", "a block of this run's pages starts one and fills it",
                     ACL_SUCCESS, [](Bench& b) {
                       void** const made = b.freed_by(aclrtFree);
                       const std::size_t before = free_bytes();
                       const aclError code = aclrtMalloc(made, b.page(), b.policy());
                       if (code == ACL_SUCCESS) {
                         b.check(aligned(*made, b.page()), "the address starts a page");
                         b.check_equal(attributes_of(*made).pageSize, b.page(), "page size");
                         b.check(free_bytes() + b.page() <= before, "its page is accounted");
                       }
                       return code;
                     });
  table.add("4.2", "aclrtMalloc", "1 KiB HUGE_ONLY occupies 2 MiB", ACL_SUCCESS, [](Bench& b) {
    void** const made = b.freed_by(aclrtFree);
    const std::size_t before = free_bytes();
    const aclError code = aclrtMalloc(made, 1024, ACL_MEM_MALLOC_HUGE_ONLY);
    b.check_equal(before - free_bytes(), kHuge, "occupied");
    return code;
  });
  table.add_on_pages("4.5", "aclrtMalloc", "32 bytes behind the end can be read and written",
                     ACL_SUCCESS, [](Bench& b) {
                       void** const made = b.freed_by(aclrtFree);
                       const aclError code = aclrtMalloc(made, b.page(), b.policy());
                       if (code == ACL_SUCCESS) std::memset(plus(*made, b.page()), 1, 32);
                       return code;
                     });
}

void free(Table& table) {
  const char* const name = "aclrtFree";
  Function(table, "1.4", name, aclrtFree, [](Bench& b) { return std::tuple(b.block()); })
      .good("a block")
      .with<0>("devPtr null", nullptr, 100000)
      .when(
          "an address never allocated",
          [](Bench& b, auto& all) { std::get<0>(all) = b.ordinary(); },
          differs(kNeverAllocated, kUnregistered, 107000))
      .when(
          "an address inside a block",
          [](Bench&, auto& all) { std::get<0>(all) = plus(std::get<0>(all), 64); }, 107000)
      .when(
          "a block freed before",
          [](Bench&, auto& all) { need(aclrtFree(std::get<0>(all)), "aclrtFree"); }, 107000)
      .when(
          "host memory", [](Bench& b, auto& all) { std::get<0>(all) = b.host(); }, 107000)
      .when(
          "a piece of a larger block",
          [](Bench& b, auto& all) { std::get<0>(all) = b.block(100, ACL_MEM_MALLOC_NORMAL_ONLY); },
          ACL_SUCCESS)
      .when(
          "a piece freed before",
          [](Bench& b, auto& all) {
            std::get<0>(all) = b.block(100, ACL_MEM_MALLOC_NORMAL_ONLY);
            need(aclrtFree(std::get<0>(all)), "aclrtFree");
          },
          107000)
      .when(
          "inside a piece of a larger block",
          [](Bench& b, auto& all) {
            std::get<0>(all) = plus(b.block(100, ACL_MEM_MALLOC_NORMAL_ONLY), 32);
          },
          107000)
      .without_context(ACL_SUCCESS, "a block, no context");
  table.add_on_pages("1.4", name, "gives back what the block occupied", ACL_SUCCESS, [](Bench& b) {
    const std::size_t before = free_bytes();
    const aclError code = aclrtFree(b.block());
    b.check_equal(free_bytes(), before, "free bytes");
    return code;
  });
}

void memory_info(Table& table) {
  Function info(table, "1.2", "aclrtGetMemInfo", aclrtGetMemInfo, [](Bench& b) {
    return std::tuple(ACL_HBM_MEM, b.out<std::size_t>(), b.out<std::size_t>());
  });
  const auto sound = [](Bench& b, auto& all) {
    b.check(*std::get<1>(all) <= *std::get<2>(all), "no more is free than there is");
    const aclrtMemAttr attr = std::get<0>(all);
    const bool giant = attr == ACL_HBM_MEM_HUGE1G || attr == ACL_HBM_MEM_P2P_HUGE1G ||
                       attr == ACL_MEM_HUGE1G || attr == ACL_MEM_P2P_HUGE1G;
    // Pages of 1 GiB are counted where the machine has some.
    if (!giant) b.check(*std::get<2>(all) != 0, "there is some");
  };
  for (int attr = ACL_DDR_MEM; attr <= ACL_MEM_P2P_HUGE1G; ++attr) {
    info.when(
        fmt::format("attribute {}", attr).c_str(),
        [attr](Bench&, auto& all) { std::get<0>(all) = from_c<aclrtMemAttr>(attr); }, ACL_SUCCESS,
        sound);
  }
  info.with<0>("attribute 18", from_c<aclrtMemAttr>(18), 107016)
      .with<0>("attribute -1", from_c<aclrtMemAttr>(-1), 107016)
      .with<1>("free null", nullptr, 100000)
      .with<2>("total null", nullptr, 100000)
      .without_context(107002);
}

void pointers(Table& table) {
  const auto is = [](aclrtMemLocationType type, bool has_page) {
    return [type, has_page](Bench& b, auto& all) {
      const aclrtPtrAttributes& found = *std::get<1>(all);
      b.check_equal(static_cast<int>(found.location.type), static_cast<int>(type), "location type");
      b.check_equal(found.location.id, 0U, "location id");
      b.check_equal(found.pageSize != 0, has_page, "has a page size");
    };
  };
  Function(table, "1.4", "aclrtPointerGetAttributes", aclrtPointerGetAttributes,
           [](Bench& b) {
             return std::tuple(static_cast<const void*>(b.block()), b.out<aclrtPtrAttributes>());
           })
      .good("a block", is(ACL_MEM_LOCATION_TYPE_DEVICE, true))
      .when(
          "inside a block",
          [](Bench&, auto& all) {
            std::get<0>(all) = static_cast<const std::byte*>(std::get<0>(all)) + 100;
          },
          ACL_SUCCESS, is(ACL_MEM_LOCATION_TYPE_DEVICE, true))
      .when(
          "a piece of a larger block",
          [](Bench& b, auto& all) { std::get<0>(all) = b.block(100, ACL_MEM_MALLOC_NORMAL_ONLY); },
          ACL_SUCCESS, is(ACL_MEM_LOCATION_TYPE_DEVICE, true))
      .when(
          "a block freed before",
          [](Bench&, auto& all) {
            need(aclrtFree(const_cast<void*>(std::get<0>(all))), "aclrtFree");
          },
          ACL_SUCCESS, is(ACL_MEM_LOCATION_TYPE_UNREGISTERED, false))
      .when(
          "ordinary memory", [](Bench& b, auto& all) { std::get<0>(all) = b.ordinary(); },
          ACL_SUCCESS, is(ACL_MEM_LOCATION_TYPE_UNREGISTERED, false))
      .when(
          "memory of MallocHost", [](Bench& b, auto& all) { std::get<0>(all) = b.host(); },
          ACL_SUCCESS,
          [](Bench& b, auto& all) {
            b.check_equal(static_cast<int>(std::get<1>(all)->location.type),
                          static_cast<int>(ACL_MEM_LOCATION_TYPE_HOST), "location type");
            b.check_equal(std::get<1>(all)->location.id, 0U, "location id");
          })
      .when(
          "a block of device 1",
          [](Bench& b, auto& all) {
            need(aclrtSetDevice(1), "aclrtSetDevice(1)");
            std::get<0>(all) = b.block();
            need(aclrtSetDevice(0), "aclrtSetDevice(0)");
          },
          ACL_SUCCESS,
          [](Bench& b, auto& all) {
            b.check_equal(std::get<1>(all)->location.id, 1U, "location id");
          })
      .with<0>("ptr null", nullptr, 100000)
      .with<1>("attributes null", nullptr, 100000)
      .without_context(ACL_SUCCESS, "a block, no context");

  Function(table, "1.4", "aclrtMemGetAddressRange", aclrtMemGetAddressRange,
           [](Bench& b) {
             return std::tuple(b.block(kPage, ACL_MEM_MALLOC_NORMAL_ONLY), b.maybe_out<void*>(),
                               b.maybe_out<std::size_t>());
           })
      .good("a block",
            [](Bench& b, auto& all) {
              b.check(*std::get<1>(all) == std::get<0>(all), "base");
              b.check_equal(*std::get<2>(all), kPage + 32, "size");
            })
      .when(
          "inside a block",
          [](Bench&, auto& all) { std::get<0>(all) = plus(std::get<0>(all), 4000); }, ACL_SUCCESS,
          [](Bench& b, auto& all) {
            b.check(plus(*std::get<1>(all), 4000) == std::get<0>(all), "base");
          })
      .when(
          "only the base",
          [](Bench& b, auto& all) {
            std::get<1>(all) = b.out<void*>();
            std::get<2>(all) = nullptr;
          },
          ACL_SUCCESS)
      .with<0>("ptr null", nullptr, 100000)
      .when(
          "both outputs null",
          [](Bench&, auto& all) {
            std::get<1>(all) = nullptr;
            std::get<2>(all) = nullptr;
          },
          107000)
      .when(
          "an address never allocated",
          [](Bench& b, auto& all) { std::get<0>(all) = b.ordinary(); },
          differs(kNeverAllocatedElsewhere, kUnregistered, 107000))
      .when(
          "a block freed before",
          [](Bench&, auto& all) { need(aclrtFree(std::get<0>(all)), "aclrtFree"); },
          differs(kNeverAllocatedElsewhere, kUnregistered, 107000))
      .without_context(ACL_SUCCESS, "a block, no context");
}

void usage(Table& table) {
  Function(table, "1.2", "aclrtGetMemUsageInfo", aclrtGetMemUsageInfo,
           [](Bench& b) {
             return std::tuple(
                 0, static_cast<aclrtMemUsageInfo*>(b.out_bytes(16 * sizeof(aclrtMemUsageInfo))),
                 std::size_t{16}, b.out<std::size_t>());
           })
      .good("room for 16",
            [](Bench& b, auto& all) {
              b.check(*std::get<3>(all) >= 1 && *std::get<3>(all) <= 16, "1 to 16 entries");
            })
      .with<1>("memUsageInfo null", nullptr, 100000)
      .with<3>("outputNum null", nullptr, 100000)
      .with<2>("inputNum 0", 0, 107000)
      .with<0>("device 2", 2, 107001)
      .with<0>("device -1", -1, 107001);
}

void maintain(Table& table, const char* name, aclError (*call)(void*, std::size_t)) {
  Function(table, "1.4", name, call, [](Bench& b) { return std::tuple(b.block(), kPage); })
      .good("a block")
      .with<0>("devPtr null", nullptr, 100000)
      .with<1>("size 0", 0, 100000);
}

void maintenance(Table& table) {
  maintain(table, "aclrtMemFlush", aclrtMemFlush);
  maintain(table, "aclrtMemInvalidate", aclrtMemInvalidate);
  Function(table, "1.4", "aclrtFreeWithDevSync", aclrtFreeWithDevSync,
           [](Bench& b) { return std::tuple(b.block()); })
      .good("a block")
      .with<0>("devPtr null", nullptr, 100000)
      .when(
          "inside a block",
          [](Bench&, auto& all) { std::get<0>(all) = plus(std::get<0>(all), 64); }, 107000)
      .when(
          "a block freed before",
          [](Bench&, auto& all) { need(aclrtFree(std::get<0>(all)), "aclrtFree"); }, 107000)
      .when(
          "an address never allocated",
          [](Bench& b, auto& all) { std::get<0>(all) = b.ordinary(); },
          differs(kNeverAllocated, kUnregistered, 107000));
  const auto answers = [](std::uint32_t expected) {
    return [expected](Bench& b, auto& all) {
      b.check_equal(*std::get<3>(all), expected, "checkResult");
    };
  };
  Function(table, "1.4", "aclrtCheckMemType", aclrtCheckMemType,
           [](Bench& b) {
             return std::tuple(b.array<void*>({b.block(), b.block()}), 2U,
                               std::uint32_t{ACL_RT_MEM_TYPE_DEV}, b.out<std::uint32_t>(), 0U);
           })
      .good("two blocks are device memory", answers(1))
      .when(
          "one of two is ordinary memory",
          [](Bench& b, auto& all) { std::get<0>(all)[1] = b.ordinary(); }, ACL_SUCCESS, answers(0))
      .when(
          "one of two is host memory", [](Bench& b, auto& all) { std::get<0>(all)[1] = b.host(); },
          ACL_SUCCESS, answers(0))
      .with<0>("addrList null", nullptr, 100000)
      .with<3>("checkResult null", nullptr, 100000)
      .with<1>("size 0", 0, 107000)
      .with<4>("reserve 1", 1, 107000)
      .with<2>("mask 1", 1, 107000)
      .with<2>("mask RSVD of the header (0x10)", ACL_RT_MEM_TYPE_RSVD, 107000);
}

void between_devices(Table& table) {
  Function(table, "1.4", "aclrtMemP2PMap", aclrtMemP2PMap,
           [](Bench& b) { return std::tuple(b.block(), kPage, 1, std::uint64_t{0}); })
      .good("to another device")
      .with<0>("devPtr null", nullptr, 100000)
      .with<1>("size 0", 0, 100000)
      .with<2>("device 2", 2, 107001)
      .with<2>("device -1", -1, 107001);
}

}  // namespace

Table device_memory_cases() {
  Table table("device memory");
  mallocs(table, "aclrtMalloc", aclrtMalloc);
  mallocs(table, "aclrtMallocAlign32", aclrtMallocAlign32);
  mallocs(table, "aclrtMallocCached", aclrtMallocCached);
  mallocs_with_cfg(table, "aclrtMallocWithCfg", aclrtMallocWithCfg);
  mallocs_with_cfg(table, "aclrtMallocForTaskScheduler", aclrtMallocForTaskScheduler);
  usage(table);
  maintenance(table);
  between_devices(table);
  sizes(table);
  pages(table);
  free(table);
  memory_info(table);
  pointers(table);
  return table;
}

}  // namespace hufu::conformance
