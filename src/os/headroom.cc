#include "os/headroom.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <charconv>
#include <ctime>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/unique_fd.h"
#include "base/units.h"
#include "os/file.h"

namespace hufu::os {
namespace {

constexpr std::uint64_t kReserve = 16 * kMiB;
constexpr std::uint64_t kReserveShare = 50;  // 2 %
constexpr std::uint64_t kMostAllowance = 64 * kMiB;
constexpr std::int64_t kAllowanceMs = 50;
// Version 1 says "no limit" with a number that no machine has.
constexpr std::uint64_t kNoLimit = std::uint64_t{1} << 60U;

std::optional<std::uint64_t> number_at(std::string_view text) {
  std::uint64_t number = 0;
  const auto start = text.find_first_not_of(' ');
  if (start == std::string_view::npos) return std::nullopt;
  const auto parsed = std::from_chars(text.data() + start, text.data() + text.size(), number);
  return parsed.ec == std::errc{} ? std::optional(number) : std::nullopt;
}

// The number behind a label that starts a line.
std::optional<std::uint64_t> number_after(std::string_view text, std::string_view label) {
  std::size_t at = text.find(label);
  while (at != std::string_view::npos && at != 0 && text[at - 1] != '\n') {
    at = text.find(label, at + 1);
  }
  if (at == std::string_view::npos) return std::nullopt;
  return number_at(text.substr(at + label.size()));
}

std::optional<std::uint64_t> number_in(const std::string& path) {
  return number_at(read_small_file(path));
}

// A table of mounts may be long; its lines are all that is wanted of it.
std::string read_whole_file(const std::string& path) {
  constexpr std::size_t kMost = 1 * kMiB;
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  std::string text;
  std::array<char, 4096> piece{};
  while (fd && text.size() < kMost) {
    const ssize_t size = ::read(fd.get(), piece.data(), piece.size());
    if (size <= 0) break;
    text.append(piece.data(), static_cast<std::size_t>(size));
  }
  return text;
}

template <class Each>
void for_each_line(std::string_view text, Each each) {
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    each(line);
  }
}

std::string_view take_word(std::string_view& line) {
  const std::string_view word = line.substr(0, line.find(' '));
  line.remove_prefix(std::min(line.size(), word.size() + 1));
  return word;
}

bool list_has(std::string_view list, std::string_view wanted) {
  while (!list.empty()) {
    const std::string_view entry = list.substr(0, list.find(','));
    if (entry == wanted) return true;
    list.remove_prefix(std::min(list.size(), entry.size() + 1));
  }
  return false;
}

// mountinfo writes a space in a path as "\040".
std::string unescaped(std::string_view text) {
  constexpr std::size_t kDigits = 3;
  std::string plain;
  for (std::size_t i = 0; i < text.size(); ++i) {
    unsigned code = 0;
    if (text[i] == '\\' && i + kDigits < text.size() &&
        std::from_chars(&text[i + 1], &text[i + 1] + kDigits, code, 8).ec == std::errc{}) {
      plain += static_cast<char>(code);
      i += kDigits;
    } else {
      plain += text[i];
    }
  }
  return plain;
}

std::uint64_t reserve_for(std::uint64_t bytes) { return std::max(kReserve, bytes / kReserveShare); }

Error fail_short(const MemoryBound& bound, std::uint64_t bytes) {
  if (bound.limit_file.empty()) {
    return fail(Errc::kOutOfMemory, Reason::kMemory,
                "{} bytes do not fit: the machine has {} bytes available (MemAvailable) and {} of "
                "them stay in reserve; free memory, or allocate less",
                bytes, bound.available, reserve_for(bytes));
  }
  return fail(Errc::kOutOfMemory, Reason::kMemory,
              "{} bytes do not fit: the memory cgroup's limit is {}, {} are in use ({} of them "
              "could be dropped) and {} stay in reserve, past it the kernel kills; free memory, "
              "allocate less, or raise {}",
              bytes, bound.limit, bound.used, bound.droppable, reserve_for(bytes),
              bound.limit_file);
}

std::int64_t now_ms() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
  return static_cast<std::int64_t>(now.tv_sec) * 1000 + now.tv_nsec / 1'000'000;
}

// What may be committed without reading again. Threads that race for it may overdraw it by what
// they commit at one time; the reserve covers that.
constinit std::atomic<std::int64_t> allowance{0};
constinit std::atomic<std::int64_t> allowance_until_ms{0};

bool take_allowance(std::uint64_t bytes) {
  if (bytes > kMostAllowance) return false;
  if (now_ms() >= allowance_until_ms.load(std::memory_order_relaxed)) return false;
  const auto wanted = static_cast<std::int64_t>(bytes);
  return allowance.fetch_sub(wanted, std::memory_order_relaxed) >= wanted;
}

void grant_allowance(std::uint64_t left) {
  // A quarter: others commit from the same memory meanwhile.
  const std::uint64_t granted = std::min(kMostAllowance, left / 4);
  allowance.store(static_cast<std::int64_t>(granted), std::memory_order_relaxed);
  allowance_until_ms.store(now_ms() + kAllowanceMs, std::memory_order_relaxed);
}

