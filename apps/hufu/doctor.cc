// hufu doctor: what of this machine helps Hufu, what is in its way, and the command that mends it.

#include <algorithm>
#include <memory>
#include <string>

#include "hufu/commands.h"
#include "hufu/findings.h"
#include "hufu/output.h"

namespace hufu::cli {
namespace {

constexpr const char* kFooter = R"(Examples:
  hufu doctor
  hufu doctor --json

Three kinds of lines: "ok" is in force; "--" is missing, and Hufu does without it, as the line below
says; "!!" is missing and needed. Commands that begin with sudo change the machine for everybody.
Exit code: 0 nothing that Hufu needs is missing, 1 something is, 2 the command line is wrong.)";

const char* mark_of(State state) {
  switch (state) {
    case State::kInForce:
      return "ok";
    case State::kMissing:
      return "--";
    case State::kNeeded:
      return "!!";
  }
  return "??";
}

const char* name_of(State state) {
  switch (state) {
    case State::kInForce:
      return "in_force";
    case State::kMissing:
      return "missing";
    case State::kNeeded:
      return "needed";
  }
  return "unknown";
}

std::string to_text(const Findings& findings) {
  std::string text;
  std::string topic;
  for (const Finding& finding : findings) {
    if (finding.topic != topic) text += fmt::format("{}\n", topic = finding.topic);
    text += fmt::format("  {} {:24} {}\n", mark_of(finding.state), finding.name, finding.found);
    if (!finding.follows.empty()) text += fmt::format("{:30}{}\n", "", finding.follows);
    if (!finding.mend.empty()) text += fmt::format("{:30}mend: {}\n", "", finding.mend);
  }
  return text;
}

nlohmann::json to_json(const Findings& findings) {
  nlohmann::json rows = nlohmann::json::array();
  for (const Finding& finding : findings) {
    nlohmann::json row = {{"topic", finding.topic},
                          {"name", finding.name},
                          {"state", name_of(finding.state)},
                          {"found", finding.found}};
    if (!finding.follows.empty()) row["follows"] = finding.follows;
    if (!finding.mend.empty()) row["mend"] = finding.mend;
    rows.push_back(std::move(row));
  }
  return rows;
}

int doctor(bool json) {
  Findings findings;
  look_at_broker(findings);
  look_at_device(findings);
  look_at_limits(findings);
  look_at_memory(findings);
  look_at_kernel(findings);
  look_at_huge_pages(findings);
  const auto needed = std::ranges::count(findings, State::kNeeded, &Finding::state);
  const auto missing = std::ranges::count(findings, State::kMissing, &Finding::state);
  if (json) {
    print_json({{"findings", to_json(findings)}, {"needed", needed}, {"missing", missing}});
  } else {
    print(to_text(findings));
    print(needed != 0
              ? fmt::format("{} missing that Hufu needs\n", needed)
              : fmt::format("nothing that Hufu needs is missing; {} would help\n", missing));
  }
  return needed == 0 ? kOk : kFailed;
}

}  // namespace

void add_doctor(CLI::App& program, Action& chosen) {
  const auto json = std::make_shared<bool>(false);
  CLI::App* command =
      program.add_subcommand("doctor", "Say what is missing on this machine, and what mends it");
  command->footer(kFooter);
  command->add_flag("--json", *json, kJsonHelp);
  command->callback([json, &chosen] { chosen = [json] { return doctor(*json); }; });
}

}  // namespace hufu::cli
