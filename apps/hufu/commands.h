#pragma once

// The commands. Each function adds one to the program: its options, its examples, what it does.
//
// A command runs after the whole command line was understood, so none does half of its work and
// then complains about an option. It returns the exit code, or throws a Failure (output.h).

#include <functional>
#include <span>

#include <CLI/CLI.hpp>

namespace hufu::cli {

using Action = std::function<int()>;

void add_share(CLI::App& program, Action& chosen);
// `arguments` are the program's own, as `ps` shows them: a key among them is overwritten.
void add_open(CLI::App& program, Action& chosen, std::span<char*> arguments);
void add_ls(CLI::App& program, Action& chosen);
void add_audit(CLI::App& program, Action& chosen);
void add_stat(CLI::App& program, Action& chosen);
void add_doctor(CLI::App& program, Action& chosen);

}  // namespace hufu::cli
