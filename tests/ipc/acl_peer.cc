#include "acl_peer.h"

#include <linux/capability.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <mutex>
#include <thread>

#include "acl/acl_rt_memory_soma.h"
#include "hufu/hufu.h"
#include "os/process.h"
#include "support/probe.h"

namespace hufu::test {
namespace {

std::byte* pointer(const std::string& word) {
  return reinterpret_cast<std::byte*>(static_cast<std::uintptr_t>(std::stoull(word)));
}

// "CODE OUTPUTS...\nTEXT"
std::string said(aclError code, const std::string& outputs = {}) {
  std::string line = std::to_string(code);
  if (code == ACL_SUCCESS && !outputs.empty()) line += " " + outputs;
  const char* text = aclGetRecentErrMsg();
  return text == nullptr ? line : line + "\n" + text;
}

std::string said(aclError code, const void* address) {
  return said(code, std::to_string(reinterpret_cast<std::uintptr_t>(address)));
}

std::string import_key(const char* key, std::uint64_t flags = 0) {
  void* address = nullptr;
  const aclError code = aclrtIpcMemImportByKey(&address, key, flags);
  if (code != ACL_SUCCESS && address != nullptr) return "error an output of a call that failed";
  return said(code, address);
}

std::string export_key(const Words& words) {
  std::string key(300, '\x7f');
  const std::size_t length = std::stoull(words.at(4));
  const aclError code = aclrtIpcMemGetExportKey(pointer(words.at(1)), std::stoull(words.at(2)),
                                                key.data(), length, std::stoull(words.at(3)));
  constexpr std::size_t kKey = 64;
  const std::size_t written = code == ACL_SUCCESS ? kKey + 1 : 0;
  if (!std::all_of(key.begin() + static_cast<std::ptrdiff_t>(written), key.end(),
                   [](char c) { return c == '\x7f'; })) {
    return "error a byte was written that should not have been";
  }
  return said(code, key.substr(0, std::min(key.find('\0'), written)));
}

std::string list(const Words& words) {
  std::vector<std::int32_t> pids;
  for (std::size_t i = 2; i < words.size(); ++i)
    pids.push_back(std::stoi(words[i]));
  return said(aclrtIpcMemSetImportPid(words.at(1).c_str(), pids.data(), pids.size()));
}

std::string memory_in_use() {
  std::size_t free = 0;
  std::size_t total = 0;
  const aclError code = aclrtGetMemInfo(ACL_HBM_MEM, &free, &total);
  return said(code, fmt::format("{} {}", free, total));
}

// Of the process `pid` on device 0: requested, reserved, blocks, pieces, chunks, warm, spare,
// fallbacks, charged. All zeros when the broker lists nothing of it.
std::string usage_of(std::int32_t pid) {
  std::array<hufuUsageInfo, 64> found{};
  found[0].structSize = sizeof(hufuUsageInfo);
  std::size_t count = 0;
  const aclError code = hufuUsageList(found.data(), found.size(), &count);
  hufuUsageInfo of_pid{};
  for (const hufuUsageInfo& usage : found) {
    if (usage.pid == pid && usage.device == 0) of_pid = usage;
  }
  return said(code, fmt::format("{} {} {} {} {} {} {} {} {}", of_pid.requested, of_pid.reserved,
                                of_pid.blocks, of_pid.pieces, of_pid.chunks, of_pid.warm,
                                of_pid.spare, of_pid.hugeFallbacks, of_pid.charged));
}

std::string malloc_until_refused(std::uint64_t size, std::uint64_t most) {
  for (std::uint64_t i = 0; i < most; ++i) {
    void* address = nullptr;
    const aclError code = aclrtMalloc(&address, size, ACL_MEM_MALLOC_NORMAL_ONLY);
    if (code != ACL_SUCCESS) return said(code);
  }
  return said(ACL_SUCCESS);
}

// From now on this process may lock `limit` bytes: root's privilege to lock more is given up. With
// `flags` all that it maps is locked.
std::string lock_all(std::uint64_t limit, int flags) {
  __user_cap_header_struct header{.version = _LINUX_CAPABILITY_VERSION_3, .pid = 0};
  std::array<__user_cap_data_struct, 2> capabilities{};
  if (::syscall(SYS_capget, &header, capabilities.data()) != 0) return "error capget";
  capabilities[0].effective &= ~(1U << CAP_IPC_LOCK);
  if (::syscall(SYS_capset, &header, capabilities.data()) != 0) return "error capset";
  const rlimit allowed{.rlim_cur = limit, .rlim_max = limit};
  if (::setrlimit(RLIMIT_MEMLOCK, &allowed) != 0) return "error setrlimit";
  if (flags == 0) return "0";
  return ::mlockall(flags) == 0 ? "0" : fmt::format("error mlockall {}", errno);
}

// `room` bytes more than it has now.
std::string limit_address_space(std::uint64_t room) {
  std::uint64_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  const rlim_t bytes = pages * 4096 + room;
  const rlimit allowed{.rlim_cur = bytes, .rlim_max = bytes};
  return ::setrlimit(RLIMIT_AS, &allowed) == 0 ? "0" : "error setrlimit";
}

// Every second page of one range is readable: an entry of the process's map each, until there are
// no more.
struct MapEntries {
  static constexpr std::uint64_t kPage = 4096;
  static constexpr std::uint64_t kMost = 1'000'000;  // Far more than the kernel's own limit.
  std::byte* base = nullptr;

