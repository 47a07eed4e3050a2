// torchrun and everything that speaks its variables. MASTER_PORT belongs to the store of torchrun's agent
// when TORCHELASTIC_USE_AGENT_STORE says so; the leader then listens one port above it.
#include <fmt/core.h>

#include "base/error.h"
#include "launch/rank_variables.h"

namespace braid::launch {

bool started_by_torchrun(const Environment& environment) {
  return find_variable(environment, "TORCHELASTIC_RUN_ID") != nullptr;
}

std::optional<RankInfo> read_torchrun(const Environment& environment, int port) {
  std::optional<RankInfo> info =
      read_family({"torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"}, environment);
  const std::string* host = find_variable(environment, "MASTER_ADDR");
  if (!info || host == nullptr || host->empty()) return info;
  if (port == 0) {
    const std::optional<int> master = int_variable(environment, "MASTER_PORT", 1);
    if (!master) return info;
    const std::string* agent = find_variable(environment, "TORCHELASTIC_USE_AGENT_STORE");
    port = *master + (agent != nullptr && *agent == "True" ? 1 : 0);
    if (port > 65535)
      throw InvalidArgument(
          fmt::format("[launch] torchrun: MASTER_PORT={} leaves no port for the leader", *master));
  }
  const bool bare_v6 = host->find(':') != std::string::npos && host->front() != '[';
  info->leader_address = fmt::format(fmt::runtime(bare_v6 ? "[{}]:{}" : "{}:{}"), *host, port);
  return info;
}

}  // namespace braid::launch
