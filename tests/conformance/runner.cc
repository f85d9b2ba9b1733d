// Runs the tables: each in a process of its own, with a broker for each mode.
//
//   conformance                 every mode, every case
//   conformance --mode NAME     memfd, strict, hugetlb or giant
//   conformance --list          the table: case, code, strict code, row of docs/differences.md
//   conformance --only TEXT     cases whose name contains it
//
// A case that crashes has failed; the next one goes on in a new process. A mode that this machine
// cannot run is skipped, and says why. The last line is `N passed, M failed, K skipped`; the exit
// status is 0 when nothing failed and something passed.

#include <cstdio>
#include <fstream>
#include <set>
#include <span>

#include <gtest/gtest.h>

#include "base/units.h"
#include "os/huge_pages.h"
#include "suite.h"
#include "support/test_broker.h"

namespace hufu::conformance {
namespace {

struct ModeOfRun {
  Mode mode;
  const char* name;
  test::Environment environment;
  const char* capacity;
  // Why this machine cannot; empty when it can.
  std::string (*obstacle)();
};

// What a worker's every answer begins with: an empty one would be its end.
const std::string kDone = "done";

std::string none() { return {}; }

std::string too_few(PageSize page, std::uint64_t needed, const char* remedy) {
  const auto pages = os::huge_pages(page);
  if (pages.available >= needed) return {};
  return fmt::format("{} of {} reserved pages of {} MiB are available and {} are needed: {}",
                     pages.available, pages.reserved, hufu::bytes_of(page) / kMiB, needed, remedy);
}

const std::vector<ModeOfRun>& modes() {
  static const std::vector<ModeOfRun> all = {
      {Mode::kMemfd, "memfd", {{"HUFU_HUGEPAGES", "never"}}, "1G", none},
      {Mode::kStrict, "strict", {{"HUFU_HUGEPAGES", "never"}, {"HUFU_STRICT", "cann"}}, "1G", none},
      {Mode::kHugetlb,
       "hugetlb",
       {{"HUFU_HUGEPAGES", "require"}},
       "1G",
       [] { return too_few(PageSize::k2MiB, 24, "sysctl vm.nr_hugepages=64"); }},
      {Mode::kReserved1G,
       "giant",
       {{"HUFU_HUGEPAGES", "require"}},
       "4G",
       [] {
         return too_few(PageSize::k1GiB, 3,
                        "write 4 to /sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages");
       }},
  };
  return all;
}

const std::vector<Table>& tables() {
  static const std::vector<Table> all = {
      device_memory_cases(), host_memory_cases(), managed_cases(), copy_cases(), task_cases(),
      vmm_cases(),           vmm_sharing_cases(), ipc_cases(),     pool_cases(), allocator_cases()};
  return all;
}

// In the worker: "run MODE TABLE CASE". Answers "done" and what is wrong, a line each.
void work(test::Channel& channel) {
  Peers peers;
  test::serve(channel, [&](const test::Words& words) -> std::string {
    const auto number = [&](std::size_t index) { return std::stoul(words.at(index)); };
    const Mode mode = modes().at(number(1)).mode;
    const Case& wanted = tables().at(number(2)).cases.at(number(3));
    Bench bench(mode, peers);
    try {
      need(aclrtSetDevice(0), "aclrtSetDevice(0)");
      (void)aclGetRecentErrMsg();
      bench.judge(wanted.body(bench), wanted.codes);
    } catch (const std::exception& error) {
      bench.fail(error.what());
    }
    bench.clean_up();
    std::string text = kDone;
    for (const std::string& failure : bench.failures())
      text += "\n    " + failure;
    return text;
  });
}
const test::HelperProgram kWorker("conformance-worker", work);

struct Counts {
  std::size_t passed = 0;
  std::size_t failed = 0;
  std::size_t skipped = 0;
};

bool wanted(const Case& one, Mode mode, const std::string& only) {
  if (mode == Mode::kReserved1G && !one.pages) return false;
  return only.empty() || one.name.find(only) != std::string::npos;
}

void run_table(const ModeOfRun& run, std::size_t mode, std::size_t table, const std::string& only,
               const test::TestBroker& broker, Counts& counts) {
  test::Environment environment = broker.environment();
  environment.insert(environment.end(), run.environment.begin(), run.environment.end());
  std::optional<test::Helper> worker;
  const auto& cases = tables()[table].cases;
  for (std::size_t i = 0; i < cases.size(); ++i) {
    if (!wanted(cases[i], run.mode, only)) continue;
    std::string failures;
    try {
      if (!worker) {
        worker.emplace("conformance-worker", test::Helper::Options{.environment = environment});
      }
      failures = worker->ask(fmt::format("run {} {} {}", mode, table, i)).substr(kDone.size());
    } catch (const std::exception& error) {
      failures = fmt::format("\n    {}", error.what());
      worker.reset();  // Kills it if it still runs.
    }
    if (failures.empty()) {
      ++counts.passed;
    } else {
      ++counts.failed;
      std::printf("FAILED [%s] %s%s\n", run.name, cases[i].name.c_str(), failures.c_str());
    }
  }
}

Counts run_mode(std::size_t mode, const std::string& only) {
  const ModeOfRun& run = modes()[mode];
  Counts counts;
  if (const std::string obstacle = run.obstacle(); !obstacle.empty()) {
    for (const Table& table : tables()) {
      for (const Case& one : table.cases)
        counts.skipped += wanted(one, run.mode, only) ? 1 : 0;
    }
    std::printf("SKIPPED [%s] %zu cases: %s\n", run.name, counts.skipped, obstacle.c_str());
    return counts;
  }
  {
    const test::TestBroker broker({.capacity = run.capacity});
    for (std::size_t table = 0; table < tables().size(); ++table)
      run_table(run, mode, table, only, broker, counts);
  }
  std::printf("[%s] %zu passed, %zu failed\n", run.name, counts.passed, counts.failed);
  return counts;
}

// The rows of the first table of docs/differences.md, by their first cell.
std::set<std::string> written_differences() {
  std::ifstream in(HUFU_DIFFERENCES);
  std::set<std::string> rows;
  std::string line;
  while (std::getline(in, line) && line != "## Answers") {
  }
  while (std::getline(in, line) && !line.starts_with("## ")) {
    if (line.starts_with("| ") && !line.starts_with("| CANN |")) {
      rows.insert(line.substr(2, line.find(" |", 2) - 2));
    }
  }
  return rows;
}

// A case may only appeal to a difference that is written down, each that is has a case, and no two
// cases have one name.
bool check_tables() {
  const std::set<std::string> rows = written_differences();
  std::set<std::string> names;
  std::set<std::string> used;
  bool good = true;
  const auto complain = [&](const std::string& text) {
    std::printf("%s\n", text.c_str());
    good = false;
  };
  for (const Table& table : tables()) {
    for (const Case& one : table.cases) {
      if (one.codes.difference != nullptr) used.insert(one.codes.difference);
      if (!names.insert(one.name).second) complain("two cases are called " + one.name);
    }
  }
  for (const std::string& row : used) {
    if (!rows.contains(row)) complain("docs/differences.md has no answer `" + row + "`");
  }
  for (const std::string& row : rows) {
    if (!used.contains(row)) complain("no case shows the difference `" + row + "`");
  }
  return good;
}

int list() {
  for (const Table& table : tables()) {
    std::printf("%s: %zu cases\n", table.name, table.cases.size());
    for (const Case& one : table.cases) {
      std::printf("  %-90s %6d %6d %s\n", one.name.c_str(), one.codes.plain, one.codes.strict,
                  one.codes.difference == nullptr ? "" : one.codes.difference);
    }
  }
  return 0;
}

int run(std::span<char*> arguments) {
  std::string only;
  std::string mode_name;
  for (std::size_t i = 1; i < arguments.size(); ++i) {
    const std::string_view word = arguments[i];
    const bool has_value = i + 1 < arguments.size();
    if (word == "--list") return list();
    if (word == "--only" && has_value) {
      only = arguments[++i];
    } else if (word == "--mode" && has_value) {
      mode_name = arguments[++i];
    } else {
      std::fprintf(stderr, "usage: conformance [--list] [--mode NAME] [--only TEXT]\n");
      return 2;
    }
  }
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  Counts all;
  bool known = false;
  if (!check_tables()) ++all.failed;
  for (std::size_t mode = 0; mode < modes().size(); ++mode) {
    if (!mode_name.empty() && mode_name != modes()[mode].name) continue;
    known = true;
    const Counts counts = run_mode(mode, only);
    all.passed += counts.passed;
    all.failed += counts.failed;
    all.skipped += counts.skipped;
  }
  if (!known) {
    std::fprintf(stderr, "no mode is called %s\n", mode_name.c_str());
    return 2;
  }
  // What the broker's own examination and the ends of the processes found.
  if (testing::UnitTest::GetInstance()->ad_hoc_test_result().Failed()) ++all.failed;
  std::printf("%zu passed, %zu failed, %zu skipped\n", all.passed, all.failed, all.skipped);
  return all.failed == 0 && all.passed + all.skipped != 0 ? 0 : 1;
}

}  // namespace
}  // namespace hufu::conformance

int main(int argc, char** argv) {
  if (const auto status = hufu::test::run_as_helper(argc, argv)) return *status;
  return hufu::conformance::run({argv, static_cast<std::size_t>(argc)});
}
