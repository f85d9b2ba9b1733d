// hufu: the command line. Shares a file's memory, opens a share, lists shares, reads the audit log,
// and says what of this machine is in Hufu's way.

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <exception>
#include <span>
#include <string_view>

#include "hufu/commands.h"
#include "hufu/output.h"

namespace {

constexpr const char* kFooter = R"(Examples:
  hufu share model.bin -o key        share a file's bytes until Ctrl-C
  hufu open @key --sha256            in another process: map them, no copy, hash them
  hufu ls                            what is shared now, by whom, held by how many
  hufu stat                          what each process asked for, and what that takes
  hufu audit show --tail 20          who got what, who was refused and why
  hufu doctor                        what is missing on this machine, and the command that mends it

Exit code: 0 done, 1 failed or refused, 2 the command line is wrong; `hufu audit verify` has its own.
`hufu COMMAND --help` has more examples.)";

using hufu::cli::Failure;

// What the parser did not understand may be a key in the wrong place; its texts quote it.
std::string without_keys(std::string_view text) {
  constexpr std::string_view kKeyLetters =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
  constexpr std::size_t kTooLongForAWord = 40;
  std::string shown;
  while (!text.empty()) {
    const auto end = std::min(text.find_first_not_of(kKeyLetters), text.size());
    shown += end < kTooLongForAWord ? text.substr(0, end) : "(a key?)";
    text.remove_prefix(end);
    if (!text.empty()) shown += text.front();
    if (!text.empty()) text.remove_prefix(1);
  }
  return shown;
}

int report(const Failure& failure, int exit_code, bool json) {
  hufu::cli::say(failure.message);
  if (json) {
    try {
      hufu::cli::print_json({{"error", {{"code", failure.code}, {"message", failure.message}}}});
    } catch (const Failure&) {  // NOLINT(bugprone-empty-catch): stdout is gone; stderr has it.
    }
  }
  return exit_code;
}

}  // namespace

int main(int argc, char** argv) {
  // A reader that goes away is an error of write(), with a text.
  std::signal(SIGPIPE, SIG_IGN);
  const std::span<char*> arguments(argv, static_cast<std::size_t>(argc));
  bool json = false;  // Known before parsing, which may be what fails.
  for (const std::string_view argument : arguments) {
    json = json || argument == "--json";
  }

  try {
    hufu::cli::Action chosen;
    CLI::App program("hufu: share memory between processes, without copying, and on the record.",
                     "hufu");
    program.footer(kFooter);
    program.set_version_flag("--version", "hufu " HUFU_VERSION);
    program.require_subcommand(1);
    hufu::cli::add_share(program, chosen);
    hufu::cli::add_open(program, chosen, arguments);
    hufu::cli::add_ls(program, chosen);
    hufu::cli::add_stat(program, chosen);
    hufu::cli::add_audit(program, chosen);
    hufu::cli::add_doctor(program, chosen);
    try {
      program.parse(argc, argv);
    } catch (const CLI::Success& wanted) {  // --help, --version
      return program.exit(wanted);
    } catch (const CLI::ParseError& error) {
      return report({EINVAL, without_keys(error.what()) + " (hufu --help)"}, hufu::cli::kUsage,
                    json);
    }
    return chosen();
  } catch (const Failure& failure) {
    return report(failure, hufu::cli::kFailed, json);
  } catch (const std::exception& error) {
    return report({ENOMEM, error.what()}, hufu::cli::kFailed, json);
  }
}
