// Contract 1.6.

#include "suite.h"

namespace hufu::conformance {
namespace {

void* managed(Bench& bench, std::size_t size = kHuge) {
  void* address = nullptr;
  need(aclrtMemAllocManaged(&address, size, ACL_RT_MEM_ATTACH_GLOBAL), "aclrtMemAllocManaged");
  bench.finally([address] { (void)aclrtFree(address); });
  return address;
}

constexpr aclrtMemManagedLocation kDevice{.type = ACL_MEM_LOCATIONTYPE_DEVICE, .id = 0};
constexpr aclrtMemManagedLocation kHost{.type = ACL_MEM_LOCATIONTYPE_HOST, .id = 0};

void allocate(Table& table) {
  Function(table, "1.6", "aclrtMemAllocManaged", aclrtMemAllocManaged,
           [](Bench& b) {
             return std::tuple(b.freed_by(aclrtFree), std::uint64_t{kPage},
                               ACL_RT_MEM_ATTACH_GLOBAL);
           })
      .good("4096 bytes",
            [](Bench& b, auto& all) {
              std::memset(*std::get<0>(all), 1, kPage);
              std::size_t size = 0;
              need(aclrtMemGetAddressRange(*std::get<0>(all), nullptr, &size), "range");
              b.check_equal(size, kHuge, "size");
            })
      .with<0>("ptr null", nullptr, 100000)
      .with<1>("size 0", 0, 107000)
      .with<2>("flag 0", 0, 100000)
      .with<2>("flag 2", 2, 100000)
      .without_context(107002);
  table.add("1.4", "aclrtPointerGetAttributes", "managed memory", ACL_SUCCESS, [](Bench& b) {
    auto* const found = b.out<aclrtPtrAttributes>();
    const aclError code = aclrtPointerGetAttributes(managed(b), found);
    b.check_equal(static_cast<int>(found->location.type),
                  static_cast<int>(ACL_MEM_LOCATION_TYPE_MANAGED), "location type");
    return code;
  });
  table.add("1.4", "aclrtFree", "managed memory", ACL_SUCCESS,
            [](Bench& b) { return aclrtFree(managed(b)); });
  table.add("1.4", "aclrtFree", "managed memory, twice", 107000, [](Bench& b) {
    void* const address = managed(b);
    need(aclrtFree(address), "aclrtFree");
    return aclrtFree(address);
  });
  for (const auto kind : {ACL_MEMCPY_HOST_TO_DEVICE, ACL_MEMCPY_DEFAULT}) {
    table.add("1.7", "aclrtMemcpy", fmt::format("to managed memory, kind {}", int{kind}),
              ACL_SUCCESS, [kind](Bench& b) {
                auto* const to = static_cast<std::uint8_t*>(managed(b));
                auto* const from = b.host();
                std::memset(from, 0x31, 16);
                const aclError code = aclrtMemcpy(to, 16, from, 16, kind);
                b.check_equal(int{to[15]}, 0x31, "last byte");
                return code;
              });
  }
}

void advise(Table& table) {
  Function function(table, "1.6", "aclrtMemManagedAdvise", aclrtMemManagedAdvise, [](Bench& b) {
    return std::tuple(static_cast<const void*>(managed(b)), std::uint64_t{kHuge},
                      ACL_MEM_ADVISE_SET_READ_MOSTLY, kDevice);
  });
  for (int advice = ACL_MEM_ADVISE_SET_READ_MOSTLY; advice <= ACL_MEM_ADVISE_UNSET_ACCESSED_BY;
       ++advice) {
    function.with<2>(fmt::format("advice {}", advice).c_str(),
                     from_c<aclrtMemManagedAdviseType>(advice), ACL_SUCCESS);
  }
  function.with<0>("ptr null", nullptr, 100000)
      .with<1>("size 0", 0, 100000)
      .when(
          "ordinary memory", [](Bench& b, auto& all) { std::get<0>(all) = b.ordinary(); }, 107000)
      .when(
          "a block", [](Bench& b, auto& all) { std::get<0>(all) = b.block(); }, 107000)
      .with<1>("past the end", kHuge + kPage, 107000);
}

void prefetch(Table& table) {
  Function(table, "1.6", "aclrtMemManagedPrefetchAsync", aclrtMemManagedPrefetchAsync,
           [](Bench& b) {
             return std::tuple(static_cast<const void*>(managed(b)), kHuge, kDevice,
                               std::uint32_t{0}, b.stream());
           })
      .good("to the device")
      .with<2>("to the host", kHost, ACL_SUCCESS)
      .with<0>("ptr null", nullptr, 100000)
      .with<1>("size 0", 0, 100000)
      .with<3>("flags 1", 1, 107000)
      .when(
          "ordinary memory", [](Bench& b, auto& all) { std::get<0>(all) = b.ordinary(); }, 107000)
      .when(
          "a stream of another context",
          [](Bench& b, auto& all) { std::get<4>(all) = b.foreign_stream(); }, 107003)
      .when(
          "a stream that was destroyed",
          [](Bench& b, auto& all) { std::get<4>(all) = b.destroyed_stream(); }, 107017);
  Function(table, "1.6", "aclrtMemManagedPrefetchBatchAsync", aclrtMemManagedPrefetchBatchAsync,
           [](Bench& b) {
             return std::tuple(b.array<const void*>({managed(b), managed(b)}),
                               b.array<std::size_t>({kHuge, kHuge}), std::size_t{2},
                               b.array<aclrtMemManagedLocation>({kDevice, kHost, kHost}),
                               b.array<std::size_t>({0, 1, 2}), std::size_t{2}, std::uint64_t{0},
                               b.stream());
           })
      .good("one to the device and one to the host")
      .with<5>("one location for both", 1, ACL_SUCCESS)
      .with<0>("ptrs null", nullptr, 100000)
      .with<1>("sizes null", nullptr, 100000)
      .with<2>("count 0", 0, 100000)
      .with<3>("prefetchLocs null", nullptr, 100000)
      .with<4>("prefetchLocIdxs null", nullptr, 100000)
      .with<5>("numPrefetchLocs 0", 0, 100000)
      .with<5>("more locations than ranges", 3, 100000)
      .with<6>("flags 1", 1, 107000)
      .when(
          "a stream of another context",
          [](Bench& b, auto& all) { std::get<7>(all) = b.foreign_stream(); }, 107003);
}

void query(Table& table) {
  Function(table, "1.6", "aclrtMemManagedGetAttr", aclrtMemManagedGetAttr,
           [](Bench& b) {
             return std::tuple(ACL_MEM_RANGE_ATTRIBUTE_READ_MOSTLY,
                               static_cast<const void*>(managed(b)), kHuge,
                               static_cast<void*>(b.out<std::int32_t>()), std::size_t{4});
           })
      .good("READ_MOSTLY, never advised",
            [](Bench& b, auto& all) {
              b.check_equal(*static_cast<std::int32_t*>(std::get<3>(all)), 0, "value");
            })
      .when(
          "READ_MOSTLY, advised",
          [](Bench&, auto& all) {
            need(aclrtMemManagedAdvise(std::get<1>(all), kHuge, ACL_MEM_ADVISE_SET_READ_MOSTLY,
                                       kDevice),
                 "aclrtMemManagedAdvise");
          },
          ACL_SUCCESS,
          [](Bench& b, auto& all) {
            b.check_equal(*static_cast<std::int32_t*>(std::get<3>(all)), 1, "value");
          })
      .with<1>("ptr null", nullptr, 100000)
      .with<2>("size 0", 0, 100000)
      .with<3>("data null", nullptr, 100000)
      .with<4>("dataSize 8 of a value of 4", 8, 107000)
      .when(
          "ordinary memory", [](Bench& b, auto& all) { std::get<1>(all) = b.ordinary(); }, 107000);
  Function(table, "1.6", "aclrtMemManagedGetAttrs", aclrtMemManagedGetAttrs,
           [](Bench& b) {
             return std::tuple(b.array<aclrtMemManagedRangeAttribute>(
                                   {ACL_MEM_RANGE_ATTRIBUTE_READ_MOSTLY,
                                    ACL_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_TYPE}),
                               std::size_t{2}, static_cast<const void*>(managed(b)), kHuge,
                               b.array<void*>({b.out<std::int32_t>(), b.out<std::int32_t>()}),
                               b.array<std::size_t>({4, 4}));
           })
      .good("two")
      .with<0>("attributes null", nullptr, 100000)
      .with<1>("numAttributes 0", 0, 100000)
      .with<2>("ptr null", nullptr, 100000)
      .with<3>("size 0", 0, 100000)
      .with<4>("data null", nullptr, 100000)
      .with<5>("dataSizes null", nullptr, 100000)
      .when(
          "a size that does not fit", [](Bench&, auto& all) { std::get<5>(all)[1] = 3; }, 107000);
}

}  // namespace

Table managed_cases() {
  Table table("managed memory");
  allocate(table);
  advise(table);
  prefetch(table);
  query(table);
  return table;
}

}  // namespace hufu::conformance
