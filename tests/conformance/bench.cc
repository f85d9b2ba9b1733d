#include <algorithm>
#include <thread>

#include "suite.h"

namespace hufu::conformance {
namespace {

constexpr std::size_t kBeside = 64;
constexpr std::byte kUntouched{0xa5};

// Where this program lies in memory, the same function in each process that runs it.
Peer::Answer nothing(const Peer::Ask& /*ask*/) { return {}; }
std::uintptr_t origin() { return reinterpret_cast<std::uintptr_t>(&nothing); }

struct Packet {
  std::uintptr_t call;  // As a distance from origin().
  Peer::Ask ask;
};
static_assert(std::is_trivially_copyable_v<Packet> && std::is_trivially_copyable_v<Peer::Answer>);

template <class T>
std::string_view bytes_of(const T& value) {
  return {reinterpret_cast<const char*>(&value), sizeof(value)};
}

void serve_calls(test::Channel& channel) {
  if (aclrtSetDevice(0) != ACL_SUCCESS) return;
  while (const auto line = channel.next()) {
    Packet packet{};
    if (line->size() != sizeof(packet)) return;
    std::memcpy(&packet, line->data(), sizeof(packet));
    const auto call = reinterpret_cast<Peer::Call>(origin() + packet.call);
    channel.say(bytes_of(call(packet.ask)));
  }
}
const test::HelperProgram kPeer("conformance-peer", serve_calls);

}  // namespace

Peer::Peer() : helper_("conformance-peer") {}

Peer::Answer Peer::run(Call call, const Ask& ask) {
  const Packet packet{.call = reinterpret_cast<std::uintptr_t>(call) - origin(), .ask = ask};
  std::string said;
  try {
    said = helper_.ask(bytes_of(packet));
  } catch (const test::Stuck&) {  // Its text has the bytes that were sent.
    dead_ = true;
    throw Unprepared("the other process ended, or does not answer");
  }
  Answer answer{};
  if (said.size() != sizeof(answer)) throw Unprepared("the other process answered nonsense");
  std::memcpy(&answer, said.data(), sizeof(answer));
  return answer;
}

Peer& Peers::get(std::size_t index) {
  auto& peer = peers_.at(index);
  if (!peer || peer->dead()) peer.emplace();
  return *peer;
}

void need(aclError code, const char* call) {
  if (code == ACL_SUCCESS) return;
  const char* text = aclGetRecentErrMsg();
  throw Unprepared(fmt::format("{}: {}: {}", call, code, text == nullptr ? "" : text));
}

Bench::~Bench() { clean_up(); }

aclrtMemMallocPolicy Bench::policy() const {
  switch (mode_) {
    case Mode::kMemfd:
    case Mode::kStrict:
      return ACL_MEM_MALLOC_NORMAL_ONLY;
    case Mode::kHugetlb:
      return ACL_MEM_MALLOC_HUGE_ONLY;
    case Mode::kReserved1G:
      return ACL_MEM_MALLOC_HUGE1G_ONLY;
  }
  return ACL_MEM_MALLOC_NORMAL_ONLY;
}

std::size_t Bench::page() const {
  switch (mode_) {
    case Mode::kMemfd:
    case Mode::kStrict:
      return kPage;
    case Mode::kHugetlb:
      return kHuge;
    case Mode::kReserved1G:
      return kGiant;
  }
  return kPage;
}

void* Bench::add_slot(std::size_t size, bool may_stay) {
  slots_.push_back({.memory = std::vector<std::byte>(size + 2 * kBeside, kUntouched),
                    .size = size,
                    .may_stay = may_stay});
  return slots_.back().memory.data() + kBeside;
}

bool Bench::untouched(const Slot& slot, std::size_t begin, std::size_t end) {
  return std::all_of(slot.memory.begin() + static_cast<std::ptrdiff_t>(begin),
                     slot.memory.begin() + static_cast<std::ptrdiff_t>(end),
                     [](std::byte byte) { return byte == kUntouched; });
}

bool Bench::written(const void* output) const {
  for (const Slot& slot : slots_) {
    if (slot.memory.data() + kBeside == output) {
      return !untouched(slot, kBeside, kBeside + slot.size);
    }
  }
  return false;
}

void* Bench::block(std::size_t size, aclrtMemMallocPolicy policy) {
  void* address = nullptr;
  need(aclrtMalloc(&address, size, policy), "aclrtMalloc");
  finally([address] { (void)aclrtFree(address); });  // The case may have freed it.
  return address;
}

void* Bench::host(std::size_t size) {
  void* address = nullptr;
  need(aclrtMallocHost(&address, size), "aclrtMallocHost");
  finally([address] { (void)aclrtFreeHost(address); });
  return address;
}

std::byte* Bench::ordinary(std::size_t size) {
  return memory_.emplace_back(size, std::byte{0}).data();
}

aclrtStream Bench::stream() {
  aclrtStream made = nullptr;
  need(aclrtCreateStream(&made), "aclrtCreateStream");
  finally([made] { (void)aclrtDestroyStream(made); });
  return made;
}

aclrtStream Bench::destroyed_stream() {
  aclrtStream made = nullptr;
  need(aclrtCreateStream(&made), "aclrtCreateStream");
  need(aclrtDestroyStream(made), "aclrtDestroyStream");
  return made;
}

aclrtStream Bench::foreign_stream() {
  need(aclrtSetDevice(1), "aclrtSetDevice(1)");
  aclrtStream made = nullptr;
  need(aclrtCreateStream(&made), "aclrtCreateStream");
  need(aclrtSetDevice(0), "aclrtSetDevice(0)");
  finally([made] {
    (void)aclrtSetDevice(1);
    (void)aclrtDestroyStream(made);
    (void)aclrtSetDevice(0);
  });
  return made;
}

Bench::Shared Bench::share(std::uint64_t flags) {
  void* const address = block();
  auto& key = keys_.emplace_back();
  need(aclrtIpcMemGetExportKey(address, page(), key.data(), key.size(), flags),
       "aclrtIpcMemGetExportKey");
  finally([&key] { (void)aclrtIpcMemClose(key.data()); });
  return {.address = address, .key = key.data()};
}

const char* Bench::made_up_key() {
  auto& key = keys_.emplace_back();
  std::fill_n(key.begin(), key.size() - 1, 'A');
  return key.data();
}

aclError Bench::without_context(const std::function<aclError()>& call) {
  aclError code = ACL_SUCCESS;
  std::thread([&] {
    code = call();
    const char* text = aclGetRecentErrMsg();
    if (text != nullptr) text_ = text;
  }).join();
  return code;
}

void Bench::judge(aclError code, const Codes& expected) {
  if (text_.empty()) {
    const char* text = aclGetRecentErrMsg();
    if (text != nullptr) text_ = text;
  }
  const aclError right = strict() ? expected.strict : expected.plain;
  if (code != right && (code != expected.other || expected.other == expected.plain))
    fail(fmt::format("expected {}, got {}: {}", right, code, text_));
  check(code == ACL_SUCCESS || !text_.empty(), "it was refused without a text");
  for (const Slot& slot : slots_) {
    const bool clean = untouched(slot, kBeside, kBeside + slot.size);
    if (code != ACL_SUCCESS) {
      check(clean, "an output was written although the call failed");
    } else if (!slot.may_stay) {
      check(!clean, "an output was not written although the call succeeded");
    }
    check(untouched(slot, 0, kBeside) && untouched(slot, kBeside + slot.size, slot.memory.size()),
          "something beside an output was written");
  }
}

void Bench::clean_up() {
  while (!cleanups_.empty()) {
    const auto last = std::move(cleanups_.back());
    cleanups_.pop_back();
    last();
  }
}

}  // namespace hufu::conformance
