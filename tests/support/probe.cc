#include "support/probe.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <ctime>
#include <filesystem>
#include <sstream>

#include <gtest/gtest.h>

#include "base/result.h"
#include "base/unique_fd.h"
#include "support/child.h"

namespace hufu::test {
namespace {

constexpr std::uint64_t kPage = 4096;

// A process may end while its files are read: what was read until then is the answer.
std::string whole_file(const std::string& path) {
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  std::string text;
  std::array<char, 16384> buffer;
  for (;;) {
    const ssize_t size = ::read(file.get(), buffer.data(), buffer.size());
    if (size <= 0) return text;
    text.append(buffer.data(), static_cast<std::size_t>(size));
  }
}

// The line of /proc/PID/maps that holds an address.
std::optional<std::string> map_line(pid_t pid, std::uint64_t address) {
  std::istringstream maps(whole_file(fmt::format("/proc/{}/maps", pid)));
  for (std::string line; std::getline(maps, line);) {
    std::uint64_t begin = 0;
    std::uint64_t end = 0;
    const char* last = line.data() + line.size();
    const auto dash = std::from_chars(line.data(), last, begin, 16);
    std::from_chars(dash.ptr + 1, last, end, 16);
    if (address >= begin && address < end) return line;
  }
  return std::nullopt;
}

}  // namespace

std::vector<std::filesystem::path> entries_of(const std::string& directory) {
  std::vector<std::filesystem::path> entries;
  std::error_code failed;
  std::filesystem::directory_iterator entry(directory, failed);
  for (; !failed && entry != std::filesystem::directory_iterator(); entry.increment(failed))
    entries.push_back(entry->path());
  return entries;
}

std::optional<std::uint64_t> frame_of(pid_t pid, std::uint64_t address) {
  const UniqueFd map(::open(fmt::format("/proc/{}/pagemap", pid).c_str(), O_RDONLY | O_CLOEXEC));
  std::uint64_t entry = 0;
  const auto at = static_cast<off_t>(address / kPage * sizeof(entry));
  if (!map || ::pread(map.get(), &entry, sizeof(entry), at) != sizeof(entry)) return std::nullopt;
  constexpr std::uint64_t kPresent = std::uint64_t{1} << 63;
  constexpr std::uint64_t kFrame = (std::uint64_t{1} << 55) - 1;
  if ((entry & kPresent) == 0 || (entry & kFrame) == 0) return std::nullopt;
  return entry & kFrame;
}

std::optional<FilePlace> place_of(pid_t pid, std::uint64_t address) {
  const auto line = map_line(pid, address);
  if (!line) return std::nullopt;
  std::istringstream in(*line);
  std::string range;
  std::string permissions;
  std::string offset;
  FilePlace place;
  in >> range >> permissions >> offset >> place.device >> place.inode;
  if (place.inode == 0) return std::nullopt;
  const std::uint64_t begin = std::stoull(range, nullptr, 16);
  place.offset = std::stoull(offset, nullptr, 16) + (address - begin);
  return place;
}

std::string permissions_of(pid_t pid, std::uint64_t address) {
  const auto line = map_line(pid, address);
  if (!line) return {};
  const auto space = line->find(' ');
  return line->substr(space + 1, 4);
}

std::uint64_t smaps_kib(pid_t pid, std::uint64_t address, const std::string& name) {
  std::istringstream smaps(whole_file(fmt::format("/proc/{}/smaps", pid)));
  bool here = false;
  for (std::string line; std::getline(smaps, line);) {
    std::uint64_t begin = 0;
    std::uint64_t end = 0;
    if (std::sscanf(line.c_str(), "%lx-%lx ", &begin, &end) == 2) {
      here = begin <= address && address < end;
    } else if (here && line.starts_with(name + ":")) {
      return std::stoull(line.substr(name.size() + 1));
    }
  }
  return 0;
}

void expect_same_memory(pid_t one, std::uint64_t at_one, pid_t other, std::uint64_t at_other,
                        std::uint64_t bytes) {
  for (std::uint64_t offset = 0; offset < bytes; offset += kPage) {
    if (::geteuid() == 0) {
      const auto frame = frame_of(one, at_one + offset);
      ASSERT_TRUE(frame) << "offset " << offset << " is not present in process " << one;
      ASSERT_EQ(frame, frame_of(other, at_other + offset)) << "at offset " << offset;
    } else {
      const auto place = place_of(one, at_one + offset);
      ASSERT_TRUE(place && place->inode != 0) << "offset " << offset << " shows no file";
      ASSERT_EQ(place, place_of(other, at_other + offset)) << "at offset " << offset;
    }
  }
}

std::uint64_t status_kib(pid_t pid, const std::string& name) {
  std::istringstream status(whole_file(fmt::format("/proc/{}/status", pid)));
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with(name + ":")) return std::stoull(line.substr(name.size() + 1));
  }
  ADD_FAILURE() << "no " << name << " of process " << pid;
  return 0;
}