// What stays free of the tightest bound.
Result<std::uint64_t> left_after(const MemoryLimits& limits, std::uint64_t bytes) {
  const std::uint64_t reserve = reserve_for(bytes);
  const auto bounds = limits.bounds(bytes + reserve);
  if (!bounds) return bounds.error();
  const auto tightest = std::ranges::min_element(*bounds, {}, &MemoryBound::available);
  if (bytes > tightest->available || reserve > tightest->available - bytes) {
    return fail_short(*tightest, bytes);
  }
  return tightest->available - bytes - reserve;
}

}  // namespace

MemoryLimits::MemoryLimits(std::string root) : root_(std::move(root)) {
  const std::string table = read_whole_file(root_ + "/proc/self/mountinfo");
  for_each_line(table, [&](std::string_view line) {
    // id parent major:minor ROOT MOUNT_POINT options [optional ...] - TYPE source SUPER_OPTIONS
    for (int i = 0; i < 3; ++i)
      take_word(line);
    Hierarchy mounted;
    mounted.mount_root = unescaped(take_word(line));
    mounted.mount_point = unescaped(take_word(line));
    const auto separator = line.find(" - ");
    if (separator == std::string_view::npos) return;
    line.remove_prefix(separator + 3);
    const std::string_view type = take_word(line);
    take_word(line);
    if (type == "cgroup2" && v2_.mount_point.empty()) v2_ = mounted;
    if (type == "cgroup" && v1_.mount_point.empty() && list_has(line, "memory")) v1_ = mounted;
  });
}

std::vector<MemoryLimits::Group> MemoryLimits::groups() const {
  std::vector<Group> found;
  const std::string table = read_small_file(root_ + "/proc/self/cgroup");
  for_each_line(table, [&](std::string_view line) {
    // "0::/path" is version 2, "9:memory:/path" version 1.
    const auto first = line.find(':');
    const auto second = line.find(':', first + 1);
    if (second == std::string_view::npos) return;
    const std::string_view controllers = line.substr(first + 1, second - first - 1);
    const bool v2 = controllers.empty();
    if (!v2 && !list_has(controllers, "memory")) return;
    const Hierarchy& hierarchy = v2 ? v2_ : v1_;
    if (hierarchy.mount_point.empty()) return;
    // Below the cgroup that the mount shows; a process outside of it is bound by that one at most.
    std::string_view path = line.substr(second + 1);
    const std::string_view shown = hierarchy.mount_root;
    if (shown != "/") {
      const bool below =
          path.starts_with(shown) && (path.size() == shown.size() || path[shown.size()] == '/');
      path = below ? path.substr(shown.size()) : std::string_view();
    }
    if (path == "/" || path.find("/..") != std::string_view::npos) path = {};
    while (true) {
      found.push_back({.directory = root_ + hierarchy.mount_point + std::string(path), .v2 = v2});
      if (path.empty()) break;
      path = path.substr(0, path.rfind('/'));
    }
  });
  return found;
}

Result<std::vector<MemoryBound>> MemoryLimits::bounds(std::uint64_t enough) const {
  const auto machine = number_after(read_small_file(root_ + "/proc/meminfo"), "MemAvailable:");
  if (!machine) {
    return fail(Errc::kSystem, Reason::kSystem, "/proc/meminfo has no line MemAvailable");
  }
  std::vector<MemoryBound> bounds;
  bounds.push_back({.available = *machine * kKiB});
  for (const Group& group : groups()) {
    MemoryBound bound;
    bound.limit_file = group.directory + (group.v2 ? "/memory.max" : "/memory.limit_in_bytes");
    const auto limit = number_in(bound.limit_file);  // "max" is no number.
    if (!limit || *limit >= kNoLimit) continue;
    const auto used =
        number_in(group.directory + (group.v2 ? "/memory.current" : "/memory.usage_in_bytes"));
    if (!used) continue;
    bound.limit = *limit;
    bound.used = *used;
    bound.available = *limit - std::min(*limit, *used);
    if (bound.available < enough) {
      const std::string table = read_small_file(group.directory + "/memory.stat");
      const auto label = group.v2 ? "inactive_file " : "total_inactive_file ";
      bound.droppable = std::min(number_after(table, label).value_or(0), *used);
      // Over its limit already (it was lowered): dropping pages mends that first.
      const std::uint64_t kept = *used - bound.droppable;
      bound.available = *limit - std::min(*limit, kept);
    }
    bounds.push_back(std::move(bound));
  }
  return bounds;
}

std::uint64_t MemoryLimits::total() const {
  const auto machine = number_after(read_small_file(root_ + "/proc/meminfo"), "MemTotal:");
  std::uint64_t smallest = machine.value_or(0) * kKiB;
  for (const Group& group : groups()) {
    const auto limit =
        number_in(group.directory + (group.v2 ? "/memory.max" : "/memory.limit_in_bytes"));
    if (limit && *limit < smallest) smallest = *limit;
  }
  return smallest;
}

const MemoryLimits& memory_limits() {
  static const auto* const limits = new MemoryLimits();
  return *limits;
}

Result<void> check_headroom(const MemoryLimits& limits, std::uint64_t bytes) {
  const auto left = left_after(limits, bytes);
  if (!left) return left.error();
  return {};
}

Result<void> require_headroom(std::uint64_t bytes) {
  if (take_allowance(bytes)) return {};
  const auto left = left_after(memory_limits(), bytes);
  if (!left) return left.error();
  grant_allowance(*left);
  return {};
}

}  // namespace hufu::os
