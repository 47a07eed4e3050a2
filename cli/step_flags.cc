#include "cli/step_flags.h"

#include <CLI/CLI.hpp>

#include "base/log.h"
#include "engine/exec/placement_log.h"

namespace braid::cli {

std::vector<std::string> StepFlags::overrides() const {
  std::vector<std::string> fields;
  if (log_device_placement) fields.emplace_back("runtime.log_device_placement=true");
  if (no_soft_placement) fields.emplace_back("runtime.soft_placement=false");
  if (check_numerics) fields.emplace_back("runtime.check_numerics=true");
  return fields;
}

void add_step_flags(CLI::App& command, StepFlags& flags) {
  command.add_flag("--log-device-placement", flags.log_device_placement,
                   "Log where each node of the step runs: 'name: (Op): /job:.../device:CPU:0'");
  command.add_flag(
      "--no-soft-placement", flags.no_soft_placement,
      "Refuse nodes that cannot run on the device they ask for, instead of running them on the CPU");
  command.add_flag("--check-numerics", flags.check_numerics,
                   "Stop at the node that makes the first NaN or infinity; slower");
}

void log_placement(const Program& program) {
  for (const std::string& line : placement_log(program)) log_info("{}", line);
}

}  // namespace braid::cli