std::chrono::nanoseconds cpu_time_of(pid_t pid) {
  std::chrono::nanoseconds sum{0};
  for (const auto& task : entries_of(fmt::format("/proc/{}/task", pid))) {
    // The first number is nanoseconds on a processor.
    const std::string text = whole_file(task / "schedstat");
    std::int64_t spent = 0;
    std::from_chars(text.data(), text.data() + text.size(), spent);
    sum += std::chrono::nanoseconds(spent);
  }
  return sum;
}

namespace {

// The kernel has no event for these, so they are looked for, with a pause in between.
template <class Condition>
void look_until(const Condition& condition, const std::string& what, pid_t pid) {
  const auto end = std::chrono::steady_clock::now() + kDeadline;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) {
      throw Stuck(fmt::format("not {} after {} s: {}", what, kDeadline.count(), what_it_does(pid)));
    }
    constexpr timespec kPause{.tv_sec = 0, .tv_nsec = 200'000};
    ::nanosleep(&kPause, nullptr);
  }
}

}  // namespace

void wait_in_receive(pid_t pid) {
  const std::string path = fmt::format("/proc/{}/wchan", pid);
  // __skb_wait_for_more_packets
  const auto receives = [&] { return whole_file(path).find("skb_wait") != std::string::npos; };
  look_until(receives, "in recvmsg()", pid);
}

void wait_stopped(pid_t pid) {
  const std::string path = fmt::format("/proc/{}/status", pid);
  look_until([&] { return whole_file(path).find("State:\tT") != std::string::npos; }, "stopped",
             pid);
}

std::vector<std::string> descriptors_of(pid_t pid) {
  std::vector<std::string> targets;
  for (const auto& entry : entries_of(fmt::format("/proc/{}/fd", pid))) {
    std::error_code failed;
    const auto target = std::filesystem::read_symlink(entry, failed);
    if (!failed) targets.push_back(target.string());
  }
  return targets;
}

std::string command_line_of(pid_t pid) {
  std::string line = whole_file(fmt::format("/proc/{}/cmdline", pid));
  std::ranges::replace(line, '\0', ' ');
  return line;
}

std::vector<pid_t> all_processes() {
  std::vector<pid_t> pids;
  for (const auto& entry : entries_of("/proc")) {
    const std::string name = entry.filename();
    pid_t pid = 0;
    const auto parsed = std::from_chars(name.data(), name.data() + name.size(), pid);
    if (parsed.ec == std::errc() && parsed.ptr == name.data() + name.size()) pids.push_back(pid);
  }
  return pids;
}

bool in_any_command_line(const std::string& text) {
  return std::ranges::any_of(all_processes(), [&](pid_t pid) {
    return command_line_of(pid).find(text) != std::string::npos;
  });
}

bool in_file(const std::string& path, const std::string& text) {
  return whole_file(path).find(text) != std::string::npos;
}

}  // namespace hufu::test
