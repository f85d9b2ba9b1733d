#include "hufu/output.h"

#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <system_error>

#include "base/units.h"

namespace hufu::cli {
namespace {

// The library's texts have a line for the cause and lines around it.
std::string in_one_line(std::string_view text) {
  std::string line;
  for (const char c : text) {
    const bool blank = c == '\n' || c == '\t' || c == '\r' || c == ' ';
    if (!blank) line += c;
    if (blank && !line.empty() && line.back() != ' ') line += ' ';
  }
  while (!line.empty() && line.back() == ' ')
    line.pop_back();
  return line;
}

// "EE1011: [PID: 7] aclrtFunction: text" is "text": the program that called is this one.
std::string_view without_origin(std::string_view text) {
  const auto pid_end = text.find("] ");
  if (!text.starts_with('E') || pid_end == std::string_view::npos) return text;
  const auto function_end = text.find(": ", pid_end);
  return function_end == std::string_view::npos ? text : text.substr(function_end + 2);
}

void write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(fd, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail_system("writing to stdout", errno);
    text.remove_prefix(static_cast<std::size_t>(written));
  }
}

}  // namespace

void fail_system(std::string_view what, int sys_errno) {
  throw Failure{sys_errno, fmt::format("{}: {}", what, std::generic_category().message(sys_errno))};
}

void fail_library(std::string_view what, aclError code) {
  const char* const pending = ::aclGetRecentErrMsg();
  const std::string text = in_one_line(pending == nullptr ? "" : pending);
  throw Failure{code, fmt::format("{}: {} (error {})", what,
                                  text.empty() ? "no reason given" : without_origin(text), code)};
}

void fail_with(const Error& error) {
  throw Failure{error.sys_errno != 0 ? error.sys_errno : EINVAL, in_one_line(error.what())};
}

void require(std::string_view what, aclError code) {
  if (code != ACL_SUCCESS) fail_library(what, code);
}

void say(std::string_view line) {
  const std::string text = fmt::format("hufu: {}\n", line);
  // Nobody is left to be told that stderr cannot be written.
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, text.data(), text.size());
}

void print_json(const nlohmann::json& document) {
  // Names of processes and files can hold any byte; JSON cannot.
  print(document.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
}

void print(std::string_view text) { write_all(STDOUT_FILENO, text); }

std::string human_size(std::uint64_t bytes) {
  if (bytes < kKiB) return fmt::format("{} B", bytes);
  constexpr std::array<const char*, 6> kUnits = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  double scaled = static_cast<double>(bytes) / static_cast<double>(kKiB);
  std::size_t unit = 0;
  while (scaled >= 1024.0 && unit + 1 < kUnits.size()) {
    scaled /= 1024.0;
    ++unit;
  }
  return fmt::format("{:.1f} {}", scaled, kUnits[unit]);
}

std::string printable(std::string_view name) {
  std::string text;
  for (const char c : name) {
    if (c < ' ' || c > '~' || c == '\\') {
      text += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    } else {
      text += c;
    }
  }
  return text;
}

std::string human_time(std::uint64_t nanoseconds) {
  constexpr std::uint64_t kMinute = 60;
  constexpr std::uint64_t kHour = 60 * kMinute;
  constexpr std::uint64_t kDay = 24 * kHour;
  const std::uint64_t seconds = nanoseconds / 1'000'000'000;
  if (seconds < 2 * kMinute) return fmt::format("{} s", seconds);
  if (seconds < 2 * kHour) return fmt::format("{} min", seconds / kMinute);
  if (seconds < 2 * kDay) return fmt::format("{} h", seconds / kHour);
  return fmt::format("{} d", seconds / kDay);
}

}  // namespace hufu::cli
