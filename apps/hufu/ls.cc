// hufu ls: the shares that this user may see, and who holds them.

#include <memory>
#include <string>

#include "hufu/commands.h"
#include "hufu/output.h"
#include "hufu/place.h"
#include "hufu/shares.h"

namespace hufu::cli {
namespace {

constexpr const char* kFooter = R"(Examples:
  hufu ls
  hufu ls --json | python3 -c 'import json,sys; print(sum(s["size"] for s in json.load(sys.stdin)["shares"]))'

A share is listed while new imports can succeed. Keys are not shown and cannot be: the public id is
a hash of the key. Root sees everybody's shares.
Exit code: 0 done (also when there is none), 1 failed or refused, 2 the command line is wrong.)";

std::string who_may_import(const hufuShareInfo& share) {
  return share.pidValidation == 0 ? "any" : fmt::format("{} pid", share.listedPids);
}

nlohmann::json to_json(const hufuShareInfo& share) {
  return {{"public_id", share.publicId},
          {"owner", {{"pid", share.ownerPid}, {"uid", share.ownerUid}, {"name", share.ownerName}}},
          {"size", share.size},
          {"offset", share.offset},
          {"page_size", share.pageSize},
          {"access", share.access == 1 ? "read-only" : "read-write"},
          {"pid_validation", share.pidValidation != 0},
          {"listed_pids", share.listedPids},
          {"importers", share.importers},
          {"imports", share.imports},
          {"age_ns", share.ageNs}};
}

std::string table_of(const std::vector<hufuShareInfo>& shares) {
  std::string text = fmt::format("{:32}  {:24}  {:>10}  {:10}  {:6}  {:>7}  {:>7}\n", "PUBLIC ID",
                                 "OWNER", "SIZE", "ACCESS", "LIST", "HOLDERS", "AGE");
  for (const hufuShareInfo& share : shares) {
    text += fmt::format("{:32}  {:24}  {:>10}  {:10}  {:6}  {:>7}  {:>7}\n", share.publicId,
                        fmt::format("{} {}", share.ownerPid, printable(share.ownerName)),
                        human_size(share.size), share.access == 1 ? "read-only" : "read-write",
                        who_may_import(share), share.importers, human_time(share.ageNs));
  }
  return text;
}

int list(bool json) {
  const Place place = find_broker();
  std::vector<hufuShareInfo> shares;
  // A personal broker is started for whoever wants memory, not for whoever asks whether there is
  // any.
  const bool nobody_shares = place.address.start_on_demand && !place.broker;
  if (!nobody_shares) shares = all_shares();
  if (json) {
    nlohmann::json rows = nlohmann::json::array();
    for (const hufuShareInfo& share : shares) {
      rows.push_back(to_json(share));
    }
    print_json({{"shares", rows}});
    return kOk;
  }
  if (nobody_shares) {
    say(fmt::format("nothing is shared: no broker runs at {}", place.address.path));
  } else if (shares.empty()) {
    say(fmt::format("nothing is shared at {}", place.address.path));
  } else {
    print(table_of(shares));
  }
  return kOk;
}

}  // namespace

void add_ls(CLI::App& program, Action& chosen) {
  const auto json = std::make_shared<bool>(false);
  CLI::App* command = program.add_subcommand("ls", "List the live shares, and who holds them");
  command->footer(kFooter);
  command->add_flag("--json", *json, kJsonHelp);
  command->callback([json, &chosen] { chosen = [json] { return list(*json); }; });
}

}  // namespace hufu::cli
