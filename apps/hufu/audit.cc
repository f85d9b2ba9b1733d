// hufu audit: shows and judges the log. Whatever is shown was verified first.

#include <deque>
#include <memory>
#include <string>

#include "audit/text.h"
#include "audit/verify.h"
#include "hufu/commands.h"
#include "hufu/output.h"
#include "hufu/place.h"

namespace hufu::cli {
namespace {

constexpr const char* kShowFooter = R"(Examples:
  hufu audit show                     every verified record, one line each
  hufu audit show --tail 20           the last ones
  hufu audit show --tail 5 --json     for programs

Exit code: 0 shown, 1 the log was tampered with or cannot be read (what could be verified is shown),
2 the command line is wrong.)";

constexpr const char* kVerifyFooter = R"(Examples:
  hufu audit verify                   the log of the broker you use
  hufu audit verify --dir /var/log/hufu

Exit code: 0 all records are there and unaltered
           1 tampered with: a record was altered, moved, added or removed; the first is named
           2 it ends early: records, or the whole log, are missing; also after the broker was
             killed, which a cut end cannot be told from; also when the command line is wrong
           3 an interrupted write was cut off at the end; all else is well
           4 it could not be read)";

constexpr const char* kPathFooter = R"(Examples:
  hufu audit path
  hufu audit path --json

HUFU_AUDIT_DIR names another place. Exit code: 0 done, 1 there is no log (HUFU_BROKER=none), 2 the
command line is wrong.)";

struct Options {
  std::string directory;
  std::size_t tail = 0;  // 0: all
  bool json = false;
};

std::string_view name_of(audit::Status status) {
  switch (status) {
    case audit::Status::kOk:
      return "ok";
    case audit::Status::kTampered:
      return "tampered";
    case audit::Status::kEndsEarly:
      return "ends_early";
    case audit::Status::kRecoveredTail:
      return "recovered_tail";
    case audit::Status::kIoError:
      return "io_error";
  }
  return "unknown";
}

std::string sentence(const audit::Verdict& verdict) {
  const std::string verified =
      verdict.records == 0 ? std::string("no record verified")
                           : fmt::format("{} records verified (#{} to #{})", verdict.records,
                                         verdict.first_seq, verdict.last_seq);
  if (verdict.status == audit::Status::kOk) {
    return fmt::format("ok: {}{}", verified, verdict.being_written ? ", being written" : "");
  }
  std::string text = fmt::format("{}: {}", name_of(verdict.status), verified);
  if (verdict.bad_seq != 0) text += fmt::format("; first bad is #{}", verdict.bad_seq);
  if (!verdict.file.empty()) {
    text += fmt::format(" in {} at byte {}", verdict.file, verdict.offset);
  }
  return text + ": " + verdict.what;
}

nlohmann::json to_json(const audit::Verdict& verdict, const std::string& directory) {
  nlohmann::json document = {{"directory", directory},
                             {"status", name_of(verdict.status)},
                             {"exit_code", static_cast<int>(verdict.status)},
                             {"records", verdict.records},
                             {"first_seq", verdict.first_seq},
                             {"last_seq", verdict.last_seq},
                             {"being_written", verdict.being_written}};
  if (verdict.status != audit::Status::kOk) {
    document["first_bad"] = {{"seq", verdict.bad_seq},
                             {"file", verdict.file},
                             {"offset", verdict.offset},
                             {"what", verdict.what}};
  }
  return document;
}

