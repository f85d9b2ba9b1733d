#pragma once

// What `hufu doctor` looks at. Features are tried, not guessed from a version: a container or a
// distribution's kernel may lack what its number promises. Nothing is changed and no broker
// started.

#include <cstdint>
#include <string>
#include <vector>

namespace hufu::cli {

enum class State : std::uint8_t {
  kInForce,
  kMissing,  // Hufu works without it, less well.
  kNeeded,   // Hufu does not work without it.
};

struct Finding {
  std::string topic;    // "broker", "limits", ...
  std::string name;     // What was looked at.
  std::string found;    // What there is, with its numbers.
  std::string follows;  // What that means for the user; empty where it goes without saying.
  std::string mend;     // The command that mends it; empty when nothing does, or nothing need.
  State state = State::kInForce;
};

using Findings = std::vector<Finding>;

void look_at_broker(Findings& findings);
void look_at_device(Findings& findings);
void look_at_limits(Findings& findings);
void look_at_memory(Findings& findings);
void look_at_kernel(Findings& findings);
void look_at_huge_pages(Findings& findings);

}  // namespace hufu::cli
