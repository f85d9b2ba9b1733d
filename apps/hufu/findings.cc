#include "hufu/findings.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <filesystem>
#include <limits>
#include <optional>
#include <string_view>
#include <utility>

#include "base/device_model.h"
#include "base/units.h"
#include "hufu/hufu.h"
#include "hufu/output.h"
#include "hufu/place.h"
#include "os/device_capacity.h"
#include "os/file.h"
#include "os/headroom.h"
#include "os/huge_pages.h"
#include "os/kernel_abi.h"
#include "os/process.h"
#include "share/starter.h"

namespace hufu::cli {
namespace {

std::string_view trimmed(std::string_view text) {
  const auto end = text.find_last_not_of(" \n");
  return text.substr(0, end == std::string_view::npos ? 0 : end + 1);
}

std::optional<std::uint64_t> number_in(const std::string& path) {
  const std::string text = os::read_small_file(path);
  std::uint64_t number = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), number);
  return parsed.ec == std::errc() ? std::optional(number) : std::nullopt;
}

// --- Broker -------------------------------------------------------------------------------------

void look_at_program(Findings& findings) {
  const auto program = share::find_broker_program();
  if (program) {
    findings.push_back({"broker", "program", *program, "", "", State::kInForce});
  } else {
    findings.push_back({"broker", "program", std::string(program.error().what()),
                        "no broker can be started, so nothing can be shared",
                        "export HUFU_HUFUD=/path/to/hufud", State::kNeeded});
  }
}

void look_at_chosen(Findings& findings, const Place& place) {
  const auto& address = place.address;
  const std::string where = fmt::format("unix:{} ({})", address.path, share::name_of(address.mode));
  if (place.broker) {
    findings.push_back(
        {"broker", "yours",
         fmt::format("{}, running: pid {}, uid {}", where, place.broker->pid, place.broker->uid),
         "", "", State::kInForce});
    return;
  }
  if (address.start_on_demand) {
    findings.push_back({"broker", "yours",
                        where + ", not running; the first program that wants it starts it", "", "",
                        State::kInForce});
    look_at_program(findings);
    return;
  }
  findings.push_back({"broker", "yours", where + ", nobody answers",
                      "a system broker that exists is never replaced by a personal one",
                      "sudo systemctl start hufud.socket", State::kNeeded});
}

// What of the environment is a wish to the broker, which has decided already.
void look_at_wishes(Findings& findings) {
  hufuBrokerInfo broker{};
  broker.structSize = sizeof(broker);
  if (hufuGetBrokerInfo(&broker) != ACL_SUCCESS) return;
  const auto compare = [&](const char* name, const std::string& wish, std::uint64_t wanted,
                           std::uint64_t has) {
    if (wish.empty() || wanted == has) return;
    findings.push_back({"broker", name, fmt::format("{} here; the broker has {}", wish, has),
                        "it is the broker's to say: this wish is ignored until it starts anew",
                        fmt::format("unset {}, or end the broker: kill {}", name, broker.pid),
                        State::kMissing});
  };
  const std::string devices = os::env("HUFU_DEVICES");
  std::uint64_t count = 0;
  std::from_chars(devices.data(), devices.data() + devices.size(), count);
  compare("HUFU_DEVICES", devices, count, broker.devices);
  const std::string capacity = os::env("HUFU_DEVICE_CAPACITY");
  constexpr std::uint64_t kGrain = bytes_of(PageSize::k2MiB);
  const std::uint64_t bytes =
      os::parse_bytes(capacity).has_value() ? *os::parse_bytes(capacity) : 0;
  compare("HUFU_DEVICE_CAPACITY", capacity, bytes - bytes % kGrain, broker.deviceCapacity);
}

void look_at_others(Findings& findings, const std::string& own) {
  const auto uid = ::geteuid();
  for (const std::string& directory :
       {std::string("/run/hufu"), fmt::format("/run/user/{}/hufu", uid),
        fmt::format("/tmp/hufu-{}", uid)}) {
    std::error_code unreadable;
    for (const auto& entry : std::filesystem::directory_iterator(directory, unreadable)) {
      if (!entry.is_socket(unreadable) || entry.path() == own) continue;
      const auto listener = listener_at(entry.path());
      findings.push_back(
          {"broker", "another",
           fmt::format("unix:{}, {}", entry.path().string(),
                       listener
                           ? fmt::format("running: pid {}, uid {}", listener->pid, listener->uid)
                           : std::string("not running")),
           listener ? "keys of one broker do not open at another" : "", "", State::kInForce});
    }
  }
}