nlohmann::json to_json(const audit::Record& record) {
  nlohmann::json row = {{"seq", record.seq},
                        {"time_ns", record.realtime_ns},
                        {"type", audit::name_of(record.type)},
                        {"outcome", audit::name_of(record.outcome)},
                        {"text", audit::to_line(record)}};
  if (!std::holds_alternative<std::monostate>(record.own)) return row;
  row["reason"] = hufu::name_of(record.reason);
  row["code"] = record.acl_code;
  row["actor"] = {{"pid", record.actor.pid},
                  {"uid", record.actor.uid},
                  {"gid", record.actor.gid},
                  {"start_time", record.actor.start_time},
                  {"name", audit::escaped(record.actor.comm)}};
  row["owner"] = {{"pid", record.owner.pid}, {"uid", record.owner.uid}};
  std::string public_id;
  for (const std::byte byte : record.key_id) {
    public_id += fmt::format("{:02x}", static_cast<unsigned>(byte));
  }
  row["public_id"] = public_id;
  row["offset"] = record.offset;
  row["size"] = record.size;
  row["page_size"] = record.page;
  row["access"] = static_cast<int>(record.access);
  row["holders_after"] = record.refs_after;
  row["aux"] = record.aux;
  if (record.type == audit::Type::kDeny) {
    row["asked"] = audit::name_of(static_cast<audit::Type>(record.aux));
  }
  return row;
}

int show(const Options& options) {
  const std::string directory = audit_directory(options.directory);
  std::deque<audit::Record> last;
  const auto visit = [&](const audit::Record& record) {
    if (options.tail == 0 && !options.json) {
      print(audit::to_line(record) + "\n");
      return;
    }
    last.push_back(record);
    if (options.tail != 0 && last.size() > options.tail) last.pop_front();
  };
  const audit::Verdict verdict = audit::verify_directory(directory, visit);
  if (options.json) {
    nlohmann::json rows = nlohmann::json::array();
    for (const audit::Record& record : last) {
      rows.push_back(to_json(record));
    }
    print_json({{"records", rows}, {"verdict", to_json(verdict, directory)}});
  } else {
    for (const audit::Record& record : last) {
      print(audit::to_line(record) + "\n");
    }
  }
  if (verdict.status != audit::Status::kOk) {
    say(fmt::format("verification of {} stopped: {}", directory, sentence(verdict)));
  }
  const bool distrusted = verdict.status == audit::Status::kTampered ||
                          verdict.status == audit::Status::kIoError ||
                          (verdict.status == audit::Status::kEndsEarly && verdict.records == 0);
  return distrusted ? kFailed : kOk;
}

int verify(const Options& options) {
  const std::string directory = audit_directory(options.directory);
  const audit::Verdict verdict = audit::verify_directory(directory);
  if (options.json) {
    print_json(to_json(verdict, directory));
  } else {
    print(fmt::format("{}: {}\n", directory, sentence(verdict)));
  }
  return static_cast<int>(verdict.status);
}

int path(const Options& options) {
  const std::string directory = audit_directory(options.directory);
  if (options.json) {
    print_json({{"directory", directory}});
  } else {
    print(directory + "\n");
  }
  return kOk;
}

struct Command {
  const char* name;
  const char* purpose;
  const char* footer;
  int (*work)(const Options&);
};

CLI::App* add(CLI::App& group, Action& chosen, const std::shared_ptr<Options>& options,
              const Command& what) {
  CLI::App* command = group.add_subcommand(what.name, what.purpose);
  command->footer(what.footer);
  command->add_flag("--json", options->json, kJsonHelp);
  command->callback([options, work = what.work, &chosen] {
    chosen = [options, work] { return work(*options); };
  });
  return command;
}

}  // namespace

void add_audit(CLI::App& program, Action& chosen) {
  const auto options = std::make_shared<Options>();
  CLI::App* group = program.add_subcommand("audit", "Show or verify the record of who got what");
  group->footer(
      "Examples:\n  hufu audit show --tail 20\n  hufu audit verify\n  hufu audit path\n\n"
      "Exit code: see `hufu audit COMMAND --help`.");
  group->require_subcommand(1);
  CLI::App* shower =
      add(*group, chosen, options, {"show", "Print the verified records", kShowFooter, show});
  shower->add_option("--tail", options->tail, "Only the last so many")->check(CLI::PositiveNumber);
  CLI::App* verifier =
      add(*group, chosen, options,
          {"verify", "Say whether the log is whole and unaltered", kVerifyFooter, verify});
  for (CLI::App* command : {shower, verifier}) {
    command->add_option("--dir", options->directory, "The log's directory, if it is another one");
  }
  add(*group, chosen, options, {"path", "Print where the log lies", kPathFooter, path});
}

}  // namespace hufu::cli
