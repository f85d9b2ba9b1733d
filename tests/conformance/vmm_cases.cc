// Contract 1.8 and 5.3: reserve, make and map, in one process.

#include "suite.h"
#include "vmm_bench.h"

namespace hufu::conformance {
namespace {

// Where nothing is, within what the contract lets a program wish for.
void* free_address() {
#ifdef __SANITIZE_THREAD__  // Which keeps those addresses to itself.
  void* address = nullptr;
  need(aclrtReserveMemAddress(&address, 8 * kHuge, 0, nullptr, 0), "aclrtReserveMemAddress");
  need(aclrtReleaseMemAddress(address), "aclrtReleaseMemAddress");
  return static_cast<char*>(address) + 4 * kHuge;
#else
  return reinterpret_cast<void*>(std::uintptr_t{18} << 40U);
#endif
}

// NOLINTNEXTLINE(google-build-using-namespace): the two are one suite.
using namespace vmm;

void reserves(Table& table) {
  const auto is_aligned = [](std::size_t to) {
    return [to](Bench& b, auto& all) {
      const auto address = reinterpret_cast<std::uintptr_t>(*std::get<0>(all));
      b.check_equal(address % to, 0U, "offset from its alignment");
    };
  };
  Function(table, "1.8", "aclrtReserveMemAddress", aclrtReserveMemAddress,
           [](Bench& b) {
             return std::tuple(b.freed_by(aclrtReleaseMemAddress), 2 * kHuge, std::size_t{0},
                               static_cast<void*>(nullptr), std::uint64_t{0});
           })
      .good("4 MiB", is_aligned(kHuge))
      .when(
          "1 GiB", [](Bench&, auto& all) { std::get<1>(all) = kGiant; }, ACL_SUCCESS,
          is_aligned(kGiant))
      .with<4>("flags 1", 1, ACL_SUCCESS)
      .with<4>("flags 2", 2, 100000)
      .with<0>("virPtr null", nullptr, 100000)
      .with<1>("size 0", 0, 100000)
      .with<2>("alignment 2 MiB", kHuge, 107000)
      .when(
          "a hint that is not aligned",
          [](Bench&, auto& all) {
            std::get<3>(all) = reinterpret_cast<void*>((std::uintptr_t{17} << 40U) + kPage);
          },
          107000)
      .when(
          "a hint that is occupied", [](Bench& b, auto& all) { std::get<3>(all) = reserve(b); },
          107000)
      .when(
          "a hint that is free", [](Bench&, auto& all) { std::get<3>(all) = free_address(); },
          ACL_SUCCESS,
          [](Bench& b, auto& all) {
            b.check(*std::get<0>(all) == std::get<3>(all), "the hint is honoured exactly");
          })
      .without_context(ACL_SUCCESS);
  Function(table, "1.8", "aclrtReserveMemAddressNoUCMemory", aclrtReserveMemAddressNoUCMemory,
           [](Bench& b) {
             return std::tuple(b.freed_by(aclrtReleaseMemAddress), kGiant, std::size_t{0},
                               reinterpret_cast<void*>(std::uintptr_t{41} << 40U),
                               std::uint64_t{0});
           })
      .with<0>("virPtr null", nullptr, 100000)
      .with<1>("size 0", 0, 100000)
      .with<4>("flags 2", 2, 100000);
  Function(table, "1.8", "aclrtReleaseMemAddress", aclrtReleaseMemAddress,
           [](Bench& b) { return std::tuple(reserve(b)); })
      .good("a reserved range")
      .with<0>("virPtr null", nullptr, 100000)
      .when(
          "something is mapped in it",
          [](Bench& b, auto& all) { std::get<0>(all) = mapped(b).base; }, 507899)
      .when(
          "inside a reserved range",
          [](Bench&, auto& all) { std::get<0>(all) = plus(std::get<0>(all), kHuge); }, 107000)
      .when(
          "an address never reserved", [](Bench& b, auto& all) { std::get<0>(all) = b.ordinary(); },
          107000)
      .when(
          "a range released before",
          [](Bench&, auto& all) {
            need(aclrtReleaseMemAddress(std::get<0>(all)), "aclrtReleaseMemAddress");
          },
          107000)
      .without_context(ACL_SUCCESS);
}

using Wrong = std::function<void(aclrtPhysicalMemProp&)>;

// What both aclrtMallocPhysical and GetAllocationGranularity say of properties. I: the argument's.
template <std::size_t I, class Function>
void properties(Function& function) {
  const auto set = [](auto change) {
    return [change](Bench&, auto& all) {
      change(const_cast<aclrtPhysicalMemProp&>(*std::get<I>(all)));
    };
  };
  for (const int attr : {4, 5, 12, 13, 15, 16}) {
    function.when(fmt::format("attribute {}", attr).c_str(),
                  set([attr](auto& wanted) { wanted.memAttr = from_c<aclrtMemAttr>(attr); }),
                  ACL_SUCCESS);
  }
  for (const int attr : {0, 1, 8, 9, 11, 18, -1}) {
    function.when(fmt::format("attribute {}", attr).c_str(),
                  set([attr](auto& wanted) { wanted.memAttr = from_c<aclrtMemAttr>(attr); }),
                  100000);
  }
  for (const int attr : {2, 3, 6, 7}) {
    function.when(fmt::format("attribute {} (DDR) on a device", attr).c_str(),
                  set([attr](auto& wanted) { wanted.memAttr = from_c<aclrtMemAttr>(attr); }),
                  100000);
  }
  function.when("device 2", set([](auto& wanted) { wanted.location.id = 2; }), 107001)
      .when("device 4294967295", set([](auto& wanted) { wanted.location.id = 0xffffffff; }),
            107001);
}

void physicals(Table& table) {
  Function granularity(table, "1.8", "aclrtMemGetAllocationGranularity",
                       aclrtMemGetAllocationGranularity, [](Bench& b) {
                         return std::tuple(props_in(b), ACL_RT_MEM_ALLOC_GRANULARITY_MINIMUM,
                                           b.out<std::size_t>());
                       });
  const auto is = [](std::size_t expected) {
    return [expected](Bench& b, auto& all) {
      b.check_equal(*std::get<2>(all), expected, "granularity");
    };
  };
  granularity.good("MINIMUM", is(kHuge))
      .when(
          "RECOMMENDED",
          [](Bench&, auto& all) { std::get<1>(all) = ACL_RT_MEM_ALLOC_GRANULARITY_RECOMMENDED; },
          ACL_SUCCESS, is(kHuge))
      .when(
          "NORMAL", [](Bench&, auto& all) { std::get<0>(all)->memAttr = ACL_MEM_NORMAL; },
          ACL_SUCCESS, is(kHuge))
      .when(
          "HUGE1G", [](Bench&, auto& all) { std::get<0>(all)->memAttr = ACL_MEM_HUGE1G; },
          ACL_SUCCESS, is(kGiant))
      .with<1>("option 2", from_c<aclrtMemGranularityOptions>(2), 107000)
      .with<1>("option UNDEF", ACL_RT_MEM_ALLOC_GRANULARITY_UNDEF, 107000)
      .with<0>("prop null", nullptr, 100000)
      .with<2>("granularity null", nullptr, 100000)
      .when(
          "handleType POSIX, which is not looked at",
          [](Bench&, auto& all) { std::get<0>(all)->handleType = ACL_MEM_HANDLE_TYPE_POSIX; },
          ACL_SUCCESS)
      .without_context(ACL_SUCCESS);
  properties<0>(granularity);

  Function malloc(table, "1.8", "aclrtMallocPhysical", aclrtMallocPhysical, [](Bench& b) {
    return std::tuple(b.freed_by(aclrtFreePhysical), kHuge,
                      static_cast<const aclrtPhysicalMemProp*>(props_in(b)), std::uint64_t{0});
  });
  const auto set = [](auto change) {
    return [change](Bench&, auto& all) {
      change(const_cast<aclrtPhysicalMemProp&>(*std::get<2>(all)));
    };
  };
  malloc.good("2 MiB")
      .with<1>("6 MiB", 3 * kHuge, ACL_SUCCESS)
      .with<0>("handle null", nullptr, 100000)
      .with<1>("size 0", 0, 100000)
      .with<2>("prop null", nullptr, 100000)
      .with<1>("size not a multiple of the granularity", kHuge + kPage, 107000)
      .with<1>("size of a page", kPage, 107000)
      .when("handleType POSIX",
            set([](auto& wanted) { wanted.handleType = ACL_MEM_HANDLE_TYPE_POSIX; }), 100000)
      .when("allocationType 1",
            set([](auto& wanted) { wanted.allocationType = from_c<aclrtMemAllocationType>(1); }),
            100000)
      .when("location UNREGISTERED",
            set([](auto& wanted) { wanted.location.type = ACL_MEM_LOCATION_TYPE_UNREGISTERED; }),
            100000)
      .when("location MANAGED",
            set([](auto& wanted) { wanted.location.type = ACL_MEM_LOCATION_TYPE_MANAGED; }), 100000)
      .when("host memory of id 1", set([](auto& wanted) {
              wanted.location = {.id = 1, .type = ACL_MEM_LOCATION_TYPE_HOST};
            }),
            207000)
      .when(
          "more than the device has",
          [](Bench&, auto& all) {
            std::size_t free = 0;
            std::size_t total = 0;
            need(aclrtGetMemInfo(ACL_HBM_MEM, &free, &total), "aclrtGetMemInfo");
            std::get<1>(all) = total + kHuge;
          },
          207001)
      .without_context(ACL_SUCCESS);
  properties<2>(malloc);
  table.add("1.8", "aclrtMallocPhysical", "occupies its size", ACL_SUCCESS, [](Bench& b) {
    const std::size_t before = used();
    auto* const handle = b.freed_by(aclrtFreePhysical);
    const aclrtPhysicalMemProp wanted = props();
    const aclError code = aclrtMallocPhysical(handle, 2 * kHuge, &wanted, 0);
    b.check_equal(used() - before, 2 * kHuge, "occupied");
    return code;
  });

  Function(table, "1.8", "aclrtFreePhysical", aclrtFreePhysical,
           [](Bench& b) { return std::tuple(physical(b)); })
      .good("a handle")
      .with<0>("handle null", nullptr, 100000)
      .when(
          "a handle freed before",
          [](Bench&, auto& all) { need(aclrtFreePhysical(std::get<0>(all)), "aclrtFreePhysical"); },
          either(107017, 107000))
      .when(
          "a value that is no handle",
          [](Bench& b, auto& all) {
            std::get<0>(all) = reinterpret_cast<aclrtDrvMemHandle>(b.ordinary());
          },
          either(107017, 107000))
      .without_context(ACL_SUCCESS);
  table.add("1.8", "aclrtFreePhysical", "memory goes when its last reference goes", ACL_SUCCESS,
            [](Bench& b) {
              const std::size_t before = used();
              const Mapped made = mapped(b);
              const aclError code = aclrtFreePhysical(made.handle);
              b.check_equal(used() - before, kHuge, "occupied while it is mapped");
              *static_cast<std::uint8_t*>(made.base) = 1;
              need(aclrtUnmapMem(made.base), "aclrtUnmapMem");
              b.check_equal(used(), before, "occupied");
              return code;
            });
}

template <class Call>
void maps(Table& table, const char* name, Call call) {
  Function function(table, "1.8", name, call, [](Bench& b) {
    void* const address = reserve(b);
    const aclrtDrvMemHandle handle = physical(b);
    unmap_at_end(b, address);
    return std::tuple(address, kHuge, std::size_t{0}, handle, std::uint64_t{0});
  });
  function.good("at the start of a reserved range")
      .when(
          "at an inner address",
          [](Bench& b, auto& all) {
            std::get<0>(all) = plus(std::get<0>(all), kHuge);
            unmap_at_end(b, std::get<0>(all));
          },
          ACL_SUCCESS)
      .template with<0>("virPtr null", nullptr, 100000)
      .template with<1>("size 0", 0, 100000)
      .template with<3>("handle null", nullptr, 100000)
      .template with<4>("flags 1", 1, 100000)
      .template with<2>("offset 2 MiB", kHuge, 107000)
      .when(
          "an address that is not aligned",
          [](Bench&, auto& all) { std::get<0>(all) = plus(std::get<0>(all), kPage); }, 507899)
      .template with<1>("a size that is not aligned", kPage, 507899)
      .template with<1>("more than the handle has", 2 * kHuge, 107000)
      .when(
          "a range that is not reserved",
          [](Bench&, auto& all) {
            std::get<0>(all) = reinterpret_cast<void*>(std::uintptr_t{19} << 40U);
          },
          507899)
      .when(
          "a range where something is mapped",
          [](Bench& b, auto& all) { std::get<0>(all) = mapped(b).base; }, 507899)
      .when(
          "a handle freed before",
          [](Bench&, auto& all) { need(aclrtFreePhysical(std::get<3>(all)), "aclrtFreePhysical"); },
          either(107017, 107000))
      .without_context(ACL_SUCCESS);
}

void mappings(Table& table) {
  maps(table, "aclrtMapMem", aclrtMapMem);
  maps(table, "aclrtMemMapNoAccess", aclrtMemMapNoAccess);
  table.add_on_pages("1.8", "aclrtMapMem", "the owner may read and write at once", ACL_SUCCESS,
                     [](Bench& b) {
                       void* const base = reserve(b);
                       const aclError code = aclrtMapMem(base, kHuge, 0, physical(b), 0);
                       std::memset(base, 0x5a, kHuge);
                       need(aclrtUnmapMem(base), "aclrtUnmapMem");
                       return code;
                     });
  table.add_on_pages("1.8", "aclrtMapMem", "one handle at two addresses is one memory", ACL_SUCCESS,
                     [](Bench& b) {
                       auto* const base = static_cast<std::uint8_t*>(reserve(b));
                       const aclrtDrvMemHandle handle = physical(b);
                       need(aclrtMapMem(base, kHuge, 0, handle, 0), "aclrtMapMem");
                       const aclError code = aclrtMapMem(base + kHuge, kHuge, 0, handle, 0);
                       if (code == ACL_SUCCESS) {
                         base[100] = 0x33;
                         b.check_equal(int{base[kHuge + 100]}, 0x33, "the other's byte");
                         need(aclrtUnmapMem(base + kHuge), "aclrtUnmapMem");
                       }
                       need(aclrtUnmapMem(base), "aclrtUnmapMem");
                       return code;
                     });
  table.add("5.3", "aclrtMapMem", "new memory at an address that was kept", ACL_SUCCESS,
            [](Bench& b) {
              const Mapped made = mapped(b);
              std::memset(made.base, 0x77, kHuge);
              need(aclrtUnmapMem(made.base), "aclrtUnmapMem");
              need(aclrtFreePhysical(made.handle), "aclrtFreePhysical");
              const aclError code = aclrtMapMem(made.base, kHuge, 0, physical(b), 0);
              std::memset(made.base, 0x11, kHuge);
              need(aclrtUnmapMem(made.base), "aclrtUnmapMem");
              return code;
            });
  Function(table, "1.8", "aclrtUnmapMem", aclrtUnmapMem,
           [](Bench& b) { return std::tuple(mapped(b).base); })
      .good("a mapping's start")
      .with<0>("virPtr null", nullptr, 100000)
      .when(
          "not aligned",
          [](Bench&, auto& all) { std::get<0>(all) = plus(std::get<0>(all), kPage); }, 107000)
      .when(
          "reserved and not mapped",
          [](Bench&, auto& all) { std::get<0>(all) = plus(std::get<0>(all), kHuge); }, 507899)
      .when(
          "unmapped before",
          [](Bench&, auto& all) { need(aclrtUnmapMem(std::get<0>(all)), "aclrtUnmapMem"); }, 507899)
      .when(
          "inside a mapping of two units",
          [](Bench& b, auto& all) {
            void* const base = reserve(b);
            need(aclrtMapMem(base, 2 * kHuge, 0, physical(b, 2 * kHuge), 0), "aclrtMapMem");
            unmap_at_end(b, base);
            std::get<0>(all) = plus(base, kHuge);
          },
          507899)
      .without_context(ACL_SUCCESS);
  // Both orders of what real clients do.
  table.add("5.3", "aclrtReleaseMemAddress", "after unmap and before the handle is freed",
            ACL_SUCCESS, [](Bench& b) {
              const std::size_t before = used();
              const Mapped made = mapped(b);
              aclrtDrvMemHandle retained = nullptr;
              need(aclrtMemRetainAllocationHandle(made.base, &retained), "Retain");
              need(aclrtUnmapMem(made.base), "aclrtUnmapMem");
              const aclError code = aclrtReleaseMemAddress(made.base);
              need(aclrtFreePhysical(retained), "aclrtFreePhysical");
              need(aclrtFreePhysical(made.handle), "aclrtFreePhysical");
              b.check_equal(used(), before, "occupied");
              return code;
            });
}

void access(Table& table) {
  const auto set = [](auto change) {
    return [change](Bench&, auto& all) { change(std::get<2>(all)[0]); };
  };
  Function(table, "1.8", "aclrtMemSetAccess", aclrtMemSetAccess,
           [](Bench& b) {
             const aclrtMemAccessDesc wanted{
                 .flags = ACL_RT_MEM_ACCESS_FLAGS_READWRITE,
                 .location = {.id = 0, .type = ACL_MEM_LOCATION_TYPE_DEVICE},
                 .rsv = {}};
             return std::tuple(mapped(b).base, kHuge, b.array({wanted, wanted}), std::size_t{1});
           })
      .good("READWRITE for the device")
      .when("READWRITE for the host",
            set([](auto& desc) { desc.location.type = ACL_MEM_LOCATION_TYPE_HOST; }), ACL_SUCCESS)
      .when(
          "the same again",
          [](Bench&, auto& all) { need(std::apply(aclrtMemSetAccess, all), "SetAccess"); },
          ACL_SUCCESS)
      .with<0>("virPtr null", nullptr, 107000)
      .with<2>("desc null", nullptr, 107000)
      .with<3>("count 0", 0, 107000)
      .when("READ", set([](auto& desc) { desc.flags = ACL_RT_MEM_ACCESS_FLAGS_READ; }), 207000)
      .when("NONE", set([](auto& desc) { desc.flags = ACL_RT_MEM_ACCESS_FLAGS_NONE; }), 207000)
      .when("location UNREGISTERED",
            set([](auto& desc) { desc.location.type = ACL_MEM_LOCATION_TYPE_UNREGISTERED; }),
            107000)
      .when("device 7", set([](auto& desc) { desc.location.id = 7; }), 107000)
      .when("host of id 1",
            set([](auto& desc) { desc.location = {.id = 1, .type = ACL_MEM_LOCATION_TYPE_HOST}; }),
            107000)
      .with<3>("the same location twice", 2, 107000)
      .with<1>("less than the mapping", kPage, 507899)
      .with<1>("more than the mapping", 2 * kHuge, 507899)
      .when(
          "reserved and not mapped",
          [](Bench&, auto& all) { std::get<0>(all) = plus(std::get<0>(all), kHuge); }, 507899)
      .without_context(ACL_SUCCESS);
  const aclrtMemLocation device{.id = 0, .type = ACL_MEM_LOCATION_TYPE_DEVICE};
  const auto flag_is = [](std::uint64_t expected) {
    return [expected](Bench& b, auto& all) { b.check_equal(*std::get<2>(all), expected, "flag"); };
  };
  Function(table, "1.8", "aclrtMemGetAccess", aclrtMemGetAccess,
           [device](Bench& b) {
             return std::tuple(mapped(b).base, b.array({device}), b.out<std::uint64_t>());
           })
      .good("of the owner, after MapMem", flag_is(3))
      .when(
          "of the owner, after MemMapNoAccess",
          [](Bench& b, auto& all) {
            void* const base = reserve(b);
            need(aclrtMemMapNoAccess(base, kHuge, 0, physical(b), 0), "aclrtMemMapNoAccess");
            unmap_at_end(b, base);
            std::get<0>(all) = base;
          },
          ACL_SUCCESS, flag_is(0))
      .when(
          "of the owner, after MemMapNoAccess and SetAccess",
          [device](Bench& b, auto& all) {
            void* const base = reserve(b);
            need(aclrtMemMapNoAccess(base, kHuge, 0, physical(b), 0), "aclrtMemMapNoAccess");
            unmap_at_end(b, base);
            aclrtMemAccessDesc wanted{
                .flags = ACL_RT_MEM_ACCESS_FLAGS_READWRITE, .location = device, .rsv = {}};
            need(aclrtMemSetAccess(base, kHuge, &wanted, 1), "aclrtMemSetAccess");
            *static_cast<std::uint8_t*>(base) = 1;
            std::get<0>(all) = base;
          },
          ACL_SUCCESS, flag_is(3))
      .with<0>("virPtr null", nullptr, 100000)
      .with<1>("location null", nullptr, 100000)
      .with<2>("flag null", nullptr, 100000)
      .when(
          "host of id 1",
          [](Bench&, auto& all) {
            *std::get<1>(all) = {.id = 1, .type = ACL_MEM_LOCATION_TYPE_HOST};
          },
          107000)
      .when(
          "location UNREGISTERED",
          [](Bench&, auto& all) { std::get<1>(all)->type = ACL_MEM_LOCATION_TYPE_UNREGISTERED; },
          107000)
      .when(
          "reserved and not mapped",
          [](Bench&, auto& all) { std::get<0>(all) = plus(std::get<0>(all), kHuge); }, 507899)
      .without_context(ACL_SUCCESS);
}

void what_is_mapped(Table& table) {
  Function(table, "1.8", "aclrtMemRetainAllocationHandle", aclrtMemRetainAllocationHandle,
           [](Bench& b) { return std::tuple(mapped(b).base, b.freed_by(aclrtFreePhysical)); })
      .good("a mapping's start")
      .with<0>("virPtr null", nullptr, 100000)
      .with<1>("handle null", nullptr, 100000)
      .when(
          "a block of aclrtMalloc", [](Bench& b, auto& all) { std::get<0>(all) = b.block(); },
          507899)
      .when(
          "ordinary memory", [](Bench& b, auto& all) { std::get<0>(all) = b.ordinary(); }, 507899)
      .when(
          "reserved and not mapped",
          [](Bench&, auto& all) { std::get<0>(all) = plus(std::get<0>(all), kHuge); }, 507899)
      .without_context(ACL_SUCCESS);
  Function(table, "1.8", "aclrtMemGetAllocationPropertiesFromHandle",
           aclrtMemGetAllocationPropertiesFromHandle,
           [](Bench& b) { return std::tuple(physical(b), b.out<aclrtPhysicalMemProp>()); })
      .good("a handle",
            [](Bench& b, auto& all) {
              const aclrtPhysicalMemProp& found = *std::get<1>(all);
              b.check_equal(static_cast<int>(found.handleType), 0, "handleType");
              b.check_equal(static_cast<int>(found.allocationType), 0, "allocationType");
              b.check_equal(static_cast<int>(found.memAttr), static_cast<int>(ACL_MEM_HUGE),
                            "memAttr");
              b.check_equal(static_cast<int>(found.location.type),
                            static_cast<int>(ACL_MEM_LOCATION_TYPE_DEVICE), "location type");
              b.check_equal(found.location.id, 0U, "location id");
            })
      .with<0>("handle null", nullptr, 100000)
      .with<1>("prop null", nullptr, 100000);
  table.add("1.4", "aclrtPointerGetAttributes", "a mapping", ACL_SUCCESS, [](Bench& b) {
    auto* const found = b.out<aclrtPtrAttributes>();
    const aclError code = aclrtPointerGetAttributes(plus(mapped(b).base, 100), found);
    b.check_equal(static_cast<int>(found->location.type),
                  static_cast<int>(ACL_MEM_LOCATION_TYPE_DEVICE), "location type");
    b.check_equal(found->pageSize, kHuge, "page size");
    return code;
  });
  table.add("1.4", "aclrtPointerGetAttributes", "a mapping that was unmapped", ACL_SUCCESS,
            [](Bench& b) {
              const Mapped made = mapped(b);
              need(aclrtUnmapMem(made.base), "aclrtUnmapMem");
              auto* const found = b.out<aclrtPtrAttributes>();
              const aclError code = aclrtPointerGetAttributes(made.base, found);
              b.check_equal(static_cast<int>(found->location.type),
                            static_cast<int>(ACL_MEM_LOCATION_TYPE_UNREGISTERED), "location type");
              return code;
            });
  table.add("1.4", "aclrtMemGetAddressRange", "a mapping", ACL_SUCCESS, [](Bench& b) {
    const Mapped made = mapped(b);
    void** const base = b.out<void*>();
    auto* const size = b.out<std::size_t>();
    const aclError code = aclrtMemGetAddressRange(plus(made.base, kPage), base, size);
    b.check(*base == made.base, "base");
    b.check_equal(*size, kHuge, "size");
    return code;
  });
  table.add("1.4", "aclrtFree", "a mapping", either(507899, 107000),
            [](Bench& b) { return aclrtFree(mapped(b).base); });
  table.add("1.4", "aclrtFree", "a reserved range", either(507899, 107000),
            [](Bench& b) { return aclrtFree(reserve(b)); });
  table.add("1.7", "aclrtMemcpy", "to and from a mapping", ACL_SUCCESS, [](Bench& b) {
    const Mapped made = mapped(b);
    auto* const host = static_cast<std::uint8_t*>(b.host());
    std::memset(host, 0x42, 100);
    need(aclrtMemcpy(made.base, 100, host, 100, ACL_MEMCPY_HOST_TO_DEVICE), "aclrtMemcpy");
    std::memset(host, 0, 100);
    const aclError code = aclrtMemcpy(host, 100, made.base, 100, ACL_MEMCPY_DEVICE_TO_HOST);
    b.check_equal(int{host[99]}, 0x42, "the last byte");
    return code;
  });
}

void links(Table& table) {
  Function advise(table, "1.4", "aclrtMemMapSetLink", aclrtMemMapSetLink,
                  [](Bench& b) { return std::tuple(physical(b), ACL_RT_MEM_ACCESS_LINK_SIO); });
  advise.good("SIO")
      .with<1>("link 3", from_c<aclrtMemLinkType>(3), ACL_SUCCESS)
      .with<0>("handle null", nullptr, 107000)
      .with<1>("link 4", from_c<aclrtMemLinkType>(4), 107000);
}

}  // namespace

Table vmm_cases() {
  Table table("VMM");
  reserves(table);
  physicals(table);
  mappings(table);
  access(table);
  what_is_mapped(table);
  links(table);
  return table;
}

}  // namespace hufu::conformance