// --- Limits -------------------------------------------------------------------------------------

std::string limit_text(rlim_t value) {
  return value == RLIM_INFINITY ? std::string("unlimited") : fmt::format("{}", value);
}

struct Limits {
  rlim_t soft = 0;
  rlim_t hard = 0;
  std::string text() const {
    return fmt::format("{} soft, {} hard", limit_text(soft), limit_text(hard));
  }
};

template <class Resource>
Limits limits_of(Resource resource) {
  rlimit limit{};
  if (::getrlimit(resource, &limit) != 0) return {};
  return {.soft = limit.rlim_cur, .hard = limit.rlim_max};
}

// --- Memory -------------------------------------------------------------------------------------

// One bound of what can be committed. What is free of it is small when blocks of ordinary size are
// refused.
void add_bound(Findings& findings, const os::MemoryBound& bound) {
  constexpr std::uint64_t kLittle = 64 * kMiB;
  const bool little = bound.available < kLittle;
  Finding finding{.topic = "memory", .state = little ? State::kMissing : State::kInForce};
  if (bound.limit_file.empty()) {
    finding.name = "MemAvailable";
    finding.found = human_size(bound.available);
    if (little) finding.mend = "end what uses memory: ps -eo pid,rss,comm --sort=-rss | head";
  } else {
    finding.name = "cgroup headroom";
    finding.found = fmt::format("{} of {} ({})", human_size(bound.available),
                                human_size(bound.limit), bound.limit_file);
    if (little) finding.mend = fmt::format("echo BYTES | sudo tee {}", bound.limit_file);
  }
  finding.follows =
      little ? "allocations are refused (207001) rather than let the kernel kill the process" : "";
  findings.push_back(std::move(finding));
}

// --- Kernel -------------------------------------------------------------------------------------

UniqueFd make_memfd(unsigned flags) {
  return UniqueFd(::memfd_create("hufu-doctor", MFD_CLOEXEC | MFD_ALLOW_SEALING | flags));
}

bool has_socket_option(int option, bool by_setting) {
  std::array<int, 2> ends{};
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) != 0) return false;
  const UniqueFd near(ends[0]);
  const UniqueFd far(ends[1]);
  int value = 0;
  socklen_t size = sizeof value;
  if (by_setting) return ::setsockopt(near.get(), SOL_SOCKET, option, &value, size) == 0;
  if (::getsockopt(near.get(), SOL_SOCKET, option, &value, &size) != 0) return false;
  if (option == SO_PEERPIDFD) ::close(value);  // The value is a new descriptor.
  return true;
}

bool has_pidfs() {
  const auto self = os::open_pidfd(::getpid());
  return self && os::pidfs_inode_of(self->get()) != 0;
}

// A lease on a memfd that nobody else holds, as the broker takes it to prove a release.
bool has_leases() {
  UniqueFd original = make_memfd(0);
  if (!original) return false;
  const std::string path = fmt::format("/proc/self/fd/{}", original.get());
  const UniqueFd reopened(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  original.reset();
  return reopened && ::fcntl(reopened.get(), F_SETLEASE, F_WRLCK) == 0;
}

int landlock_version() {
  constexpr unsigned kAskForVersion = 1;  // LANDLOCK_CREATE_RULESET_VERSION
  constexpr long kCreateRuleset = 444;    // SYS_landlock_create_ruleset, on every architecture
  return static_cast<int>(::syscall(kCreateRuleset, nullptr, std::size_t{0}, kAskForVersion));
}

void add_feature(Findings& findings, const char* name, bool there, const char* since,
                 const char* without) {
  findings.push_back({"kernel", name, there ? "works" : fmt::format("missing (Linux {})", since),
                      there ? "" : without, "", there ? State::kInForce : State::kMissing});
}

}  // namespace

