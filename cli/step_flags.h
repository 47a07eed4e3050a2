// Flags about where the nodes of a step run and what is checked of them, which `braid train`, `braid graph
// run` and `braid graph plan` have.
#pragma once

#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace braid {
class Program;
}

namespace braid::cli {

struct StepFlags {
  bool log_device_placement = false;
  bool no_soft_placement = false;
  bool check_numerics = false;

  /// The fields of a job that they set.
  std::vector<std::string> overrides() const;
};

void add_step_flags(CLI::App& command, StepFlags& flags);

/// Logs a line a node.
void log_placement(const Program& program);

}  // namespace braid::cli
