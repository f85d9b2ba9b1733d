// Contract 1.7 and 1.4: what a device does on a stream besides plain copies. Reductions, copies
// whose ends a device's cell or descriptor names, cache maintenance.

#include "hufu/hufu.h"
#include "suite.h"

namespace hufu::conformance {
namespace {

constexpr const char* kNeverAllocated =
    "the same in MemGetAddressRange and on the device side of copies and sets";
constexpr aclError kUnregistered = ACL_ERROR_MEMORY_ADDRESS_UNREGISTERED;
constexpr std::size_t kBytes = 1000;
constexpr aclrtMemcpyKind kInner = ACL_MEMCPY_INNER_DEVICE_TO_DEVICE;

std::byte at(std::size_t index) { return static_cast<std::byte>(index * 7 + 1); }

void write_pattern(void* memory) {
  for (std::size_t i = 0; i < kPage; ++i)
    static_cast<std::byte*>(memory)[i] = at(i);
}

// Are the kBytes there those of the pattern, from `skipped` on?
bool holds_pattern(const void* memory, std::size_t skipped) {
  const auto* bytes = static_cast<const std::byte*>(memory);
  for (std::size_t i = 0; i < kBytes; ++i) {
    if (bytes[i] != at(i + skipped)) return false;
  }
  return true;
}

template <class T>
void reduces(Table& table, const char* type_name, aclDataType type, T one, T other, T sum,
             T greater, T less) {
  struct Kind {
    aclrtReduceKind kind;
    const char* name;
    T expected;
  };
  for (const Kind& kind : {Kind{ACL_RT_MEMCPY_SDMA_AUTOMATIC_SUM, "SUM", sum},
                           Kind{ACL_RT_MEMCPY_SDMA_AUTOMATIC_MAX, "MAX", greater},
                           Kind{ACL_RT_MEMCPY_SDMA_AUTOMATIC_MIN, "MIN", less}}) {
    table.add("1.7", "aclrtReduceAsync", fmt::format("{} of {}", kind.name, type_name), ACL_SUCCESS,
              [=](Bench& b) {
                auto* const to = static_cast<T*>(b.block());
                auto* const from = static_cast<T*>(b.block());
                std::fill_n(to, 10, one);
                std::fill_n(from, 10, other);
                const aclrtStream stream = b.stream();
                const aclError code =
                    aclrtReduceAsync(to, from, 9 * sizeof(T), kind.kind, type, stream, nullptr);
                need(aclrtSynchronizeStream(stream), "aclrtSynchronizeStream");
                b.check(std::all_of(to, to + 9, [&](T value) { return value == kind.expected; }),
                        "nine are reduced");
                b.check(to[9] == one, "count is in bytes: the tenth is untouched");
                return code;
              });
  }
}

void reductions(Table& table) {
  reduces<float>(table, "FLOAT", ACL_FLOAT, 1.5F, 2.25F, 3.75F, 2.25F, 1.5F);
  reduces<std::int32_t>(table, "INT32", ACL_INT32, -7, 5, -2, 5, -7);
  reduces<std::int16_t>(table, "INT16", ACL_INT16, -7, 5, -2, 5, -7);
  reduces<std::int8_t>(table, "INT8", ACL_INT8, -7, 5, -2, 5, -7);
  // 1.5 and 2 as the two sixteen-bit floats write them.
  reduces<std::uint16_t>(table, "FLOAT16", ACL_FLOAT16, 0x3e00, 0x4000, 0x4300, 0x4000, 0x3e00);
  reduces<std::uint16_t>(table, "BF16", ACL_BF16, 0x3fc0, 0x4000, 0x4060, 0x4000, 0x3fc0);
  Function(table, "1.7", "aclrtReduceAsync", aclrtReduceAsync,
           [](Bench& b) {
             return std::tuple(b.block(), static_cast<const void*>(b.block()), std::uint64_t{400},
                               ACL_RT_MEMCPY_SDMA_AUTOMATIC_SUM, ACL_INT32, b.stream(),
                               static_cast<void*>(nullptr));
           })
      .good()
      .with<0>("dst null", nullptr, 100000)
      .with<1>("src null", nullptr, 100000)
      .with<4>("an unknown type", from_c<aclDataType>(999), 100000)
      .with<3>("kind 9", from_c<aclrtReduceKind>(9), 107000)
      .with<3>("kind 14", from_c<aclrtReduceKind>(14), 107000)
      .when(
          "a destination never allocated",
          [](Bench& b, auto& all) { std::get<0>(all) = b.ordinary(); },
          differs(kNeverAllocated, kUnregistered, 107000))
      .when(
          "a stream of another context",
          [](Bench& b, auto& all) { std::get<5>(all) = b.foreign_stream(); }, 107003)
      .when(
          "a stream that was destroyed",
          [](Bench& b, auto& all) { std::get<5>(all) = b.destroyed_stream(); }, 107017)
      .without_context(107002);
}

void copies_by_cells(Table& table) {
  // Device cells that hold where the bytes are.
  const auto make = [](Bench& b) {
    auto** const cells = static_cast<void**>(b.block());
    cells[0] = b.block();
    void* const from = b.block();
    write_pattern(from);
    cells[1] = from;
    return std::tuple(cells, kPage, std::size_t{16}, const_cast<const void**>(cells + 1), kBytes,
                      std::size_t{32}, ACL_MEMCPY_INNER_DEVICE_TO_DEVICE, b.stream());
  };
  Function(table, "1.7", "aclrtMemcpyAsyncWithOffset", aclrtMemcpyAsyncWithOffset, make)
      .good("both offsets",
            [](Bench& b, auto& all) {
              need(aclrtSynchronizeDevice(), "aclrtSynchronizeDevice");
              const auto* to = static_cast<const std::byte*>(*std::get<0>(all));
              b.check(holds_pattern(to + 16, 32), "the bytes have arrived");
            })
      .with<4>("count 0", 0, ACL_SUCCESS)
      .with<6>("kind 3", ACL_MEMCPY_DEVICE_TO_DEVICE, 107000)
      .with<6>("kind 1", ACL_MEMCPY_HOST_TO_DEVICE, 107000)
      .with<6>("kind 7", ACL_MEMCPY_INTER_DEVICE_TO_DEVICE, 107000)
      .with<0>("dst null", nullptr, 100000)
      .with<3>("src null", nullptr, 100000)
      .when(
          "a stream of another context",
          [](Bench& b, auto& all) { std::get<7>(all) = b.foreign_stream(); }, 107003)
      .without_context(107002);
}

void copies_by_descriptor(Table& table) {
  Function(table, "1.7", "aclrtGetMemcpyDescSize", aclrtGetMemcpyDescSize,
           [](Bench& b) { return std::tuple(kInner, b.out<std::size_t>()); })
      .good("kind 6", [](Bench& b, auto& all) { b.check(*std::get<1>(all) != 0, "a size"); })
      .with<0>("kind 1", ACL_MEMCPY_HOST_TO_DEVICE, either(100000, 107000))
      .with<1>("descSize null", nullptr, 100000);
  const auto described = [](Bench& b) {
    std::size_t size = 0;
    need(aclrtGetMemcpyDescSize(kInner, &size), "aclrtGetMemcpyDescSize");
    void* const from = b.block();
    write_pattern(from);
    return std::tuple(b.block(size, ACL_MEM_MALLOC_NORMAL_ONLY), kInner, from, b.block(), kBytes,
                      static_cast<void*>(nullptr));
  };
  Function(table, "1.7", "aclrtSetMemcpyDesc", aclrtSetMemcpyDesc, described)
      .good()
      .with<0>("desc null", nullptr, 100000)
      .with<1>("kind 1", ACL_MEMCPY_HOST_TO_DEVICE, either(100000, 107000))
      .with<2>("srcAddr null", nullptr, 100000)
      .with<3>("dstAddr null", nullptr, 100000)
      .with<4>("count 0", 0, either(100000, 107000));
  const auto ready = [described](Bench& b) {
    auto all = described(b);
    need(std::apply(aclrtSetMemcpyDesc, all), "aclrtSetMemcpyDesc");
    void* const to = std::get<3>(all);
    const aclrtStream stream = b.stream();
    return std::pair(std::tuple(std::get<0>(all), kInner, stream), to);
  };
  table.add("1.7", "aclrtMemcpyAsyncWithDesc", "a described copy", ACL_SUCCESS, [ready](Bench& b) {
    const auto [all, to] = ready(b);
    const aclError code = std::apply(aclrtMemcpyAsyncWithDesc, all);
    need(aclrtSynchronizeDevice(), "aclrtSynchronizeDevice");
    b.check(holds_pattern(to, 0), "the bytes have arrived");
    return code;
  });
  Function(table, "1.7", "aclrtMemcpyAsyncWithDesc", aclrtMemcpyAsyncWithDesc,
           [ready](Bench& b) { return ready(b).first; })
      .with<0>("desc null", nullptr, 100000)
      .with<1>("kind 1", ACL_MEMCPY_HOST_TO_DEVICE, either(100000, 107000))
      .when(
          "a stream of another context",
          [](Bench& b, auto& all) { std::get<2>(all) = b.foreign_stream(); }, 107003)
      .without_context(107002);
}

void cache_maintenance(Table& table) {
  Function maintain(table, "1.4", "aclrtCmoAsync", aclrtCmoAsync, [](Bench& b) {
    return std::tuple(b.block(), kBytes, ACL_RT_CMO_TYPE_PREFETCH, b.stream());
  });
  maintain.good("PREFETCH")
      .with<0>("src null", nullptr, 100000)
      .with<1>("size 0", 0, 100000)
      .when(
          "a stream of another context",
          [](Bench& b, auto& all) { std::get<3>(all) = b.foreign_stream(); }, 107003)
      .when(
          "a stream that was destroyed",
          [](Bench& b, auto& all) { std::get<3>(all) = b.destroyed_stream(); }, 107017)
      .without_context(107002);
  Function(table, "1.4", "aclrtCmoGetDescSize", aclrtCmoGetDescSize,
           [](Bench& b) { return std::tuple(b.out<std::size_t>()); })
      .good()
      .with<0>("size null", nullptr, 100000);
  const auto described = [](Bench& b) {
    std::size_t size = 0;
    need(aclrtCmoGetDescSize(&size), "aclrtCmoGetDescSize");
    return std::tuple(b.block(size, ACL_MEM_MALLOC_NORMAL_ONLY), b.block(), kBytes);
  };
  Function(table, "1.4", "aclrtCmoSetDesc", aclrtCmoSetDesc, described)
      .good()
      .with<0>("cmoDesc null", nullptr, 100000)
      .with<1>("src null", nullptr, 100000)
      .with<2>("size 0", 0, 100000);
  Function(table, "1.4", "aclrtCmoAsyncWithDesc", aclrtCmoAsyncWithDesc,
           [described](Bench& b) {
             auto all = described(b);
             need(std::apply(aclrtCmoSetDesc, all), "aclrtCmoSetDesc");
             return std::tuple(std::get<0>(all), ACL_RT_CMO_TYPE_PREFETCH, b.stream(),
                               static_cast<const void*>(nullptr));
           })
      .good("PREFETCH")
      .with<0>("cmoDesc null", nullptr, 100000)
      .without_context(107002);
}

}  // namespace

Table task_cases() {
  Table table("tasks");
  reductions(table);
  copies_by_cells(table);
  copies_by_descriptor(table);
  cache_maintenance(table);
  return table;
}

}  // namespace hufu::conformance