void look_at_broker(Findings& findings) {
  Place place;
  try {
    place = find_broker();
  } catch (const Failure& failure) {
    findings.push_back(
        {"broker", "yours", failure.message, "", "unset HUFU_BROKER", State::kNeeded});
    return;
  }
  if (place.address.mode == share::BrokerMode::kNone) {
    findings.push_back({"broker", "yours", "none (HUFU_BROKER=none)",
                        "memory is local and nothing can be shared", "unset HUFU_BROKER",
                        State::kMissing});
    return;
  }
  look_at_chosen(findings, place);
  if (place.broker) look_at_wishes(findings);
  look_at_others(findings, place.address.path);

  const auto log = audit_home(place.address);
  findings.push_back({"broker", "audit log", log.path,
                      log.is_volatile ? "a logout or reboot may delete it" : "",
                      log.is_volatile ? "export HUFU_AUDIT_DIR=/a/lasting/directory" : "",
                      log.is_volatile ? State::kMissing : State::kInForce});
}

void look_at_device(Findings& findings) {
  const auto model = parse_device_model(os::env("HUFU_PROFILE"), os::env("HUFU_SIM_CAPS"));
  if (!model) {
    findings.push_back({"device", "model", std::string(model.error().what()),
                        "every program started here fails at its first call",
                        "unset HUFU_PROFILE HUFU_SIM_CAPS", State::kNeeded});
    return;
  }
  const Profile& profile = *model->profile;
  findings.push_back({"device", "HUFU_PROFILE",
                      fmt::format("{}, which calls itself {}", profile.name, profile.soc_name), "",
                      "", State::kInForce});
  for (const AbilityRow& row : abilities()) {
    if (!model->taken_away.has(row.ability)) continue;
    findings.push_back({"device", fmt::format("HUFU_SIM_CAPS=no_{}", row.name),
                        fmt::format("pretends that there is no {}", row.what),
                        fmt::format("refused by wish: {}", row.calls), "unset HUFU_SIM_CAPS",
                        State::kMissing});
  }
}

void look_at_limits(Findings& findings) {
  constexpr rlim_t kBrokerNeeds = 1024;
  constexpr rlim_t kComfortable = 16384;
  const Limits files = limits_of(RLIMIT_NOFILE);
  findings.push_back(
      {"limits", "RLIMIT_NOFILE", files.text(),
       files.hard < kComfortable
           ? fmt::format("a broker started here holds at most {} blocks, one descriptor each",
                         files.hard < kBrokerNeeds ? 0 : (files.hard - 512) / 2)
           : "",
       files.hard < kComfortable ? "ulimit -Hn 524288 (as root), or LimitNOFILE= in the unit" : "",
       files.hard < kBrokerNeeds   ? State::kNeeded
       : files.hard < kComfortable ? State::kMissing
                                   : State::kInForce});

  const Limits size = limits_of(RLIMIT_FSIZE);
  const bool finite = size.hard != RLIM_INFINITY;
  findings.push_back({"limits", "RLIMIT_FSIZE", size.text(),
                      finite ? "no block can be larger, and a broker is not started under it" : "",
                      finite ? "ulimit -H -f unlimited (as root)" : "",
                      finite ? State::kNeeded : State::kInForce});

  const Limits locked = limits_of(RLIMIT_MEMLOCK);
  const bool bounded = locked.soft != RLIM_INFINITY;
  findings.push_back(
      {"limits", "RLIMIT_MEMLOCK", locked.text(),
       bounded ? "matters to programs that lock all they map (mlockall): 207001 beyond it" : "",
       bounded ? "ulimit -l unlimited, or LimitMEMLOCK=infinity in the unit" : "",
       State::kInForce});

  const Limits space = limits_of(RLIMIT_AS);
  const bool narrow = space.soft != RLIM_INFINITY;
  findings.push_back({"limits", "RLIMIT_AS", space.text(),
                      narrow ? "blocks and imports count against it: 207001 beyond it" : "",
                      narrow ? "ulimit -v unlimited" : "",
                      narrow ? State::kMissing : State::kInForce});

  constexpr std::uint64_t kManyMaps = 65530;  // The kernel's own default.
  const auto maps = number_in("/proc/sys/vm/max_map_count");
  const bool few = maps && *maps < kManyMaps;
  findings.push_back({"limits", "vm.max_map_count",
                      maps ? fmt::format("{}", *maps) : std::string("unknown"),
                      few ? "a process maps at most about a third as many blocks" : "",
                      few ? fmt::format("sudo sysctl vm.max_map_count={}", kManyMaps) : "",
                      few ? State::kMissing : State::kInForce});
}

