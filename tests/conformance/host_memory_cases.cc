// Contract 1.5.

#include "suite.h"

namespace hufu::conformance {
namespace {

void* plus(void* address, std::size_t bytes) { return static_cast<std::byte*>(address) + bytes; }

void malloc_host(Table& table) {
  const auto usable = [](Bench& b, auto& all) {
    const auto address = reinterpret_cast<std::uintptr_t>(*std::get<0>(all));
    b.check_equal(address % 64, 0U, "offset from 64");
    std::memset(*std::get<0>(all), 1, 32);  // However little was asked for.
  };
  Function(table, "1.5", "aclrtMallocHost", aclrtMallocHost,
           [](Bench& b) { return std::tuple(b.freed_by(aclrtFreeHost), kPage); })
      .good("4096 bytes", usable)
      .when(
          "1 byte", [](Bench&, auto& all) { std::get<1>(all) = 1; }, ACL_SUCCESS, usable)
      .with<0>("hostPtr null", nullptr, 100000)
      .with<1>("size 0", 0, 100000)
      .without_context(107002)
      .without_context(100000, "size 0, no context",
                       [](Bench&, auto& all) { std::get<1>(all) = 0; });

  struct Config {
    aclrtMallocAttribute attribute;
    aclrtMallocConfig config;
  };
  const auto with_attribute = [](aclrtMallocAttrType attr, std::uint32_t value) {
    return [attr, value](Bench&, auto& all) {
      aclrtMallocAttribute& attribute = std::get<2>(all)->attrs[0];
      attribute.attr = attr;
      attribute.value.vaFlag = value;
    };
  };
  Function(table, "1.5", "aclrtMallocHostWithCfg", aclrtMallocHostWithCfg,
           [](Bench& b) {
             auto* made = reinterpret_cast<Config*>(b.ordinary(sizeof(Config)));
             made->attribute.attr = ACL_RT_MEM_ATTR_MODULE_ID;
             made->attribute.value.moduleId = 1;
             made->config = {.attrs = &made->attribute, .numAttrs = 1};
             return std::tuple(b.freed_by(aclrtFreeHost), std::uint64_t{kPage}, &made->config);
           })
      .good("a module's id", usable)
      .with<2>("cfg null", nullptr, ACL_SUCCESS)
      .when("VA_FLAG 0", with_attribute(ACL_RT_MEM_ATTR_VA_FLAG, 0), ACL_SUCCESS, usable)
      .when("VA_FLAG 1", with_attribute(ACL_RT_MEM_ATTR_VA_FLAG, 1), ACL_SUCCESS, usable)
      .when("VA_FLAG 2", with_attribute(ACL_RT_MEM_ATTR_VA_FLAG, 2), 107000)
      .when("attribute 0", with_attribute(ACL_RT_MEM_ATTR_RSV, 0), 107000)
      .when("attribute DEVICE_ID", with_attribute(ACL_RT_MEM_ATTR_DEVICE_ID, 0), 107000)
      .when("attribute 99", with_attribute(from_c<aclrtMallocAttrType>(99), 0), 107000)
      .when(
          "numAttrs 1 and attrs null", [](Bench&, auto& all) { std::get<2>(all)->attrs = nullptr; },
          100000)
      .with<0>("ptr null", nullptr, 100000)
      .with<1>("size 0", 0, 100000)
      .without_context(107002);
}

using Free = aclError (*)(void*);

void free_host(Table& table, const char* name, Free call) {
  Function(table, "1.5", name, call, [](Bench& b) { return std::tuple(b.host()); })
      .good("memory of MallocHost")
      .with<0>("hostPtr null", nullptr, 100000)
      .when(
          "ordinary memory", [](Bench& b, auto& all) { std::get<0>(all) = b.ordinary(); }, 107000)
      .when(
          "a block", [](Bench& b, auto& all) { std::get<0>(all) = b.block(); }, 107000)
      .when(
          "inside memory of MallocHost",
          [](Bench&, auto& all) { std::get<0>(all) = plus(std::get<0>(all), 64); }, 107000)
      .when(
          "memory freed before",
          [](Bench&, auto& all) { need(aclrtFreeHost(std::get<0>(all)), "aclrtFreeHost"); },
          107000);
}

// Whole pages of ordinary memory.
void* pages(Bench& bench, std::size_t count = 1) {
  const auto address = reinterpret_cast<std::uintptr_t>(bench.ordinary((count + 1) * kPage));
  return reinterpret_cast<void*>((address + kPage - 1) / kPage * kPage);
}

void unregister_at_end(Bench& bench, void* memory) {
  bench.finally([memory] { (void)aclrtHostUnregister(memory); });
}

void* registered(Bench& bench, std::uint32_t flag = ACL_HOST_REG_MAPPED, std::size_t count = 1) {
  void* const memory = pages(bench, count);
  need(aclrtHostRegisterV2(memory, count * kPage, flag), "aclrtHostRegisterV2");
  unregister_at_end(bench, memory);
  return memory;
}

void registration(Table& table) {
  Function(table, "1.5", "aclrtHostRegister", aclrtHostRegister,
           [](Bench& b) {
             void* const memory = pages(b);
             unregister_at_end(b, memory);
             return std::tuple(memory, std::uint64_t{kPage}, ACL_HOST_REGISTER_MAPPED,
                               b.out<void*>());
           })
      .good("a page")
      .with<0>("ptr null", nullptr, 100000)
      .with<1>("size 0", 0, 100000)
      .with<3>("devPtr null", nullptr, 100000)
      .with<2>("type 1", from_c<aclrtHostRegisterType>(1), 207000)
      .with<2>("type 16", from_c<aclrtHostRegisterType>(16), 207000)
      .when(
          "registered before", [](Bench& b, auto& all) { std::get<0>(all) = registered(b); },
          507910)
      .when(
          "overlapping what was registered before",
          [](Bench& b, auto& all) {
            std::get<0>(all) = plus(registered(b, ACL_HOST_REG_MAPPED, 2), kPage);
          },
          507910)
      .without_context(107002);
  Function(table, "1.5", "aclrtHostRegisterV2", aclrtHostRegisterV2,
           [](Bench& b) {
             void* const memory = pages(b);
             unregister_at_end(b, memory);
             return std::tuple(memory, std::uint64_t{kPage},
                               static_cast<std::uint32_t>(ACL_HOST_REG_MAPPED));
           })
      .good("MAPPED")
      .with<2>("PINNED", 0x10000000, ACL_SUCCESS)
      .with<2>("MAPPED and PINNED", 0x10000002, ACL_SUCCESS)
      .with<0>("ptr null", nullptr, 100000)
      .with<1>("size 0", 0, 100000)
      .with<2>("flag 0", 0, 107000)
      .with<2>("flag 1", 1, 107000)
      .with<2>("MAPPED and a foreign bit", 0x12, 107000)
      .when(
          "registered before", [](Bench& b, auto& all) { std::get<0>(all) = registered(b); },
          507910)
      .when(
          "overlapping what was registered before",
          [](Bench& b, auto& all) {
            std::get<0>(all) = plus(registered(b, ACL_HOST_REG_MAPPED, 2), kPage);
          },
          507910)
      .without_context(107002);
  Function(table, "1.5", "aclrtHostGetDevicePointer", aclrtHostGetDevicePointer,
           [](Bench& b) { return std::tuple(registered(b), b.out<void*>(), std::uint32_t{0}); })
      .good("a registered page")
      .with<0>("pHost null", nullptr, 100000)
      .with<1>("pDevice null", nullptr, 100000)
      .with<2>("flag 1", 1, 107000)
      .when(
          "ordinary memory", [](Bench& b, auto& all) { std::get<0>(all) = b.ordinary(); }, 107000)
      .when(
          "unregistered before",
          [](Bench&, auto& all) { need(aclrtHostUnregister(std::get<0>(all)), "Unregister"); },
          107000);
  table.add("1.5", "aclrtHostGetDevicePointer", "an inner pointer keeps its offset", ACL_SUCCESS,
            [](Bench& b) {
              void* const memory = registered(b);
              void* start = nullptr;
              need(aclrtHostGetDevicePointer(memory, &start, 0), "aclrtHostGetDevicePointer");
              void** const inner = b.out<void*>();
              const aclError code = aclrtHostGetDevicePointer(plus(memory, 100), inner, 0);
              b.check(*inner == plus(start, 100), "the offset");
              return code;
            });
  Function(table, "1.5", "aclrtHostUnregister", aclrtHostUnregister,
           [](Bench& b) { return std::tuple(registered(b)); })
      .good("a registered page")
      .with<0>("ptr null", nullptr, 100000)
      .when(
          "ordinary memory", [](Bench& b, auto& all) { std::get<0>(all) = b.ordinary(); }, 507911)
      .when(
          "memory of MallocHost", [](Bench& b, auto& all) { std::get<0>(all) = b.host(); }, 507911)
      .when(
          "inside a registered page",
          [](Bench&, auto& all) { std::get<0>(all) = plus(std::get<0>(all), 64); }, 507911)
      .when(
          "unregistered before",
          [](Bench&, auto& all) { need(aclrtHostUnregister(std::get<0>(all)), "Unregister"); },
          507911)
      .without_context(107002);
  for (const bool still : {true, false}) {
    table.add("1.4", "aclrtPointerGetAttributes",
              still ? "a pinned page" : "a pinned page that was unregistered", ACL_SUCCESS,
              [still](Bench& b) {
                void* const memory = registered(b, ACL_HOST_REG_PINNED);
                if (!still) need(aclrtHostUnregister(memory), "aclrtHostUnregister");
                auto* const found = b.out<aclrtPtrAttributes>();
                const aclError code = aclrtPointerGetAttributes(memory, found);
                b.check_equal(static_cast<int>(found->location.type),
                              static_cast<int>(still ? ACL_MEM_LOCATION_TYPE_HOST
                                                     : ACL_MEM_LOCATION_TYPE_UNREGISTERED),
                              "location type");
                b.check_equal(found->location.id, 0U, "location id");
                return code;
              });
  }
  Function capabilities(table, "1.5", "aclrtHostMemMapCapabilities", aclrtHostMemMapCapabilities,
                        [](Bench& b) {
                          return std::tuple(std::uint32_t{0}, ACL_RT_HAC_TYPE_STARS,
                                            b.out<aclrtHostMemMapCapability>());
                        });
  for (int type = ACL_RT_HAC_TYPE_STARS; type <= ACL_RT_HAC_TYPE_CCU; ++type) {
    capabilities.when(
        fmt::format("type {}", type).c_str(),
        [type](Bench&, auto& all) { std::get<1>(all) = from_c<aclrtHacType>(type); }, ACL_SUCCESS,
        [](Bench& b, auto& all) {
          const int answer = *std::get<2>(all);
          b.check(answer == 0 || answer == 1, "0 or 1");
        });
  }
  capabilities.with<1>("type 10", from_c<aclrtHacType>(10), 107000)
      .with<1>("type -1", from_c<aclrtHacType>(-1), 107000)
      .with<0>("device 2", 2, 107001)
      .with<2>("capabilities null", nullptr, 100000);
}

}  // namespace

Table host_memory_cases() {
  Table table("host memory");
  malloc_host(table);
  free_host(table, "aclrtFreeHost", aclrtFreeHost);
  free_host(table, "aclrtFreeHostWithDevSync", aclrtFreeHostWithDevSync);
  registration(table);
  table.add("0.0", "aclrtFreeHost", "no context", ACL_SUCCESS, [](Bench& b) {
    void* const memory = b.host();
    return b.without_context([memory] { return aclrtFreeHost(memory); });
  });
  return table;
}

}  // namespace hufu::conformance
