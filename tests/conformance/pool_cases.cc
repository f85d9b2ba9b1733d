// Contract 1.10: pools, with the documented behaviour of reuse and trimming.

#include "suite.h"

namespace hufu::conformance {
namespace {

constexpr std::size_t kMax = 8 * kHuge;

void* plus(void* address, std::size_t bytes) { return static_cast<std::byte*>(address) + bytes; }

aclrtMemPoolProps props(std::size_t max = kMax) {
  return {.allocType = ACL_MEM_ALLOCATION_TYPE_PINNED,
          .handleType = ACL_MEM_HANDLE_TYPE_NONE,
          .location = {.id = 0, .type = ACL_MEM_LOCATION_TYPE_DEVICE},
          .maxSize = max,
          .reserved = {}};
}

aclError destroy(aclrtMemPool pool) { return aclrtMemPoolDestroy(pool); }

aclrtMemPool pool(Bench& bench, std::size_t max = kMax) {
  aclrtMemPool made = nullptr;
  const aclrtMemPoolProps wanted = props(max);
  need(aclrtMemPoolCreate(&made, &wanted), "aclrtMemPoolCreate");
  bench.finally([made] { (void)aclrtMemPoolDestroy(made); });
  return made;
}

aclrtMemPool destroyed_pool() {
  aclrtMemPool made = nullptr;
  const aclrtMemPoolProps wanted = props();
  need(aclrtMemPoolCreate(&made, &wanted), "aclrtMemPoolCreate");
  need(aclrtMemPoolDestroy(made), "aclrtMemPoolDestroy");
  return made;
}

void* from_pool(aclrtMemPool pool, aclrtStream stream, std::size_t size = kHuge) {
  void* address = nullptr;
  need(aclrtMemPoolMallocAsync(&address, size, pool, stream), "aclrtMemPoolMallocAsync");
  return address;
}

void give_back(void* address, aclrtStream stream) {
  need(aclrtMemPoolFreeAsync(address, stream), "aclrtMemPoolFreeAsync");
}

std::uint64_t count(aclrtMemPool pool, aclrtMemPoolAttr attr) {
  std::uint64_t value = 0;
  need(aclrtMemPoolGetAttr(pool, attr, &value), "aclrtMemPoolGetAttr");
  return value;
}
std::uint64_t used(aclrtMemPool pool) { return count(pool, ACL_RT_MEM_POOL_ATTR_USED_MEM_CURRENT); }
std::uint64_t reserved(aclrtMemPool pool) {
  return count(pool, ACL_RT_MEM_POOL_ATTR_RESERVED_MEM_CURRENT);
}

void keep(aclrtMemPool pool, std::uint64_t threshold) {
  need(aclrtMemPoolSetAttr(pool, ACL_RT_MEM_POOL_ATTR_RELEASE_THRESHOLD, &threshold),
       "aclrtMemPoolSetAttr");
}

void create_and_destroy(Table& table) {
  const auto set = [](auto change) {
    return
        [change](Bench&, auto& all) { change(const_cast<aclrtMemPoolProps&>(*std::get<1>(all))); };
  };
  Function(table, "1.10", "aclrtMemPoolCreate", aclrtMemPoolCreate,
           [](Bench& b) {
             return std::tuple(b.freed_by<aclrtMemPool>(destroy),
                               static_cast<const aclrtMemPoolProps*>(b.array({props()})));
           })
      .good("16 MiB")
      .when("maxSize 0, which is the device's", set([](auto& wanted) { wanted.maxSize = 0; }),
            ACL_SUCCESS)
      .when("maxSize that is not a multiple of 2 MiB",
            set([](auto& wanted) { wanted.maxSize = kHuge + 1; }), ACL_SUCCESS)
      .when("handleType POSIX, which is ignored",
            set([](auto& wanted) { wanted.handleType = ACL_MEM_HANDLE_TYPE_POSIX; }), ACL_SUCCESS)
      .with<0>("memPool null", nullptr, 100000)
      .with<1>("poolProps null", nullptr, 100000)
      .when("allocType 1",
            set([](auto& wanted) { wanted.allocType = from_c<aclrtMemAllocationType>(1); }), 100000)
      .when("location HOST",
            set([](auto& wanted) { wanted.location.type = ACL_MEM_LOCATION_TYPE_HOST; }), 100000)
      .when("a reserved byte is not 0", set([](auto& wanted) { wanted.reserved[31] = 1; }), 100000)
      .when("device 2", set([](auto& wanted) { wanted.location.id = 2; }), 107001)
      .when(
          "more than the device has",
          [](Bench&, auto& all) {
            std::size_t free = 0;
            std::size_t total = 0;
            need(aclrtGetMemInfo(ACL_HBM_MEM, &free, &total), "aclrtGetMemInfo");
            const_cast<aclrtMemPoolProps*>(std::get<1>(all))->maxSize = total + kHuge;
          },
          107000)
      .without_context(107002);
  Function(table, "1.10", "aclrtMemPoolDestroy", aclrtMemPoolDestroy,
           [](Bench& b) { return std::tuple(pool(b)); })
      .good("a pool")
      .with<0>("memPool null", nullptr, 100000)
      .when(
          "a pool destroyed before", [](Bench&, auto& all) { std::get<0>(all) = destroyed_pool(); },
          507000)
      .when(
          "a value that is no pool",
          [](Bench& b, auto& all) {
            std::get<0>(all) = reinterpret_cast<aclrtMemPool>(b.ordinary());
          },
          507000)
      .when(
          "with a live allocation",
          [](Bench& b, auto& all) { (void)from_pool(std::get<0>(all), b.stream()); }, ACL_SUCCESS);
}

void attributes(Table& table) {
  // An attribute that is 32 bits wide, and one that is 64.
  constexpr aclrtMemPoolAttr kReuse[] = {ACL_RT_MEM_POOL_REUSE_FOLLOW_EVENT_DEPENDENCIES,
                                         ACL_RT_MEM_POOL_REUSE_ALLOW_OPPORTUNISTIC,
                                         ACL_RT_MEM_POOL_REUSE_ALLOW_INTERNAL_DEPENDENCIES};
  for (const aclrtMemPoolAttr attr : kReuse) {
    table.add("1.10", "aclrtMemPoolGetAttr", fmt::format("attribute {} is 0 at first", int{attr}),
              ACL_SUCCESS, [attr](Bench& b) {
                auto* const value = b.out<std::uint32_t>();
                const aclError code = aclrtMemPoolGetAttr(pool(b), attr, value);
                b.check_equal(*value, 0U, "value");
                return code;
              });
    table.add("1.10", "aclrtMemPoolSetAttr",
              fmt::format("attribute {}: what is not 0 is stored as 1", int{attr}), ACL_SUCCESS,
              [attr](Bench& b) {
                const aclrtMemPool made = pool(b);
                std::uint32_t value = 7;
                const aclError code = aclrtMemPoolSetAttr(made, attr, &value);
                need(aclrtMemPoolGetAttr(made, attr, &value), "aclrtMemPoolGetAttr");
                b.check_equal(value, 1U, "value");
                return code;
              });
  }
  for (int attr = ACL_RT_MEM_POOL_ATTR_RELEASE_THRESHOLD;
       attr <= ACL_RT_MEM_POOL_ATTR_USED_MEM_HIGH; ++attr) {
    table.add("1.10", "aclrtMemPoolGetAttr", fmt::format("attribute {} is 0 at first", attr),
              ACL_SUCCESS, [attr](Bench& b) {
                auto* const value = b.out<std::uint64_t>();
                const aclError code =
                    aclrtMemPoolGetAttr(pool(b), from_c<aclrtMemPoolAttr>(attr), value);
                b.check_equal(*value, std::uint64_t{0}, "value");
                return code;
              });
  }
  const auto unknown = [](Bench& b, auto& all) {
    std::get<0>(all) = reinterpret_cast<aclrtMemPool>(b.ordinary());
  };
  const auto destroyed = [](Bench&, auto& all) { std::get<0>(all) = destroyed_pool(); };
  Function(table, "1.10", "aclrtMemPoolGetAttr", aclrtMemPoolGetAttr,
           [](Bench& b) {
             return std::tuple(pool(b), ACL_RT_MEM_POOL_ATTR_RELEASE_THRESHOLD,
                               static_cast<void*>(b.out<std::uint64_t>()));
           })
      .with<0>("memPool null", nullptr, 100000)
      .with<2>("value null", nullptr, 107000)
      .when("a value that is no pool", unknown, 107000)
      .when("a pool destroyed before", destroyed, 107000)
      .with<1>("attribute 0", from_c<aclrtMemPoolAttr>(0), 507000)
      .with<1>("attribute 9", from_c<aclrtMemPoolAttr>(9), 507000);
  const auto set = [](aclrtMemPoolAttr attr, std::uint64_t value) {
    return [=](Bench& b, auto& all) {
      std::get<1>(all) = attr;
      std::get<2>(all) = b.array<std::uint64_t>({value});
    };
  };
  Function(table, "1.10", "aclrtMemPoolSetAttr", aclrtMemPoolSetAttr,
           [](Bench& b) {
             return std::tuple(pool(b), ACL_RT_MEM_POOL_ATTR_RELEASE_THRESHOLD,
                               static_cast<void*>(b.array<std::uint64_t>({kHuge})));
           })
      .good("a threshold",
            [](Bench& b, auto& all) {
              b.check_equal(count(std::get<0>(all), ACL_RT_MEM_POOL_ATTR_RELEASE_THRESHOLD), kHuge,
                            "threshold");
            })
      .with<0>("memPool null", nullptr, 100000)
      .with<2>("value null", nullptr, 107000)
      .when("a value that is no pool", unknown, 107000)
      .when("a pool destroyed before", destroyed, 107000)
      .when("RESERVED_MEM_CURRENT", set(ACL_RT_MEM_POOL_ATTR_RESERVED_MEM_CURRENT, 0), 107000)
      .when("USED_MEM_CURRENT", set(ACL_RT_MEM_POOL_ATTR_USED_MEM_CURRENT, 0), 107000)
      .when("RESERVED_MEM_HIGH to 0", set(ACL_RT_MEM_POOL_ATTR_RESERVED_MEM_HIGH, 0), ACL_SUCCESS)
      .when("USED_MEM_HIGH to 0", set(ACL_RT_MEM_POOL_ATTR_USED_MEM_HIGH, 0), ACL_SUCCESS)
      .when("RESERVED_MEM_HIGH to 1", set(ACL_RT_MEM_POOL_ATTR_RESERVED_MEM_HIGH, 1), 507000)
      .when("USED_MEM_HIGH to 1", set(ACL_RT_MEM_POOL_ATTR_USED_MEM_HIGH, 1), 507000)
      .when("a threshold greater than the pool",
            set(ACL_RT_MEM_POOL_ATTR_RELEASE_THRESHOLD, kMax + 1), 507000)
      .when("attribute 0", set(from_c<aclrtMemPoolAttr>(0), 0), 507000)
      .when("attribute 9", set(from_c<aclrtMemPoolAttr>(9), 0), 507000);
}

void mallocs(Table& table) {
  const char* const name = "aclrtMemPoolMallocAsync";
  Function(table, "1.10", name, aclrtMemPoolMallocAsync,
           [](Bench& b) {
             const aclrtMemPool from = pool(b);
             const aclrtStream stream = b.stream();
             return std::tuple(b.out<void*>(), kHuge, from, stream);
           })
      .good("2 MiB", [](Bench&, auto& all) { std::memset(*std::get<0>(all), 1, kHuge); })
      .with<1>("the whole pool", kMax, ACL_SUCCESS)
      .with<0>("ptr null", nullptr, 100000)
      .with<2>("memPool null", nullptr, 100000)
      .with<1>("more than the pool", kMax + 1, 507000)
      .with<1>("a size that wraps", SIZE_MAX, 507000)
      .when(
          "a pool destroyed before", [](Bench&, auto& all) { std::get<2>(all) = destroyed_pool(); },
          507000)
      .when(
          "a value that is no pool",
          [](Bench& b, auto& all) {
            std::get<2>(all) = reinterpret_cast<aclrtMemPool>(b.ordinary());
          },
          507000)
      .when(
          "a stream of another context",
          [](Bench& b, auto& all) { std::get<3>(all) = b.foreign_stream(); }, 107003)
      .when(
          "a stream that was destroyed",
          [](Bench& b, auto& all) { std::get<3>(all) = b.destroyed_stream(); }, 107017)
      .without_context(107002);
  table.add("1.10", name, "size 0 leaves the output alone", ACL_SUCCESS, [](Bench& b) {
    void** const made = b.maybe_out<void*>();
    const aclError code = aclrtMemPoolMallocAsync(made, 0, pool(b), b.stream());
    b.check(!b.written(made), "the output is untouched");
    return code;
  });
  table.add("1.10", name, "counts as used and as reserved", ACL_SUCCESS, [](Bench& b) {
    const aclrtMemPool from = pool(b);
    void** const made = b.out<void*>();
    const aclError code = aclrtMemPoolMallocAsync(made, 2 * kHuge, from, b.stream());
    b.check_equal(used(from), 2 * kHuge, "used");
    b.check_equal(reserved(from), 2 * kHuge, "reserved");
    return code;
  });
  table.add("1.10", name, "the marks stay high", ACL_SUCCESS, [](Bench& b) {
    const aclrtMemPool from = pool(b);
    const aclrtStream stream = b.stream();
    void* const first = from_pool(from, stream, 3 * kHuge);
    give_back(first, stream);
    const aclError code = aclrtSynchronizeStream(stream);
    b.check_equal(used(from), std::uint64_t{0}, "used");
    b.check_equal(count(from, ACL_RT_MEM_POOL_ATTR_USED_MEM_HIGH), 3 * kHuge, "used, high");
    b.check_equal(count(from, ACL_RT_MEM_POOL_ATTR_RESERVED_MEM_HIGH), 3 * kHuge, "reserved, high");
    return code;
  });
  table.add("9 row 20", name, "the same stream reuses what it freed", ACL_SUCCESS, [](Bench& b) {
    const aclrtMemPool from = pool(b);
    keep(from, kMax);
    const aclrtStream stream = b.stream();
    void* const first = from_pool(from, stream);
    give_back(first, stream);
    void** const made = b.out<void*>();
    const aclError code = aclrtMemPoolMallocAsync(made, kHuge, from, stream);
    b.check(*made == first, "the same address");
    b.check_equal(reserved(from), kHuge, "reserved");
    return code;
  });
  table.add("9 row 20", name, "the closest fit is reused", ACL_SUCCESS, [](Bench& b) {
    const aclrtMemPool from = pool(b);
    keep(from, kMax);
    const aclrtStream stream = b.stream();
    void* const large = from_pool(from, stream, 3 * kHuge);
    void* const wall = from_pool(from, stream);
    void* const fits = from_pool(from, stream, kHuge);
    void* const other_wall = from_pool(from, stream);
    give_back(large, stream);
    give_back(fits, stream);
    void** const made = b.out<void*>();
    const aclError code = aclrtMemPoolMallocAsync(made, kHuge, from, stream);
    b.check(*made == fits, "the one that fits");
    give_back(wall, stream);
    give_back(other_wall, stream);
    return code;
  });
}

void frees(Table& table) {
  const char* const name = "aclrtMemPoolFreeAsync";
  Function(table, "1.10", name, aclrtMemPoolFreeAsync,
           [](Bench& b) {
             const aclrtMemPool from = pool(b);
             const aclrtStream stream = b.stream();
             return std::tuple(from_pool(from, stream), stream);
           })
      .good("memory of a pool")
      .when(
          "a block of aclrtMalloc", [](Bench& b, auto& all) { std::get<0>(all) = b.block(); },
          ACL_SUCCESS)
      .with<0>("ptr null", nullptr, 100000)
      .with<1>("stream null", nullptr, 507000)
      .when(
          "freed before",
          [](Bench&, auto& all) { need(std::apply(aclrtMemPoolFreeAsync, all), "free"); }, 107000)
      .when(
          "inside an allocation",
          [](Bench&, auto& all) { std::get<0>(all) = plus(std::get<0>(all), kPage); }, 107000)
      .when(
          "a stream that was destroyed",
          [](Bench& b, auto& all) { std::get<1>(all) = b.destroyed_stream(); }, 107017)
      .without_context(107002);
  table.add("1.10", "aclrtFree", "memory of a pool goes back to it at once", ACL_SUCCESS,
            [](Bench& b) {
              const aclrtMemPool from = pool(b);
              void* const address = from_pool(from, b.stream());
              const aclError code = aclrtFree(address);
              b.check_equal(used(from), std::uint64_t{0}, "used");
              return code;
            });
  table.add("1.10", "aclrtFree", "memory of a pool, twice", 107000, [](Bench& b) {
    void* const address = from_pool(pool(b), b.stream());
    need(aclrtFree(address), "aclrtFree");
    return aclrtFree(address);
  });
  table.add("9 row 20", "aclrtSynchronizeStream", "frees what is above the threshold", ACL_SUCCESS,
            [](Bench& b) {
              const aclrtMemPool from = pool(b);
              const aclrtStream stream = b.stream();
              give_back(from_pool(from, stream, 2 * kHuge), stream);
              const aclError code = aclrtSynchronizeStream(stream);
              b.check_equal(reserved(from), std::uint64_t{0}, "reserved");
              return code;
            });
  table.add("9 row 20", "aclrtSynchronizeStream", "keeps what is below the threshold", ACL_SUCCESS,
            [](Bench& b) {
              const aclrtMemPool from = pool(b);
              keep(from, 2 * kHuge);
              const aclrtStream stream = b.stream();
              give_back(from_pool(from, stream, 2 * kHuge), stream);
              const aclError code = aclrtSynchronizeStream(stream);
              b.check_equal(reserved(from), 2 * kHuge, "reserved");
              return code;
            });
}

void trims(Table& table) {
  const auto filled = [](Bench& b, std::size_t live, std::size_t freed) {
    const aclrtMemPool made = pool(b);
    keep(made, kMax);
    const aclrtStream stream = b.stream();
    if (live != 0) (void)from_pool(made, stream, live);
    if (freed != 0) give_back(from_pool(made, stream, freed), stream);
    need(aclrtSynchronizeStream(stream), "aclrtSynchronizeStream");
    return made;
  };
  Function(table, "1.10", "aclrtMemPoolTrimTo", aclrtMemPoolTrimTo,
           [filled](Bench& b) { return std::tuple(filled(b, 0, 4 * kHuge), std::size_t{0}); })
      .good("to nothing",
            [](Bench& b, auto& all) {
              b.check_equal(reserved(std::get<0>(all)), std::uint64_t{0}, "reserved");
            })
      .when(
          "to what is reserved", [](Bench&, auto& all) { std::get<1>(all) = 4 * kHuge; },
          ACL_SUCCESS,
          [](Bench& b, auto& all) {
            b.check_equal(reserved(std::get<0>(all)), 4 * kHuge, "reserved");
          })
      .when(
          "to what is in use",
          [filled](Bench& b, auto& all) {
            std::get<0>(all) = filled(b, 2 * kHuge, 2 * kHuge);
            std::get<1>(all) = 2 * kHuge;
          },
          ACL_SUCCESS,
          [](Bench& b, auto& all) {
            b.check_equal(reserved(std::get<0>(all)), 2 * kHuge, "reserved");
          })
      .when(
          "to less than is in use",
          [filled](Bench& b, auto& all) {
            std::get<0>(all) = filled(b, 2 * kHuge, 2 * kHuge);
            std::get<1>(all) = kHuge;
          },
          507000)
      .with<1>("to more than the pool", kMax + 1, 507000)
      .with<0>("memPool null", nullptr, 100000)
      .when(
          "a pool destroyed before", [](Bench&, auto& all) { std::get<0>(all) = destroyed_pool(); },
          507000)
      .when(
          "a value that is no pool",
          [](Bench& b, auto& all) {
            std::get<0>(all) = reinterpret_cast<aclrtMemPool>(b.ordinary());
          },
          507000);
}

void what_it_is(Table& table) {
  table.add("1.4", "aclrtPointerGetAttributes", "memory of a pool", ACL_SUCCESS, [](Bench& b) {
    void* const address = from_pool(pool(b), b.stream());
    auto* const found = b.out<aclrtPtrAttributes>();
    const aclError code = aclrtPointerGetAttributes(plus(address, 100), found);
    b.check_equal(static_cast<int>(found->location.type),
                  static_cast<int>(ACL_MEM_LOCATION_TYPE_DEVICE), "location type");
    return code;
  });
  table.add("1.7", "aclrtMemcpyAsync", "to memory of a pool, in the stream's order", ACL_SUCCESS,
            [](Bench& b) {
              const aclrtStream stream = b.stream();
              auto* const address = static_cast<std::uint8_t*>(from_pool(pool(b), stream));
              auto* const host = static_cast<std::uint8_t*>(b.host());
              host[0] = 0x21;
              const aclError code =
                  aclrtMemcpyAsync(address, 16, host, 16, ACL_MEMCPY_HOST_TO_DEVICE, stream);
              need(aclrtSynchronizeStream(stream), "aclrtSynchronizeStream");
              b.check_equal(int{address[0]}, 0x21, "first byte");
              return code;
            });
}

void keys(Table& table) {
  table.add("1.9", "aclrtIpcMemGetExportKey", "memory of a pool",
            differs("VMM and pool memory by key: 507899", ACL_SUCCESS, 507899), [](Bench& b) {
              void* const address = from_pool(pool(b), b.stream());
              return aclrtIpcMemGetExportKey(address, kHuge, static_cast<char*>(b.out_bytes(65)),
                                             65, 1);
            });
}

}  // namespace

Table pool_cases() {
  Table table("pools");
  create_and_destroy(table);
  attributes(table);
  mallocs(table);
  frees(table);
  trims(table);
  what_it_is(table);
  keys(table);
  return table;
}

}  // namespace hufu::conformance