void look_at_memory(Findings& findings) {
  constexpr std::uint64_t kExactly = std::numeric_limits<std::uint64_t>::max();
  const auto bounds = os::memory_limits().bounds(kExactly);
  if (!bounds) {
    findings.push_back({"memory", "MemAvailable", std::string(bounds.error().what()),
                        "no block can be committed", "mount -t proc proc /proc", State::kNeeded});
    return;
  }
  for (const os::MemoryBound& bound : *bounds)
    add_bound(findings, bound);
  if (bounds->size() == 1) {
    findings.push_back({"memory", "cgroup headroom", "no limit", "", "", State::kInForce});
  }
  findings.push_back(
      {"memory", "/dev/shm", "not used: its size is no limit", "", "", State::kInForce});
}

void look_at_kernel(Findings& findings) {
  const UniqueFd plain = make_memfd(0);
  const bool sealing = plain && ::fcntl(plain.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) == 0;
  findings.push_back({"kernel", "memfd with seals", sealing ? "works" : "does not work",
                      sealing ? "" : "there is no memory that could be shared", "",
                      sealing ? State::kInForce : State::kNeeded});
  add_feature(findings, "MFD_NOEXEC_SEAL", make_memfd(MFD_NOEXEC_SEAL).valid(), "6.3",
              "shared memory can be made executable by its holders");
  add_feature(findings, "SO_PEERPIDFD", has_socket_option(SO_PEERPIDFD, false), "6.5",
              "a peer is held by pid and start time, which leaves a gap of microseconds");
  add_feature(findings, "pidfs", has_pidfs(), "6.9",
              "hufuIpcMemSetImportPidfd returns 207000; list processes by pid");
  add_feature(findings, "SO_PASSRIGHTS", has_socket_option(SO_PASSRIGHTS, true), "6.16",
              "a client can send the broker descriptors, which it closes unread");

  const bool leases = has_leases();
  const bool enabled = number_in("/proc/sys/fs/leases-enable").value_or(0) == 1;
  findings.push_back({"kernel", "file leases", leases ? "work" : "do not work",
                      leases ? "" : "that importers let go can be claimed, not proved, in the log",
                      !leases && !enabled ? "sudo sysctl fs.leases-enable=1" : "",
                      leases ? State::kInForce : State::kMissing});

  const int landlock = landlock_version();
  findings.push_back({"kernel", "Landlock",
                      landlock > 0 ? fmt::format("version {}", landlock) : "missing",
                      landlock > 0 ? "" : "the broker cannot lock itself out of the file system",
                      landlock > 0 ? "" : "add landlock to the kernel's lsm= parameter",
                      landlock > 0 ? State::kInForce : State::kMissing});
}

void look_at_huge_pages(Findings& findings) {
  struct Pool {
    const char* name;
    PageSize page;
    const char* directory;
    const char* mend;
  };
  constexpr std::array<Pool, 2> kPools = {
      Pool{"2 MiB pages", PageSize::k2MiB, "/sys/kernel/mm/hugepages/hugepages-2048kB/",
           "sudo sysctl vm.nr_hugepages=512"},
      Pool{"1 GiB pages", PageSize::k1GiB, "/sys/kernel/mm/hugepages/hugepages-1048576kB/",
           "hugepagesz=1G hugepages=4 on the kernel's command line"}};
  for (const Pool& pool : kPools) {
    const auto pages = number_in(std::string(pool.directory) + "nr_hugepages");
    const std::uint64_t available = os::huge_pages(pool.page).available;
    const bool reserved = pages.value_or(0) != 0;
    findings.push_back(
        {"huge pages", pool.name,
         pages ? fmt::format("{} reserved, {} available", *pages, available)
               : std::string("not on this machine"),
         reserved ? "" : "blocks of this page size are made of smaller pages, and cost more to use",
         reserved || !pages ? "" : pool.mend, reserved ? State::kInForce : State::kMissing});
  }

  const std::string path = "/sys/kernel/mm/transparent_hugepage/shmem_enabled";
  const std::string modes = os::read_small_file(path);
  const auto open = modes.find('[');
  const auto close = modes.find(']');
  const std::string mode = open < close && close != std::string::npos
                               ? modes.substr(open + 1, close - open - 1)
                               : std::string(trimmed(modes));
  const bool off = mode.empty() || mode == "never" || mode == "deny";
  findings.push_back({"huge pages", "shmem_enabled", mode.empty() ? "missing" : mode,
                      off ? "transparent huge pages come late or not at all" : "",
                      off && !mode.empty() ? fmt::format("echo advise | sudo tee {}", path) : "",
                      off ? State::kMissing : State::kInForce});
}

}  // namespace hufu::cli
