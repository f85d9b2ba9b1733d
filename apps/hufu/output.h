#pragma once

// How every command speaks, and how it fails.
//
// What was asked for goes to stdout and nothing else does, so that `hufu share F > key` holds a
// key. What a person should know goes to stderr, in lines that begin with "hufu: ". With --json
// stdout holds one JSON document, in success and in failure.
//
// A failure is thrown: in a program whose every fault ends the command, passing it up by hand would
// only add lines. It is caught and shown in one place, main().

#include <cstdint>
#include <string>
#include <string_view>

#include "acl/acl.h"
#include "base/result.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace hufu::cli {

enum ExitCode : int { kOk = 0, kFailed = 1, kUsage = 2 };

struct Failure {
  std::int32_t code = 0;  // An aclError (from 100000 on), or an errno.
  std::string message;    // One line, with the remedy where there is one.
};

// For a failed system call: "WHAT: No such file or directory".
[[noreturn]] void fail_system(std::string_view what, int sys_errno);
// For a call of the library: its own text for it, in one line.
[[noreturn]] void fail_library(std::string_view what, aclError code);
// For an Error of the modules below.
[[noreturn]] void fail_with(const Error& error);

void require(std::string_view what, aclError code);

// One line to stderr. The stream is not buffered, and this is one write.
void say(std::string_view line);

void print_json(const nlohmann::json& document);
// Text to stdout, at once; a reader that went away, or a full disk, is a Failure.
void print(std::string_view text);

// "5.0 MiB"; exact below a KiB.
std::string human_size(std::uint64_t bytes);
// A process's or file's name, safe to show: a terminal obeys some bytes.
std::string printable(std::string_view name);
// "3 s", "2 min", "5 h", "3 d".
std::string human_time(std::uint64_t nanoseconds);

inline constexpr const char* kExitCodes =
    "Exit code: 0 done, 1 failed or refused, 2 the command line is wrong.";
inline constexpr const char* kJsonHelp = "Print one JSON document, also when it fails";

}  // namespace hufu::cli