  std::string use() {
    void* made = ::mmap(nullptr, kMost * 2 * kPage, PROT_NONE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (made == MAP_FAILED) return "error mmap";
    base = static_cast<std::byte*>(made);
    std::uint64_t used = 0;
    while (used < kMost && ::mprotect(base + used * 2 * kPage, kPage, PROT_READ) == 0)
      ++used;
    return fmt::format("0 {}", used == kMost ? 0 : used);
  }
  std::string release() const {
    return ::munmap(base, kMost * 2 * kPage) == 0 ? "0" : "error munmap";
  }
};
MapEntries& map_entries() {
  static MapEntries entries;
  return entries;
}

// What callbacks brought, in order.
class Events {
 public:
  void add(const std::string& event) {
    const std::lock_guard lock(mutex_);
    events_.push_back(event);
    changed_.notify_all();
  }
  std::string next() {
    std::unique_lock lock(mutex_);
    if (!changed_.wait_for(lock, kDeadline, [&] { return !events_.empty(); })) return "none";
    std::string event = events_.front();
    events_.erase(events_.begin());
    return event;
  }
  std::size_t waiting() {
    const std::lock_guard lock(mutex_);
    return events_.size();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::string> events_;
};
Events& events() {
  static Events all;
  return all;
}

void remember(const char* id, hufuIpcMemEvent event, void* /*arg*/) {
  events().add(fmt::format("{} {}", static_cast<int>(event), id));
}

// As a careless program would: slow, and ended from outside while it runs.
std::string clear_while_it_runs(const std::string& key, const std::function<void()>& cause) {
  struct Slow {
    std::atomic<bool> entered{false};
    std::atomic<bool> left{false};
  };
  Slow slow;
  const auto linger = [](const char* /*id*/, hufuIpcMemEvent /*event*/, void* arg) {
    auto* mine = static_cast<Slow*>(arg);
    mine->entered = true;
    mine->entered.notify_all();
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    mine->left = true;
  };
  if (const aclError code = hufuIpcMemSetCallback(key.c_str(), linger, &slow); code != 0) {
    return said(code);
  }
  cause();
  slow.entered.wait(false);
  const aclError code = hufuIpcMemSetCallback(key.c_str(), nullptr, nullptr);
  return said(code, std::string(slow.left ? "left" : "runs"));
}

// A callback that does what it may: ends itself, queries, waits (which it may not).
std::string call_from_inside(const std::string& key) {
  static std::string the_key;
  the_key = key;
  return said(hufuIpcMemSetCallback(
      key.c_str(),
      [](const char* /*id*/, hufuIpcMemEvent event, void* /*arg*/) {
        hufuIpcMemInfo info{};
        info.structSize = sizeof(info);
        const aclError queried = hufuIpcMemQuery(the_key.c_str(), &info);
        const aclError waited = hufuIpcMemWaitReleased(the_key.c_str(), 0);
        const aclError cleared = hufuIpcMemSetCallback(the_key.c_str(), nullptr, nullptr);
        events().add(fmt::format("{} {} {} {}", static_cast<int>(event), queried, waited, cleared));
      },
      nullptr));
}

void write_tag(std::byte* to, std::uint64_t size, std::uint64_t tag) {
  for (std::uint64_t done = 0; done < size; done += sizeof(tag))
    std::memcpy(to + done, &tag, std::min<std::uint64_t>(sizeof(tag), size - done));
}

// How many of `tagged` bytes are not the tag's, plus how many of the `zeros` behind them are not 0.
std::uint64_t foreign_bytes(const std::byte* at, std::uint64_t tagged, std::uint64_t zeros,
                            std::uint64_t tag) {
  // A page at a time, and by the byte only where one differs: most of what is scanned is right.
  constexpr std::uint64_t kAtOnce = 4096;
  static_assert(kAtOnce % sizeof(tag) == 0);
  std::uint64_t foreign = 0;
  const auto compare = [&](std::uint64_t begin, std::uint64_t end, std::uint64_t value) {
    std::array<std::byte, kAtOnce> expected{};
    write_tag(expected.data(), kAtOnce, value);
    for (std::uint64_t done = begin; done < end; done += kAtOnce) {
      const std::uint64_t bytes = std::min(kAtOnce, end - done);
      if (std::memcmp(at + done, expected.data(), bytes) == 0) continue;
      for (std::uint64_t i = 0; i < bytes; ++i)
        foreign += at[done + i] == expected[i] ? 0 : 1;
    }
  };
  compare(0, tagged, tag);
  compare(tagged, tagged + zeros, 0);
  return foreign;
}

// Asks the kernel, so that a fault is an answer.
bool can_read(const std::byte* at) {
  std::byte byte{};
  const iovec ours{.iov_base = &byte, .iov_len = 1};
  const iovec theirs{.iov_base = const_cast<std::byte*>(at), .iov_len = 1};
  return ::process_vm_readv(::getpid(), &ours, 1, &theirs, 1, 0) == 1;
}

std::string query(const std::string& key) {
  hufuIpcMemInfo info{};
  info.structSize = sizeof(info);
  const aclError code = hufuIpcMemQuery(key.c_str(), &info);
  return said(code,
              fmt::format("{} {} {} {}", info.live, info.importers, info.size, info.ownerPid));
}

std::string joined(const std::vector<aclError>& codes) {
  std::string text;
  for (const aclError code : codes)
    text += fmt::format(" {}", code);
  return text;
}

// "export-batch SIZE ADDRESS...": the call's code, each one's, then the keys; "-" where there is
// none.
std::string export_batch(const Words& words) {
  std::vector<void*> addresses;
  for (std::size_t i = 2; i < words.size(); ++i)
    addresses.push_back(pointer(words[i]));
  const std::vector<std::size_t> sizes(addresses.size(), std::stoull(words.at(1)));
  std::vector<std::array<char, 65>> keys(addresses.size());
  std::vector<aclError> codes(addresses.size(), -1);
  const aclError code = hufuIpcMemExportBatch(
      addresses.data(), sizes.data(), reinterpret_cast<char(*)[65]>(keys.data()), codes.data(),
      addresses.size(), ACL_RT_IPC_MEM_EXPORT_FLAG_DISABLE_PID_VALIDATION);
  std::string text = fmt::format("0 {}", code) + joined(codes);
  for (const auto& key : keys)
    text += fmt::format(" {}", key[0] == 0 ? "-" : key.data());
  return text;
}

// "import-batch KEY...", "close-batch KEY...": the call's code, each one's, then the addresses.
std::string batch_of_keys(const Words& words) {
  std::vector<const char*> keys;
  for (std::size_t i = 1; i < words.size(); ++i)
    keys.push_back(words[i].c_str());
  std::vector<aclError> codes(keys.size(), -1);
  if (words[0] == "close-batch") {
    const aclError code = hufuIpcMemCloseBatch(keys.data(), codes.data(), keys.size());
    return fmt::format("0 {}", code) + joined(codes);
  }
  std::vector<void*> addresses(keys.size(), nullptr);
  const aclError code =
      hufuIpcMemImportBatch(addresses.data(), keys.data(), codes.data(), keys.size(), 0);
  std::string text = fmt::format("0 {}", code) + joined(codes);
  for (const void* address : addresses)
    text += fmt::format(" {}", reinterpret_cast<std::uintptr_t>(address));
  return text;
}

// --- Virtual memory management -------------------------------------------------------------------

std::uint64_t as_number(const void* handle) { return reinterpret_cast<std::uintptr_t>(handle); }

aclrtPhysicalMemProp physical_prop(std::uint32_t device) {
  aclrtPhysicalMemProp prop{};
  prop.memAttr = ACL_HBM_MEM_HUGE;
  prop.location = {.id = device, .type = ACL_MEM_LOCATION_TYPE_DEVICE};
  return prop;
}

// A shareable handle as text: a token's number, or a fabric handle in hexadecimal digits.
struct Shareable {
  explicit Shareable(aclrtMemSharedHandleType of) : type(of) {}
  explicit Shareable(const std::string& text) {
    if (text.size() != 2 * sizeof(fabric.data)) {
      token = std::stoull(text);
      return;
    }
    type = ACL_MEM_SHARE_HANDLE_TYPE_FABRIC;
    for (std::size_t i = 0; i < sizeof(fabric.data); ++i)
      fabric.data[i] = static_cast<std::uint8_t>(std::stoul(text.substr(2 * i, 2), nullptr, 16));
  }
  std::string text() const {
    if (type == ACL_MEM_SHARE_HANDLE_TYPE_DEFAULT) return std::to_string(token);
    std::string digits;
    for (const std::uint8_t byte : fabric.data)
      digits += fmt::format("{:02x}", byte);
    return digits;
  }
  void* address() {
    return type == ACL_MEM_SHARE_HANDLE_TYPE_DEFAULT ? static_cast<void*>(&token) : &fabric;
  }

