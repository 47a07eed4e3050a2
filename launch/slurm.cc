// Slurm (srun). Variables: man page of srun 22.05, section "OUTPUT ENVIRONMENT VARIABLES".
#include <fmt/core.h>

#include <algorithm>
#include <optional>

#include "launch/rank_variables.h"

namespace braid::launch {
namespace {

constexpr int kFirstPort = 20000;
constexpr int kPorts = 10000;

}  // namespace

int slurm_tasks_of_node(std::string_view counts, int node) {
  for (int first = 0; !counts.empty();) {
    const std::string_view part = counts.substr(0, counts.find(','));
    counts.remove_prefix(std::min(counts.size(), part.size() + 1));
    const std::size_t times = part.find("(x");
    const auto tasks = parse_count(part.substr(0, times), 1);
    const auto nodes = times == std::string_view::npos || !part.ends_with(')')
                           ? std::optional<int>(1)
                           : parse_count(part.substr(times + 2, part.size() - times - 3), 1);
    if (!tasks || !nodes) return 0;
    if (node < first + *nodes) return *tasks;
    first += *nodes;
  }
  return 0;
}

std::string first_slurm_node(std::string_view node_list) {
  const std::size_t bracket = node_list.find('[');
  const std::size_t comma = node_list.find(',');
  if (bracket == std::string_view::npos || comma < bracket) return std::string(node_list.substr(0, comma));
  // Within a bracket the first number ends at a range's dash, a list's comma, or the bracket. What follows
  // the bracket up to the next name belongs to every node of it.
  const std::size_t number_end = node_list.find_first_of("-,]", bracket);
  const std::size_t close = node_list.find(']', bracket);
  if (close == std::string_view::npos) return std::string(node_list);
  const std::string_view suffix = node_list.substr(close + 1, node_list.find(',', close) - close - 1);
  return fmt::format("{}{}{}", node_list.substr(0, bracket),
                     node_list.substr(bracket + 1, number_end - bracket - 1), suffix);
}

std::optional<RankInfo> read_slurm(const Environment& environment, int port) {
  if (find_variable(environment, "SLURM_STEP_NUM_TASKS") == nullptr) return std::nullopt;
  std::optional<RankInfo> info =
      read_family({"Slurm", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", {}}, environment);
  const std::string* counts = find_variable(environment, "SLURM_STEP_TASKS_PER_NODE");
  if (info && counts != nullptr)
    info->local_size =
        std::max(info->local_size,
                 slurm_tasks_of_node(*counts, int_variable(environment, "SLURM_NODEID", 0).value_or(0)));
  const std::string* nodes = find_variable(environment, "SLURM_STEP_NODELIST");
  if (info && nodes != nullptr && !nodes->empty()) {
    const int job = int_variable(environment, "SLURM_JOB_ID", 0).value_or(0);
    info->leader_address =
        fmt::format("{}:{}", first_slurm_node(*nodes), port != 0 ? port : kFirstPort + job % kPorts);
  }
  return info;
}

}  // namespace braid::launch
