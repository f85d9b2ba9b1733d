#pragma once

// Records for people.

#include <span>
#include <string>
#include <string_view>

#include "audit/record.h"

namespace hufu::audit {

// "IMPORT", "RELEASE_VERIFIED"; a number that this build does not know is "UNKNOWN".
std::string_view name_of(Type type);
// "allow", "deny", "info".
std::string_view name_of(Outcome outcome);

// A process's name as the kernel has it, made safe to show: whatever is not printable ASCII, and
// the backslash and quote, become \xNN. A name can hold any byte, and a terminal obeys some of
// them.
std::string escaped(std::span<const char> name);

// One line, one record: time, number, verb, verdict and reason, who, what, to whom.
//   2026-07-30T12:00:00.123456789Z #42 IMPORT deny/pid pid=123 uid=1000 comm="python3"
//   key=00112233445566778899aabbccddeeff size=4096 owner_pid=99 owner_uid=1000
// (in one line). A refusal's verb is what was asked for.
std::string to_line(const Record& record);

}  // namespace hufu::audit
