#include "support/audit_reader.h"

#include <algorithm>
#include <filesystem>

#include <gtest/gtest.h>

#include "audit/text.h"
#include "audit/verify.h"

namespace hufu::test {

std::vector<audit::Record> records_in(const std::string& directory) {
  std::vector<audit::Record> records;
  if (!std::filesystem::exists(directory)) return records;
  const auto verdict = audit::verify_directory(
      directory, [&](const audit::Record& record) { records.push_back(record); });
  EXPECT_NE(verdict.status, audit::Status::kTampered) << verdict.what;
  EXPECT_NE(verdict.status, audit::Status::kIoError) << verdict.what;
  return records;
}

bool Wanted::fits(const audit::Record& record) const {
  const auto same = [](const auto& wanted, const auto& found) {
    return !wanted || *wanted == found;
  };
  if (asked &&
      (record.type != audit::Type::kDeny || record.aux != static_cast<std::uint64_t>(*asked))) {
    return false;
  }
  return same(type, record.type) && same(reason, record.reason) && same(uid, record.actor.uid) &&
         same(pid, static_cast<pid_t>(record.actor.pid)) &&
         same(owner_pid, static_cast<pid_t>(record.owner.pid)) && same(share, record.share_id) &&
         same(size, record.size) && same(aux, record.aux) && same(refs_after, record.refs_after);
}

std::size_t count(const std::vector<audit::Record>& records, const Wanted& wanted) {
  return static_cast<std::size_t>(std::ranges::count_if(
      records, [&](const audit::Record& record) { return wanted.fits(record); }));
}

audit::Record expect_one(const std::vector<audit::Record>& records, const Wanted& wanted) {
  EXPECT_EQ(count(records, wanted), 1U) << "the log says:\n" << to_lines(records);
  const auto found = std::ranges::find_if(
      records, [&](const audit::Record& record) { return wanted.fits(record); });
  return found == records.end() ? audit::Record{} : *found;
}

std::string to_lines(const std::vector<audit::Record>& records) {
  std::string text;
  for (const audit::Record& record : records)
    text += audit::to_line(record) + "\n";
  return text;
}

}  // namespace hufu::test
