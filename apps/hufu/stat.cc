// hufu stat: what the memory of each device is used for, and by whom.

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "hufu/commands.h"
#include "hufu/output.h"
#include "hufu/place.h"
#include "hufu/shares.h"

namespace hufu::cli {
namespace {

constexpr const char* kFooter = R"(Examples:
  hufu stat
  hufu stat --json | python3 -c 'import json,sys; print(sum(p["waste"] for p in json.load(sys.stdin)["processes"]))'

REQUESTED is what programs asked for, RESERVED what it takes, WASTE the difference: rounding to pages,
and what is left of the chunks that small pieces are cut from. WARM is freed and kept for reuse, SPARE
made ahead; both go back when memory is short. FALLBACKS counts the blocks so far that were to be of
huge pages and are of small ones (see `hufu doctor`). IN USE is the broker's own count, the rest is
each process's word. Root sees everybody's processes.
Exit code: 0 done (also when nothing is used), 1 failed or refused, 2 the command line is wrong.)";

struct DeviceState {
  std::uint32_t number = 0;
  std::uint64_t capacity = 0;
  std::uint64_t used = 0;
};

std::uint64_t requested(const hufuUsageInfo& usage) { return usage.requested + usage.pieces; }
std::uint64_t reserved(const hufuUsageInfo& usage) { return usage.reserved + usage.chunks; }
// A process writes its counts one by one: looked at in between, they may not fit together.
std::uint64_t waste(const hufuUsageInfo& usage) {
  return reserved(usage) - std::min(reserved(usage), requested(usage));
}

std::vector<hufuUsageInfo> all_usage() {
  std::vector<hufuUsageInfo> found(16);
  for (;;) {
    found.front().structSize = sizeof(hufuUsageInfo);
    std::size_t count = 0;
    require("listing usage", ::hufuUsageList(found.data(), found.size(), &count));
    const bool all = count <= found.size();
    found.resize(all ? count : 2 * count);
    if (all) return found;
  }
}

std::vector<DeviceState> all_devices() {
  std::uint32_t count = 0;
  require("counting devices", ::aclrtGetDeviceCount(&count));
  std::vector<DeviceState> devices;
  for (std::uint32_t number = 0; number < count; ++number) {
    const Device device(static_cast<int>(number));
    std::size_t free = 0;
    std::size_t total = 0;
    require("asking for memory", ::aclrtGetMemInfo(ACL_HBM_MEM, &free, &total));
    devices.push_back({.number = number, .capacity = total, .used = total - free});
  }
  return devices;
}

nlohmann::json to_json(const hufuUsageInfo& usage) {
  return {{"pid", usage.pid},
          {"uid", usage.uid},
          {"name", usage.name},
          {"device", usage.device},
          {"in_use", usage.charged},
          {"requested", requested(usage)},
          {"reserved", reserved(usage)},
          {"waste", waste(usage)},
          {"blocks",
           {{"count", usage.blocks}, {"requested", usage.requested}, {"reserved", usage.reserved}}},
          {"pieces", {{"requested", usage.pieces}, {"reserved", usage.chunks}}},
          {"warm", usage.warm},
          {"spare", usage.spare},
          {"huge_page_fallbacks", usage.hugeFallbacks}};
}

nlohmann::json to_json(const DeviceState& device) {
  return {{"device", device.number}, {"capacity", device.capacity}, {"in_use", device.used}};
}

template <class Row>
nlohmann::json rows_of(const std::vector<Row>& rows) {
  nlohmann::json all = nlohmann::json::array();
  for (const Row& row : rows)
    all.push_back(to_json(row));
  return all;
}

std::string table_of(const std::vector<DeviceState>& devices,
                     const std::vector<hufuUsageInfo>& processes) {
  std::string text = fmt::format("{:6}  {:>10}  {:>10}\n", "DEVICE", "CAPACITY", "IN USE");
  for (const DeviceState& device : devices) {
    text += fmt::format("{:<6}  {:>10}  {:>10}\n", device.number, human_size(device.capacity),
                        human_size(device.used));
  }
  if (processes.empty()) return text;
  text += fmt::format("\n{:24}  {:6}  {:>10}  {:>10}  {:>10}  {:>10}  {:>10}  {:>10}  {:>9}\n",
                      "PROCESS", "DEVICE", "IN USE", "REQUESTED", "RESERVED", "WASTE", "WARM",
                      "SPARE", "FALLBACKS");
  for (const hufuUsageInfo& usage : processes) {
    text += fmt::format("{:24}  {:<6}  {:>10}  {:>10}  {:>10}  {:>10}  {:>10}  {:>10}  {:>9}\n",
                        fmt::format("{} {}", usage.pid, printable(usage.name)), usage.device,
                        human_size(usage.charged), human_size(requested(usage)),
                        human_size(reserved(usage)), human_size(waste(usage)),
                        human_size(usage.warm), human_size(usage.spare), usage.hugeFallbacks);
  }
  return text;
}

int stat(bool json) {
  const Place place = find_broker();
  // A personal broker is started for whoever wants memory, not for whoever asks whether there is
  // any.
  const bool nobody_there = place.address.start_on_demand && !place.broker;
  std::vector<DeviceState> devices;
  std::vector<hufuUsageInfo> processes;
  if (!nobody_there) {
    processes = all_usage();
    devices = all_devices();
  }
  if (json) {
    print_json({{"devices", rows_of(devices)}, {"processes", rows_of(processes)}});
  } else if (nobody_there) {
    say(fmt::format("nothing is used: no broker runs at {}", place.address.path));
  } else {
    print(table_of(devices, processes));
  }
  return kOk;
}

}  // namespace

void add_stat(CLI::App& program, Action& chosen) {
  const auto json = std::make_shared<bool>(false);
  CLI::App* command =
      program.add_subcommand("stat", "Show what each process asked for, and what that takes");
  command->footer(kFooter);
  command->add_flag("--json", *json, kJsonHelp);
  command->callback([json, &chosen] { chosen = [json] { return stat(*json); }; });
}

}  // namespace hufu::cli