  aclrtMemSharedHandleType type = ACL_MEM_SHARE_HANDLE_TYPE_DEFAULT;
  std::uint64_t token = 0;
  aclrtMemFabricHandle fabric{};
};

// Wakes and sleeps ROUNDS times at one address: new physical memory is mapped there, written,
// unmapped and freed. After each time nothing of it may be in use.
std::string sleep_and_wake(std::byte* base, std::size_t size, std::uint64_t rounds) {
  std::size_t free_before = 0;
  std::size_t total = 0;
  aclrtGetMemInfo(ACL_HBM_MEM, &free_before, &total);
  const std::uint64_t resident_before = status_kib(::getpid(), "RssShmem");
  for (std::uint64_t i = 0; i < rounds; ++i) {
    aclrtDrvMemHandle handle = nullptr;
    const auto prop = physical_prop(0);
    aclError code = aclrtMallocPhysical(&handle, size, &prop, 0);
    if (code == ACL_SUCCESS) code = aclrtMapMem(base, size, 0, handle, 0);
    if (code != ACL_SUCCESS) return said(code);
    if (base[0] != std::byte{0}) return "error a wake found somebody's bytes";
    std::fill_n(base, size, std::byte{1});
    code = aclrtUnmapMem(base);
    if (code == ACL_SUCCESS) code = aclrtFreePhysical(handle);
    if (code != ACL_SUCCESS) return said(code);
    std::size_t free = 0;
    aclrtGetMemInfo(ACL_HBM_MEM, &free, &total);
    if (free != free_before) return fmt::format("error {} of {} free", free, free_before);
    const std::uint64_t resident = status_kib(::getpid(), "RssShmem");
    if (resident > resident_before) return fmt::format("error {} KiB are resident", resident);
  }
  return said(ACL_SUCCESS);
}

std::string map_until_refused(std::uint64_t most) {
  for (std::uint64_t i = 0; i < most; ++i) {
    void* base = nullptr;
    // Two units, so that each mapping needs entries of its own.
    const aclError code = aclrtReserveMemAddress(&base, 4 << 20U, 0, nullptr, 0);
    if (code != ACL_SUCCESS) return said(code);
    static aclrtDrvMemHandle handle = nullptr;
    const auto prop = physical_prop(0);
    if (handle == nullptr) aclrtMallocPhysical(&handle, 2 << 20U, &prop, 0);
    const aclError mapped = aclrtMapMem(base, 2 << 20U, 0, handle, 0);
    if (mapped == ACL_SUCCESS) continue;
    const std::string text = said(mapped);
    // What was refused left nothing: the range is as it was, and can be given back.
    if (aclrtUnmapMem(base) == ACL_SUCCESS) return "error it was mapped";
    if (aclrtReleaseMemAddress(base) != ACL_SUCCESS) return "error it cannot be released";
    return text;
  }
  return said(ACL_SUCCESS);
}

// Work that stands on the default stream from "vmm-queue" until "vmm-let-go".
struct Standing {
  std::atomic<bool> go{false};
  static std::int32_t stand(void* self) {
    static_cast<Standing*>(self)->go.wait(false);
    return 0;
  }
};
Standing& standing() {
  static Standing one;
  return one;
}

std::string vmm(const Words& words) {
  const std::string& verb = words.at(0);
  const auto number = [&](std::size_t index) { return std::stoull(words.at(index)); };
  aclrtDrvMemHandle handle = nullptr;
  if (verb == "vmm-reserve") {
    void* base = nullptr;
    void* where = words.size() > 2 ? pointer(words[2]) : nullptr;
    const aclError code = aclrtReserveMemAddress(&base, number(1), 0, where, 0);
    return said(code, base);
  }
  if (verb == "vmm-release") return said(aclrtReleaseMemAddress(pointer(words.at(1))));
  if (verb == "vmm-malloc") {
    const auto prop = physical_prop(words.size() > 2 ? static_cast<std::uint32_t>(number(2)) : 0);
    const aclError code = aclrtMallocPhysical(&handle, number(1), &prop, 0);
    return said(code, std::to_string(as_number(handle)));
  }
  if (verb == "vmm-free") return said(aclrtFreePhysical(pointer(words.at(1))));
  if (verb == "vmm-map") {
    return said(aclrtMapMem(pointer(words.at(1)), number(2), 0, pointer(words.at(3)), 0));
  }
  if (verb == "vmm-unmap") return said(aclrtUnmapMem(pointer(words.at(1))));
  if (verb == "vmm-queue") {
    standing().go = false;
    return said(hufuLaunchHostTask(nullptr, &Standing::stand, &standing()));
  }
  if (verb == "vmm-let-go") {
    standing().go = true;
    standing().go.notify_all();
    return said(aclrtSynchronizeDevice());
  }
  if (verb == "vmm-retain") {
    const aclError code = aclrtMemRetainAllocationHandle(pointer(words.at(1)), &handle);
    return said(code, std::to_string(as_number(handle)));
  }
  if (verb == "vmm-properties") {
    aclrtPhysicalMemProp prop{};
    const aclError code = aclrtMemGetAllocationPropertiesFromHandle(pointer(words.at(1)), &prop);
    return said(code, fmt::format("{} {}", static_cast<int>(prop.memAttr), prop.location.id));
  }
  if (verb == "vmm-export") {  // HANDLE FLAGS [SHARE-TYPE]; without a type by the first interface.
    if (words.size() == 3) {
      std::uint64_t token = 0;
      const aclError code = aclrtMemExportToShareableHandle(
          pointer(words.at(1)), ACL_MEM_HANDLE_TYPE_NONE, number(2), &token);
      return said(code, std::to_string(token));
    }
    Shareable shareable(static_cast<aclrtMemSharedHandleType>(number(3)));
    const aclError code = aclrtMemExportToShareableHandleV2(pointer(words.at(1)), number(2),
                                                            shareable.type, shareable.address());
    return said(code, shareable.text());
  }
  if (verb == "vmm-list") {  // SHAREABLE PID...
    Shareable shareable(words.at(1));
    std::vector<std::int32_t> pids;
    for (std::size_t i = 2; i < words.size(); ++i)
      pids.push_back(std::stoi(words[i]));
    const aclError by_second = aclrtMemSetPidToShareableHandleV2(
        shareable.address(), shareable.type, pids.data(), pids.size());
    if (shareable.type == ACL_MEM_SHARE_HANDLE_TYPE_FABRIC) return said(by_second);
    aclGetRecentErrMsg();
    const aclError code =
        aclrtMemSetPidToShareableHandle(shareable.token, pids.data(), pids.size());
    return code == by_second ? said(code) : "error the two interfaces disagree";
  }
  if (verb == "vmm-import") {  // TOKEN DEVICE
    const aclError code =
        aclrtMemImportFromShareableHandle(number(1), std::stoi(words.at(2)), &handle);
    if (code != ACL_SUCCESS && handle != nullptr) return "error an output of a call that failed";
    return said(code, std::to_string(as_number(handle)));
  }
  if (verb == "vmm-import-v2") {  // SHAREABLE
    Shareable shareable(words.at(1));
    const aclError code =
        aclrtMemImportFromShareableHandleV2(shareable.address(), shareable.type, 0, &handle);
    if (code != ACL_SUCCESS && handle != nullptr) return "error an output of a call that failed";
    return said(code, std::to_string(as_number(handle)));
  }
  if (verb == "vmm-sleep-and-wake")
    return sleep_and_wake(pointer(words.at(1)), number(2), number(3));
  if (verb == "vmm-map-until-refused") return map_until_refused(number(1));
  return "error no such command: " + verb;
}

std::string answer(const Words& words) {
  const std::string& verb = words.at(0);
  if (verb.starts_with("vmm-")) return vmm(words);
  if (verb == "pool-create") {
    aclrtMemPool pool = nullptr;
    aclrtMemPoolProps props{};
    props.location.type = ACL_MEM_LOCATION_TYPE_DEVICE;
    props.maxSize = std::stoull(words.at(1));
    const aclError code = aclrtMemPoolCreate(&pool, &props);
    return said(code, pool);
  }
  if (verb == "pool-malloc") {  // POOL SIZE
    void* address = nullptr;
    const aclError code =
        aclrtMemPoolMallocAsync(&address, std::stoull(words.at(2)), pointer(words.at(1)), nullptr);
    return said(code, address);
  }
  const auto number = [&](std::size_t index) { return std::stoull(words.at(index)); };

  if (verb == "init") return said(aclInit(nullptr));
  if (verb == "soc-name") return said(ACL_SUCCESS, std::string(aclrtGetSocName()));
  if (verb == "device-count") {
    std::uint32_t count = 0;
    const aclError code = aclrtGetDeviceCount(&count);
    return said(code, std::to_string(count));
  }
  if (verb == "current-device") {
    std::int32_t device = -1;
    const aclError code = aclrtGetDevice(&device);
    return said(code, std::to_string(device));
  }
  if (verb == "device") return said(aclrtSetDevice(std::stoi(words.at(1))));
  if (verb == "reset") return said(aclrtResetDevice(std::stoi(words.at(1))));
  if (verb == "pid") {
    std::int32_t pid = 0;
    const aclError code = aclrtDeviceGetBareTgid(&pid);
    return said(code, std::to_string(pid));
  }
  if (verb == "malloc") {
    void* address = nullptr;
    const aclError code =
        aclrtMalloc(&address, number(1), static_cast<aclrtMemMallocPolicy>(number(2)));
    return said(code, address);
  }
  if (verb == "usage") return usage_of(std::stoi(words.at(1)));
  if (verb == "malloc-until-refused") return malloc_until_refused(number(1), number(2));
  if (verb == "malloc-host") {
    void* address = nullptr;
    const aclError code = aclrtMallocHost(&address, number(1));
    return said(code, address);
  }
  if (verb == "fork-and-allocate") {
    const pid_t child = ::fork();
    if (child == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      void* address = nullptr;
      const bool done = aclrtSetDevice(0) == ACL_SUCCESS &&
                        aclrtMalloc(&address, number(1), ACL_MEM_MALLOC_NORMAL_ONLY) == ACL_SUCCESS;
      ::_exit(done ? 0 : 1);
    }
    int status = 0;
    return ::waitpid(child, &status, 0) == child && status == 0 ? "0 done"
                                                                : "error the child failed";
  }
  if (verb == "lock-all") return lock_all(number(1), MCL_FUTURE);
  if (verb == "lock-at-most") return lock_all(number(1), 0);
  if (verb == "address-space-at-most") return limit_address_space(number(1));
  if (verb == "use-map-entries") return map_entries().use();
  if (verb == "release-map-entries") return map_entries().release();
  // Memory of the program's own, registered and pinned.
  if (verb == "register-pinned") {
    void* made =
        ::mmap(nullptr, number(1), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    const aclError code =
        aclrtHostRegisterV2(made, number(1), ACL_HOST_REG_MAPPED | ACL_HOST_REG_PINNED);
    return said(code, made);
  }
  if (verb == "free") return said(aclrtFree(pointer(words.at(1))));
  if (verb == "range") {
    void* base = nullptr;
    std::size_t size = 0;
    const aclError code = aclrtMemGetAddressRange(pointer(words.at(1)), &base, &size);
    return said(code, fmt::format("{} {}", reinterpret_cast<std::uintptr_t>(base), size));
  }
  if (verb == "attributes") {
    aclrtPtrAttributes attributes{};
    const aclError code = aclrtPointerGetAttributes(pointer(words.at(1)), &attributes);
    return said(code, fmt::format("{} {} {}", static_cast<int>(attributes.location.type),
                                  attributes.location.id, attributes.pageSize));
  }
  if (verb == "meminfo") return memory_in_use();
  if (verb == "export") return export_key(words);
  if (verb == "export-null") {
    std::string key(65, '\0');
    const bool null_key = words.at(1) == "key";
    return said(aclrtIpcMemGetExportKey(null_key ? key.data() : nullptr, 1,
                                        null_key ? nullptr : key.data(), 65, 0));
  }
  if (verb == "list") return list(words);
  if (verb == "list-pidfd") {
    // Of a process; or any descriptor, with "fd" before its number.
    const bool is_fd = words.at(2) == "fd";
    const int given = std::stoi(words.at(is_fd ? 3 : 2));
    const UniqueFd opened = is_fd ? UniqueFd() : std::move(*os::open_pidfd(given));
    return said(hufuIpcMemSetImportPidfd(words.at(1).c_str(), is_fd ? given : opened.get()));
  }
  if (verb == "import") {
    return import_key(words.size() > 1 ? words[1].c_str() : "", words.size() > 2 ? number(2) : 0);
  }
  if (verb == "import-null") {
    void* address = nullptr;
    return said(words.at(1) == "key" ? aclrtIpcMemImportByKey(&address, nullptr, 0)
                                     : aclrtIpcMemImportByKey(nullptr, "x", 0));
  }
  if (verb == "import-file") {
    // As the samples do: into a buffer that was something else before.
    std::string buffer(256, '\0');
    std::ifstream(words.at(1)).read(buffer.data(), static_cast<std::streamsize>(buffer.size()));
    return import_key(buffer.c_str());
  }
  if (verb == "import-environment") return import_key(std::getenv(words.at(1).c_str()));
  if (verb == "close") return said(aclrtIpcMemClose(words.size() > 1 ? words[1].c_str() : ""));
  if (verb == "public-id") {
    std::array<char, HUFU_PUBLIC_ID_SIZE> id{};
    const aclError code = hufuIpcMemGetPublicId(words.at(1).c_str(), id.data());
    return said(code, std::string(id.data()));
  }
  if (verb == "export-batch") return export_batch(words);
  if (verb == "import-batch" || verb == "close-batch") return batch_of_keys(words);
  if (verb == "query") return query(words.at(1));
  if (verb == "wait-released") {
    return said(hufuIpcMemWaitReleased(words.at(1).c_str(), std::stoi(words.at(2))));
  }
  if (verb == "callback") {
    return said(hufuIpcMemSetCallback(words.at(1).c_str(), remember, nullptr));
  }
  if (verb == "callback-off") {
    return said(hufuIpcMemSetCallback(words.at(1).c_str(), nullptr, nullptr));
  }
  if (verb == "callback-from-inside") return call_from_inside(words.at(1));
  if (verb == "callback-cleared-while-it-runs") {
    return clear_while_it_runs(words.at(1), [&] {
      void* address = nullptr;
      (void)aclrtIpcMemImportByKey(&address, words[1].c_str(), 0);
    });
  }
  if (verb == "event") return "0 " + events().next();
  if (verb == "events") return fmt::format("0 {}", events().waiting());
  // Many processes import and close at once.
  if (verb == "import-and-close") {
    for (std::uint64_t i = 0; i < number(2); ++i) {
      void* address = nullptr;
      if (const aclError code = aclrtIpcMemImportByKey(&address, words[1].c_str(), 0);
          code != ACL_SUCCESS) {
        return said(code);
      }
      if (const aclError code = aclrtIpcMemClose(words[1].c_str()); code != ACL_SUCCESS) {
        return said(code);
      }
    }
    return said(ACL_SUCCESS);
  }

  // Memory, by address.
  if (verb == "fill") {
    std::fill_n(pointer(words.at(1)), number(2), static_cast<std::byte>(number(3)));
    return "0";
  }
  if (verb == "peek") return fmt::format("0 {}", static_cast<int>(*pointer(words.at(1))));
  if (verb == "all-equal") {
    const std::byte* begin = pointer(words.at(1));
    const bool equal = std::all_of(begin, begin + number(2), [&](std::byte b) {
      return b == static_cast<std::byte>(number(3));
    });
    return equal ? "0 yes" : "0 no";
  }
  // Every 8 bytes of an owner's memory name the owner: see histories_test.cc.
  if (verb == "tag") {
    write_tag(pointer(words.at(1)), number(2), number(3));
    return "0";
  }
  if (verb == "foreign") {
    return fmt::format("0 {}",
                       foreign_bytes(pointer(words.at(1)), number(2), number(3), number(4)));
  }
  if (verb == "can-read") return can_read(pointer(words.at(1))) ? "0 yes" : "0 no";
  if (verb == "populate") {
    const int failed = ::madvise(pointer(words.at(1)), number(2), MADV_POPULATE_READ);
    return failed == 0 ? "0" : fmt::format("error {}", errno);
  }
  // Expected to be its last word.
  if (verb == "touch") {
    ::signal(SIGSEGV, SIG_DFL);
    const volatile std::byte* place = pointer(words.at(1));
    return fmt::format("0 {}", static_cast<int>(*place));
  }
  return "error no such command: " + verb;
}

const HelperProgram kAcl("acl", [](Channel& channel) { serve(channel, answer); });

}  // namespace

AclPeer AclPeer::ready(const TestBroker& broker) {
  AclPeer peer(broker.helper("acl"));
  peer.must("device 0");
  return peer;
}

AclPeer::Answer AclPeer::parse(const std::string& line) {
  const auto end = line.find('\n');
  Words words = split(std::string_view(line).substr(0, end));
  if (words.empty() || words[0] == "error") throw Stuck("the helper says: " + line);
  Answer answer{.code = std::stoi(words[0])};
  answer.words.assign(words.begin() + 1, words.end());
  if (end != std::string::npos) answer.text = line.substr(end + 1);
  return answer;
}

AclPeer::Answer AclPeer::must(std::string_view line) {
  Answer answer = run(line);
  if (!answer.ok()) throw Stuck(fmt::format("{}: {} {}", line, answer.code, answer.text));
  return answer;
}

std::uint64_t AclPeer::allocate(std::uint64_t size, aclrtMemMallocPolicy policy) {
  return must(fmt::format("malloc {} {}", size, static_cast<int>(policy))).value();
}

AclPeer::Export AclPeer::share(std::uint64_t size, int value, std::uint64_t flags) {
  const std::uint64_t address = allocate(size);
  fill(address, size, value);
  Answer made = export_key(address, size, flags);
  if (!made.ok()) throw Stuck(fmt::format("export: {} {}", made.code, made.text));
  return {.address = address, .key = made.words.at(0)};
}

AclPeer::Answer AclPeer::export_key(std::uint64_t address, std::uint64_t size, std::uint64_t flags,
                                    std::size_t length) {
  return run(fmt::format("export {} {} {} {}", address, size, flags, length));
}

AclPeer::Answer AclPeer::list(const std::string& key, pid_t pid) {
  return run(fmt::format("list {} {}", key, pid));
}

void AclPeer::free(std::uint64_t address) { must(fmt::format("free {}", address)); }

int AclPeer::peek(std::uint64_t address) {
  return static_cast<int>(must(fmt::format("peek {}", address)).value());
}

void AclPeer::fill(std::uint64_t address, std::uint64_t size, int value) {
  must(fmt::format("fill {} {} {}", address, size, value));
}

std::uint64_t AclPeer::used() {
  must("meminfo");
  const Answer info = must("meminfo");
  return info.value(1) - info.value(0);
}

AclPeer::Usage AclPeer::usage_of(const AclPeer& other) {
  const Answer answer = must(fmt::format("usage {}", other.pid()));
  return {.requested = answer.value(0),
          .reserved = answer.value(1),
          .blocks = answer.value(2),
          .pieces = answer.value(3),
          .chunks = answer.value(4),
          .warm = answer.value(5),
          .spare = answer.value(6),
          .fallbacks = answer.value(7),
          .charged = answer.value(8)};
}

}  // namespace hufu::test
