#pragma once

// What the audit log says, for tests: only verified records are ever looked at.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "audit/record.h"

namespace hufu::test {

// Every verified record, oldest first. A log that is damaged fails the test; one that is missing is
// empty.
std::vector<audit::Record> records_in(const std::string& directory);

// What a record is to say; what is not mentioned does not matter.
struct Wanted {
  std::optional<audit::Type> type;
  std::optional<audit::Type> asked;  // Of a DENY: what was refused.
  std::optional<Reason> reason;
  std::optional<std::uint32_t> uid;
  std::optional<pid_t> pid;
  std::optional<pid_t> owner_pid;
  std::optional<std::uint64_t> share;
  std::optional<std::uint64_t> size;
  std::optional<std::uint64_t> aux;
  std::optional<std::uint32_t> refs_after;

  bool fits(const audit::Record& record) const;
};

std::size_t count(const std::vector<audit::Record>& records, const Wanted& wanted);

// Exactly one record fits; else the test fails and shows them all. Returns it, or a blank one.
audit::Record expect_one(const std::vector<audit::Record>& records, const Wanted& wanted);

std::string to_lines(const std::vector<audit::Record>& records);

}  // namespace hufu::test
