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

}  // namespace

Table host_memory_cases() {
  Table table("host memory");
  malloc_host(table);
  free_host(table, "aclrtFreeHost", aclrtFreeHost);
  table.add("0.0", "aclrtFreeHost", "no context", ACL_SUCCESS, [](Bench& b) {
    void* const memory = b.host();
    return b.without_context([memory] { return aclrtFreeHost(memory); });
  });
  return table;
}

}  // namespace hufu::conformance
