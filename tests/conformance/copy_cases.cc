// Contract 1.7.

#include <algorithm>

#include "hufu/hufu.h"
#include "suite.h"

namespace hufu::conformance {
namespace {

constexpr const char* kNeverAllocated =
    "the same in MemGetAddressRange and on the device side of copies and sets";
constexpr aclError kUnregistered = ACL_ERROR_MEMORY_ADDRESS_UNREGISTERED;
constexpr std::size_t kBytes = 1000;

enum class Side : std::uint8_t { kDevice, kPinned, kOrdinary };

const char* name_of(Side side) {
  switch (side) {
    case Side::kDevice:
      return "device";
    case Side::kPinned:
      return "pinned host";
    case Side::kOrdinary:
      return "ordinary host";
  }
  return "";
}

void* memory(Bench& bench, Side side) {
  switch (side) {
    case Side::kDevice:
      return bench.block();
    case Side::kPinned:
      return bench.host();
    case Side::kOrdinary:
      return bench.ordinary();
  }
  return nullptr;
}

const std::byte* pattern() {
  static const std::vector<std::byte> bytes = [] {
    std::vector<std::byte> made(kPage);
    for (std::size_t i = 0; i < made.size(); ++i)
      made[i] = static_cast<std::byte>(i * 7 + 1);
    return made;
  }();
  return bytes.data();
}

bool holds_pattern(const void* memory, std::size_t bytes = kBytes) {
  return std::memcmp(memory, pattern(), bytes) == 0;
}

bool all_are(const void* memory, std::size_t bytes, int value) {
  const auto* begin = static_cast<const std::byte*>(memory);
  return std::all_of(begin, begin + bytes,
                     [value](std::byte byte) { return byte == static_cast<std::byte>(value); });
}

struct Direction {
  const char* name;
  aclrtMemcpyKind kind;
  Side to;
  Side from;
};

// What is said of aclrtMemcpy and of aclrtMemcpyAsync alike. `call` has its stream bound.
template <class... Args, class Make>
void copies(Table& table, const char* name,
            aclError (*call)(void*, std::size_t, const void*, std::size_t, aclrtMemcpyKind,
                             Args...),
            Make rest, std::vector<Direction> directions) {
  const auto make = [rest](Bench& b) {
    void* const from = b.host();
    std::memcpy(from, pattern(), kPage);
    return std::tuple_cat(std::tuple(b.block(), kBytes, static_cast<const void*>(from), kBytes,
                                     ACL_MEMCPY_HOST_TO_DEVICE),
                          rest(b));
  };
  Function function(table, "1.7", name, call, make);
  const auto arrived = [](Bench& b, auto& all) {
    need(aclrtSynchronizeDevice(), "aclrtSynchronizeDevice");
    b.check(holds_pattern(std::get<0>(all)), "the bytes have arrived");
  };
  for (const Direction& direction : directions) {
    function.when(
        fmt::format("{}, {} to {}", direction.name, name_of(direction.from), name_of(direction.to))
            .c_str(),
        [direction](Bench& b, auto& all) {
          void* const from = memory(b, direction.from);
          std::memcpy(from, pattern(), kPage);
          std::get<0>(all) = memory(b, direction.to);
          std::get<2>(all) = from;
          std::get<4>(all) = direction.kind;
        },
        ACL_SUCCESS, arrived);
  }
  const auto nothing = [](Bench&, auto& all) { std::get<3>(all) = 0; };
  function.when("count 0", nothing, ACL_SUCCESS)
      .when(
          "count 0 and nothing else right",
          [](Bench&, auto& all) {
            std::get<0>(all) = nullptr;
            std::get<1>(all) = 0;
            std::get<2>(all) = nullptr;
            std::get<3>(all) = 0;
            std::get<4>(all) = from_c<aclrtMemcpyKind>(99);
          },
          ACL_SUCCESS)
      .template with<0>("dst null", nullptr, 100000)
      .template with<2>("src null", nullptr, 100000)
      .template with<4>("kind 6", ACL_MEMCPY_INNER_DEVICE_TO_DEVICE, 100000)
      .template with<4>("kind 7", ACL_MEMCPY_INTER_DEVICE_TO_DEVICE, 100000)
      .template with<4>("kind 8", from_c<aclrtMemcpyKind>(8), 100000)
      .template with<4>("kind -1", from_c<aclrtMemcpyKind>(-1), 100000)
      .template with<1>("destMax 0", 0, 107000)
      .template with<1>("count greater than destMax", kBytes - 1, 107000)
      .when(
          "more than the device block has",
          [](Bench& b, auto& all) {
            std::get<0>(all) = b.block(kPage, ACL_MEM_MALLOC_NORMAL_ONLY);
            std::get<2>(all) = b.host(4 * kPage);
            std::get<1>(all) = 3 * kPage;
            std::get<3>(all) = 3 * kPage;
          },
          107000)
      .when(
          "a device block freed before",
          [](Bench&, auto& all) { need(aclrtFree(std::get<0>(all)), "aclrtFree"); },
          differs(kNeverAllocated, kUnregistered, 107000))
      .when(
          "a device side that is ordinary memory",
          [](Bench& b, auto& all) { std::get<0>(all) = b.ordinary(); },
          differs(kNeverAllocated, kUnregistered, 107000))
      .when(
          "device to host, a source that is ordinary memory",
          [](Bench& b, auto& all) {
            std::get<0>(all) = b.host();
            std::get<2>(all) = b.ordinary();
            std::get<4>(all) = ACL_MEMCPY_DEVICE_TO_HOST;
          },
          differs(kNeverAllocated, kUnregistered, 107000))
      .when(
          "device to device, a source that is pinned host memory",
          [](Bench&, auto& all) { std::get<4>(all) = ACL_MEMCPY_DEVICE_TO_DEVICE; }, 107000)
      .without_context(107002)
      .without_context(ACL_SUCCESS, "count 0, no context", nothing);
}

void memcpys(Table& table) {
  const Side device = Side::kDevice;
  const Side pinned = Side::kPinned;
  const Side ordinary = Side::kOrdinary;
  std::vector<Direction> directions = {
      {"HOST_TO_DEVICE", ACL_MEMCPY_HOST_TO_DEVICE, device, pinned},
      {"HOST_TO_DEVICE", ACL_MEMCPY_HOST_TO_DEVICE, device, ordinary},
      {"DEVICE_TO_HOST", ACL_MEMCPY_DEVICE_TO_HOST, pinned, device},
      {"DEVICE_TO_HOST", ACL_MEMCPY_DEVICE_TO_HOST, ordinary, device},
      {"DEVICE_TO_DEVICE", ACL_MEMCPY_DEVICE_TO_DEVICE, device, device},
      {"DEFAULT", ACL_MEMCPY_DEFAULT, device, pinned},
      {"DEFAULT", ACL_MEMCPY_DEFAULT, device, ordinary},
      {"DEFAULT", ACL_MEMCPY_DEFAULT, pinned, device},
      {"DEFAULT", ACL_MEMCPY_DEFAULT, ordinary, device},
      {"DEFAULT", ACL_MEMCPY_DEFAULT, device, device},
      {"HOST_TO_BUF_TO_DEVICE", ACL_MEMCPY_HOST_TO_BUF_TO_DEVICE, device, pinned},
  };
  copies(
      table, "aclrtMemcpyAsync", aclrtMemcpyAsync, [](Bench& b) { return std::tuple(b.stream()); },
      directions);
  directions.push_back({"HOST_TO_HOST", ACL_MEMCPY_HOST_TO_HOST, pinned, pinned});
  directions.push_back({"HOST_TO_HOST", ACL_MEMCPY_HOST_TO_HOST, ordinary, ordinary});
  copies(
      table, "aclrtMemcpy", aclrtMemcpy, [](Bench&) { return std::tuple<>(); }, directions);
  table.add("1.7", "aclrtMemcpy", "dst is src", ACL_SUCCESS, [](Bench& b) {
    void* const block = b.block();
    std::memcpy(block, pattern(), kPage);
    const aclError code = aclrtMemcpy(block, kPage, block, kPage, ACL_MEMCPY_DEVICE_TO_DEVICE);
    b.check(holds_pattern(block, kPage), "nothing has changed");
    return code;
  });
  table.add_on_pages(
      "1.7", "aclrtMemcpy", "a whole block of this run's pages there and back", ACL_SUCCESS,
      [](Bench& b) {
        auto* block = static_cast<std::byte*>(b.block());
        void* const back = b.host();
        std::byte* const end = block + b.page() - kPage;
        need(aclrtMemcpy(end, kPage, pattern(), kPage, ACL_MEMCPY_HOST_TO_DEVICE), "aclrtMemcpy");
        const aclError code = aclrtMemcpy(back, kPage, end, kPage, ACL_MEMCPY_DEVICE_TO_HOST);
        b.check(holds_pattern(back, kPage), "the bytes have arrived");
        return code;
      });

  const auto async_make = [](Bench& b) {
    return std::tuple(b.block(), kBytes, static_cast<const void*>(b.host()), kBytes,
                      ACL_MEMCPY_HOST_TO_DEVICE, b.stream());
  };
  Function(table, "1.7", "aclrtMemcpyAsync", aclrtMemcpyAsync, async_make)
      .with<5>("stream null, which is the default one", nullptr, ACL_SUCCESS)
      .when(
          "HOST_TO_HOST",
          [](Bench& b, auto& all) {
            std::get<0>(all) = b.host();
            std::get<4>(all) = ACL_MEMCPY_HOST_TO_HOST;
          },
          207000)
      .when(
          "a stream of another context",
          [](Bench& b, auto& all) { std::get<5>(all) = b.foreign_stream(); }, 107003)
      .when(
          "a stream that was destroyed",
          [](Bench& b, auto& all) { std::get<5>(all) = b.destroyed_stream(); }, 107017);
}

template <class... Args, class Make>
void sets(Table& table, const char* name,
          aclError (*call)(void*, std::size_t, std::int32_t, std::size_t, Args...), Make rest) {
  const auto nothing = [](Bench&, auto& all) {
    std::get<0>(all) = nullptr;
    std::get<3>(all) = 0;
  };
  const auto is_set = [](Bench& b, auto& all) {
    need(aclrtSynchronizeDevice(), "aclrtSynchronizeDevice");
    b.check(all_are(std::get<0>(all), kBytes, 0x5a), "all bytes are set");
  };
  Function(table, "1.7", name, call,
           [rest](Bench& b) {
             return std::tuple_cat(std::tuple(b.block(), kBytes, 0x5a, kBytes), rest(b));
           })
      .good("a block", is_set)
      .when(
          "pinned host memory", [](Bench& b, auto& all) { std::get<0>(all) = b.host(); },
          ACL_SUCCESS, is_set)
      .when("count 0 and devPtr null", nothing, ACL_SUCCESS)
      .template with<0>("devPtr null", nullptr, 100000)
      .template with<1>("count greater than maxCount", kBytes - 1, 107000)
      .template with<1>("maxCount 0", 0, 107000)
      .when(
          "more than the block has",
          [](Bench& b, auto& all) {
            std::get<0>(all) = b.block(kPage, ACL_MEM_MALLOC_NORMAL_ONLY);
            std::get<1>(all) = 3 * kPage;
            std::get<3>(all) = 3 * kPage;
          },
          107000)
      .without_context(107002)
      .without_context(ACL_SUCCESS, "count 0, no context", nothing);
}

void memsets(Table& table) {
  sets(table, "aclrtMemset", aclrtMemset, [](Bench&) { return std::tuple<>(); });
  sets(table, "aclrtMemsetAsync", aclrtMemsetAsync,
       [](Bench& b) { return std::tuple(b.stream()); });
  table.add("1.7", "aclrtMemset", "memory on the stack", ACL_SUCCESS, [](Bench& b) {
    std::array<std::byte, 16> memory{};
    const aclError code = aclrtMemset(memory.data(), memory.size(), 0x5a, memory.size());
    b.check(all_are(memory.data(), memory.size(), 0x5a), "all bytes are set");
    return code;
  });
  table.add("1.7", "aclrtMemset", "only the lowest byte of the value counts", ACL_SUCCESS,
            [](Bench& b) {
              void* const block = b.block();
              const aclError code = aclrtMemset(block, kBytes, 0x1234, kBytes);
              b.check(all_are(block, kBytes, 0x34), "all bytes are set");
              return code;
            });
  Function(table, "1.7", "aclrtMemsetAsync", aclrtMemsetAsync,
           [](Bench& b) { return std::tuple(b.block(), kBytes, 1, kBytes, b.stream()); })
      .with<4>("stream null, which is the default one", nullptr, ACL_SUCCESS)
      .when(
          "a stream of another context",
          [](Bench& b, auto& all) { std::get<4>(all) = b.foreign_stream(); }, 107003)
      .when(
          "a stream that was destroyed",
          [](Bench& b, auto& all) { std::get<4>(all) = b.destroyed_stream(); }, 107017);
}

}  // namespace

Table copy_cases() {
  Table table("copies");
  memcpys(table);
  memsets(table);
  return table;
}

}  // namespace hufu::conformance
