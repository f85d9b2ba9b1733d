// Contract 1.7.

#include <algorithm>

#include "hufu/hufu.h"
#include "suite.h"

namespace hufu::conformance {
namespace {

constexpr const char* kNeverAllocated =
    "the same in MemGetAddressRange and on the device side of copies and sets";
constexpr const char* kUnknownWords = "aclrtMemsetD32 of memory the runtime does not know: 100000";
constexpr const char* kBatches =
    "aclrtMemcpyBatch and its kin: only between host and one device, else 207000";
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
  std::vector<Direction> without_ordinary = directions;
  std::erase_if(without_ordinary, [](const Direction& direction) {
    return direction.to == Side::kOrdinary || direction.from == Side::kOrdinary;
  });
  copies(
      table, "aclrtMemcpyAsyncWithCondition", aclrtMemcpyAsyncWithCondition,
      [](Bench& b) { return std::tuple(b.stream()); }, without_ordinary);
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
  for (const bool condition : {false, true})
    Function(table, "1.7", condition ? "aclrtMemcpyAsyncWithCondition" : "aclrtMemcpyAsync",
             condition ? aclrtMemcpyAsyncWithCondition : aclrtMemcpyAsync, async_make)
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

// Rows of 100 bytes, 200 apart where they come from, 300 where they go.
constexpr std::size_t kWidth = 100;
constexpr std::size_t kHeight = 5;
constexpr std::size_t kSourcePitch = 200;
constexpr std::size_t kTargetPitch = 300;

void expect_rows(Bench& bench, const void* to) {
  const auto* target = static_cast<const std::byte*>(to);
  for (std::size_t row = 0; row < kHeight; ++row) {
    const std::byte* const begin = target + row * kTargetPitch;
    bench.check(std::memcmp(begin, pattern() + row * kSourcePitch, kWidth) == 0,
                "the row has arrived");
    bench.check(all_are(begin + kWidth, kTargetPitch - kWidth, 0), "between rows nothing changes");
  }
}

template <class... Args, class Make>
void copies_2d(Table& table, const char* name,
               aclError (*call)(void*, std::size_t, const void*, std::size_t, std::size_t,
                                std::size_t, aclrtMemcpyKind, Args...),
               Make rest, bool device_to_device) {
  const auto put = [](Bench& b, auto& all, Side to, Side from, aclrtMemcpyKind kind) {
    void* const source = memory(b, from);
    std::memcpy(source, pattern(), kPage);
    std::get<0>(all) = memory(b, to);
    std::memset(std::get<0>(all), 0, kPage);
    std::get<2>(all) = source;
    std::get<6>(all) = kind;
  };
  const auto between = [put](Side to, Side from, aclrtMemcpyKind kind) {
    return [=](Bench& b, auto& all) { put(b, all, to, from, kind); };
  };
  const auto arrived = [](Bench& b, auto& all) {
    need(aclrtSynchronizeDevice(), "aclrtSynchronizeDevice");
    expect_rows(b, std::get<0>(all));
  };
  Function function(table, "1.7", name, call, [rest](Bench& b) {
    return std::tuple_cat(std::tuple(b.block(), kTargetPitch, static_cast<const void*>(b.host()),
                                     kSourcePitch, kWidth, kHeight, ACL_MEMCPY_HOST_TO_DEVICE),
                          rest(b));
  });
  const Side device = Side::kDevice;
  const Side pinned = Side::kPinned;
  const Side ordinary = Side::kOrdinary;
  function
      .when("pinned host to device", between(device, pinned, ACL_MEMCPY_HOST_TO_DEVICE), 0, arrived)
      .when("ordinary host to device", between(device, ordinary, ACL_MEMCPY_HOST_TO_DEVICE), 0,
            arrived)
      .when("device to pinned host", between(pinned, device, ACL_MEMCPY_DEVICE_TO_HOST), 0, arrived)
      .when("device to ordinary host", between(ordinary, device, ACL_MEMCPY_DEVICE_TO_HOST), 0,
            arrived)
      .when("DEFAULT, host to device", between(device, pinned, ACL_MEMCPY_DEFAULT), 0, arrived)
      .when("DEFAULT, device to host", between(ordinary, device, ACL_MEMCPY_DEFAULT), 0, arrived)
      .when("DEFAULT, host to host", between(pinned, pinned, ACL_MEMCPY_DEFAULT), 107000)
      .when("host to device, but both are the host's",
            between(pinned, pinned, ACL_MEMCPY_HOST_TO_DEVICE), 107000)
      .when(
          "width 0", [](Bench&, auto& all) { std::get<4>(all) = 0; }, ACL_SUCCESS)
      .when(
          "height 0", [](Bench&, auto& all) { std::get<5>(all) = 0; }, ACL_SUCCESS)
      .template with<0>("dst null", nullptr, 100000)
      .template with<2>("src null", nullptr, 100000)
      .template with<1>("width greater than dpitch", kWidth - 1, 100000)
      .template with<3>("width greater than spitch", kWidth - 1, 100000)
      .template with<6>("kind 0", ACL_MEMCPY_HOST_TO_HOST, 100000)
      .template with<6>("kind 5", ACL_MEMCPY_HOST_TO_BUF_TO_DEVICE, 100000)
      .template with<6>("kind 6", ACL_MEMCPY_INNER_DEVICE_TO_DEVICE, 100000)
      .template with<6>("kind -1", from_c<aclrtMemcpyKind>(-1), 100000)
      .when(
          "more rows than the block has", [](Bench&, auto& all) { std::get<5>(all) = 100'000; },
          107000)
      .without_context(107002);
  if (device_to_device) {
    function
        .when("device to device", between(device, device, ACL_MEMCPY_DEVICE_TO_DEVICE), 0, arrived)
        .when("DEFAULT, device to device", between(device, device, ACL_MEMCPY_DEFAULT), 0, arrived);
  } else {
    function.when("device to device", between(device, device, ACL_MEMCPY_DEVICE_TO_DEVICE), 107000)
        .when("DEFAULT, device to device", between(device, device, ACL_MEMCPY_DEFAULT), 107000);
  }
}

void copies_of_rows(Table& table) {
  copies_2d(
      table, "aclrtMemcpy2d", aclrtMemcpy2d, [](Bench&) { return std::tuple<>(); }, false);
  copies_2d(
      table, "aclrtMemcpy2dAsync", aclrtMemcpy2dAsync,
      [](Bench& b) { return std::tuple(b.stream()); }, true);
  Function(table, "1.7", "aclrtMemcpy2dAsync", aclrtMemcpy2dAsync,
           [](Bench& b) {
             return std::tuple(b.block(), kTargetPitch, static_cast<const void*>(b.host()),
                               kSourcePitch, kWidth, kHeight, ACL_MEMCPY_HOST_TO_DEVICE,
                               b.stream());
           })
      .with<7>("stream null, which is the default one", nullptr, ACL_SUCCESS)
      .when(
          "a stream of another context",
          [](Bench& b, auto& all) { std::get<7>(all) = b.foreign_stream(); }, 107003)
      .when(
          "a stream that was destroyed",
          [](Bench& b, auto& all) { std::get<7>(all) = b.destroyed_stream(); }, 107017);
}

constexpr std::uint32_t kWord = 0x01020304;

template <class... Args, class Make>
void sets_of_words(Table& table, const char* name,
                   aclError (*call)(void*, std::size_t, std::uint32_t, std::size_t, Args...),
                   Make rest) {
  const auto is_set = [](Bench& b, auto& all) {
    need(aclrtSynchronizeDevice(), "aclrtSynchronizeDevice");
    const auto* words = static_cast<const std::uint32_t*>(std::get<0>(all));
    b.check(std::all_of(words, words + 100, [](std::uint32_t word) { return word == kWord; }),
            "all words are set");
  };
  const auto nothing = [](Bench&, auto& all) { std::get<3>(all) = 0; };
  Function(table, "1.7", name, call,
           [rest](Bench& b) {
             return std::tuple_cat(std::tuple(b.block(), std::size_t{400}, kWord, std::size_t{100}),
                                   rest(b));
           })
      .good("a block", is_set)
      .when(
          "pinned host memory", [](Bench& b, auto& all) { std::get<0>(all) = b.host(); },
          ACL_SUCCESS, is_set)
      .when("N 0", nothing, ACL_SUCCESS)
      .template with<0>("ptr null", nullptr, 100000)
      .when(
          "a misaligned pointer",
          [](Bench&, auto& all) {
            std::get<0>(all) = static_cast<std::byte*>(std::get<0>(all)) + 2;
          },
          100000)
      .template with<1>("memSize less than N words", 399, 100000)
      .template with<3>("N words that wrap", SIZE_MAX / 2, 100000)
      .when(
          "ordinary memory", [](Bench& b, auto& all) { std::get<0>(all) = b.ordinary(); },
          differs(kUnknownWords, kUnregistered, 100000))
      .without_context(107002);
}

void memsets_of_words(Table& table) {
  sets_of_words(table, "aclrtMemsetD32", aclrtMemsetD32, [](Bench&) { return std::tuple<>(); });
  sets_of_words(table, "aclrtMemsetD32Async", aclrtMemsetD32Async,
                [](Bench& b) { return std::tuple(b.stream()); });
  Function(table, "1.7", "aclrtMemsetD32Async", aclrtMemsetD32Async,
           [](Bench& b) {
             return std::tuple(b.block(), std::size_t{400}, 1U, std::size_t{100}, b.stream());
           })
      .when(
          "a stream of another context",
          [](Bench& b, auto& all) { std::get<4>(all) = b.foreign_stream(); }, 107003)
      .when(
          "a stream that was destroyed",
          [](Bench& b, auto& all) { std::get<4>(all) = b.destroyed_stream(); }, 107017);
}

// Three copies: two from the host to the device, one back.
constexpr std::size_t kBatch = 3;

template <class... Args, class Make>
void batches(Table& table, const char* name,
             aclError (*call)(void**, std::size_t*, void**, std::size_t*, std::size_t,
                              aclrtMemcpyBatchAttr*, std::size_t*, std::size_t, Args...),
             Make rest, bool has_limit) {
  const auto make = [rest](Bench& b) {
    const aclrtMemLocation device{.id = 0, .type = ACL_MEM_LOCATION_TYPE_DEVICE};
    const aclrtMemLocation host{.id = 0, .type = ACL_MEM_LOCATION_TYPE_HOST};
    auto* const from = static_cast<std::byte*>(b.host());
    std::memcpy(from, pattern(), kPage);
    void* const third = b.block();
    std::memcpy(third, pattern(), kPage);
    return std::tuple_cat(
        std::tuple(b.array<void*>({b.block(), b.block(), b.host()}),
                   b.array<std::size_t>({kBytes, kBytes, kBytes}),
                   b.array<void*>({from, from, third}),
                   b.array<std::size_t>({kBytes, kBytes, kBytes}), kBatch,
                   b.array<aclrtMemcpyBatchAttr>({{.dstLoc = device, .srcLoc = host, .rsv = {}},
                                                  {.dstLoc = host, .srcLoc = device, .rsv = {}},
                                                  {},
                                                  {}}),
                   b.array<std::size_t>({0, 2, 3, 4}), std::size_t{2}),
        rest(b));
  };
  const auto arrived = [](Bench& b, auto& all) {
    need(aclrtSynchronizeDevice(), "aclrtSynchronizeDevice");
    for (std::size_t i = 0; i < kBatch; ++i)
      b.check(holds_pattern(std::get<0>(all)[i]), "the bytes have arrived");
  };
  const auto indexes = [](std::size_t first, std::size_t second) {
    return [=](Bench&, auto& all) {
      std::get<6>(all)[0] = first;
      std::get<6>(all)[1] = second;
    };
  };
  Function function(table, "1.7", name, call, make);
  function.good("two to the device and one back", arrived)
      .when(
          "host to host",
          [](Bench& b, auto& all) {
            for (std::size_t i = 0; i < kBatch; ++i) {
              std::get<0>(all)[i] = b.host();
              std::get<2>(all)[i] = b.host();
            }
            for (std::size_t i = 0; i < 2; ++i)
              std::get<5>(all)[i].srcLoc =
                  std::get<5>(all)[i].dstLoc = {.id = 0, .type = ACL_MEM_LOCATION_TYPE_HOST};
          },
          207000)
      .when(
          "device to device",
          [](Bench& b, auto& all) {
            for (std::size_t i = 0; i < kBatch; ++i) {
              void* const from = b.block();
              std::memcpy(from, pattern(), kPage);
              std::get<0>(all)[i] = b.block();
              std::get<2>(all)[i] = from;
            }
            for (std::size_t i = 0; i < 2; ++i)
              std::get<5>(all)[i].srcLoc =
                  std::get<5>(all)[i].dstLoc = {.id = 0, .type = ACL_MEM_LOCATION_TYPE_DEVICE};
          },
          differs(kBatches, ACL_SUCCESS, ACL_SUCCESS), arrived)
      .when(
          "all sizes 0",
          [](Bench&, auto& all) { std::fill_n(std::get<3>(all), kBatch, std::size_t{0}); },
          ACL_SUCCESS)
      .template with<0>("dsts null", nullptr, 100000)
      .template with<1>("destMaxs null", nullptr, 100000)
      .template with<2>("srcs null", nullptr, 100000)
      .template with<3>("sizes null", nullptr, 100000)
      .template with<4>("numBatches 0", 0, 100000)
      .template with<5>("attrs null", nullptr, 100000)
      .template with<6>("attrsIndexes null", nullptr, 100000)
      .when(
          "a size greater than its destMax",
          [](Bench&, auto& all) { std::get<1>(all)[1] = kBytes - 1; }, 100000)
      .when(
          "an attribute's rsv is not 0", [](Bench&, auto& all) { std::get<5>(all)[1].rsv[15] = 1; },
          100000)
      .when("the first index is not 0", indexes(1, 2), 107000)
      .when("indexes that do not increase", indexes(0, 0), 107000)
      .when("an index that is none of a copy's", indexes(0, kBatch), 107000)
      .template with<7>("more attributes than copies", kBatch + 1, 107000)
      .without_context(107002);
  if (has_limit) {
    function.when(
        "4097 copies",
        [](Bench& b, auto& all) {
          const std::size_t many = 4097;
          auto* const to = reinterpret_cast<void**>(b.ordinary(many * sizeof(void*)));
          auto* const from = reinterpret_cast<void**>(b.ordinary(many * sizeof(void*)));
          auto* const sizes =
              reinterpret_cast<std::size_t*>(b.ordinary(many * sizeof(std::size_t)));
          std::fill_n(to, many, std::get<0>(all)[0]);
          std::fill_n(from, many, std::get<2>(all)[0]);
          std::fill_n(sizes, many, std::size_t{1});
          std::get<0>(all) = to;
          std::get<1>(all) = sizes;
          std::get<2>(all) = from;
          std::get<3>(all) = sizes;
          std::get<4>(all) = many;
          std::get<7>(all) = 1;
        },
        107000);
  }
  if constexpr (sizeof...(Args) != 0) {
    using Last = std::tuple_element_t<sizeof...(Args) - 1, std::tuple<Args...>>;
    if constexpr (std::is_same_v<Last, aclrtStream>) {
      constexpr std::size_t kStream = 7 + sizeof...(Args);
      function
          .when(
              "a stream of another context",
              [](Bench& b, auto& all) { std::get<kStream>(all) = b.foreign_stream(); }, 107003)
          .when(
              "a stream that was destroyed",
              [](Bench& b, auto& all) { std::get<kStream>(all) = b.destroyed_stream(); }, 107017);
    }
    if constexpr (std::is_same_v<std::tuple_element_t<0, std::tuple<Args...>>, std::size_t*>) {
      function.template with<8>("failIndex null", nullptr, 100000)
          .good("failIndex is SIZE_MAX when nothing failed", [](Bench& b, auto& all) {
            b.check_equal(*std::get<8>(all), SIZE_MAX, "failIndex");
          });
      table.add("1.7", name, "failIndex names the copy whose size is too great", 100000,
                [make, call](Bench& b) {
                  auto all = make(b);
                  std::get<1>(all)[1] = kBytes - 1;
                  const aclError code = std::apply(call, all);
                  b.check_equal(*std::get<8>(all), std::size_t{1}, "failIndex");
                  return code;
                });
    }
  }
}

void copies_in_batches(Table& table) {
  batches(
      table, "aclrtMemcpyBatch", aclrtMemcpyBatch,
      [](Bench& b) { return std::tuple(b.report<std::size_t>()); }, true);
  batches(
      table, "aclrtMemcpyBatchV2", aclrtMemcpyBatchV2, [](Bench&) { return std::tuple<>(); }, true);
  batches(
      table, "aclrtMemcpyBatchAsync", aclrtMemcpyBatchAsync,
      [](Bench& b) { return std::tuple(b.report<std::size_t>(), b.stream()); }, false);
  batches(
      table, "aclrtMemcpyBatchAsyncV2", aclrtMemcpyBatchAsyncV2,
      [](Bench& b) { return std::tuple(b.stream()); }, false);
}

}  // namespace

Table copy_cases() {
  Table table("copies");
  memcpys(table);
  memsets(table);
  copies_of_rows(table);
  memsets_of_words(table);
  copies_in_batches(table);
  return table;
}

}  // namespace hufu::conformance
