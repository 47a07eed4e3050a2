// Prints who it is, as a process that a launcher started: "<rank|-> <task> <number of tasks>". Takes
// --ps-ranks K.
#include <fmt/core.h>

#include <cstdlib>
#include <cstring>

#include "launch/cluster_spec.h"

int main(int argc, char** argv) {
  using namespace braid::launch;
  LaunchFlags flags;
  if (argc == 3 && std::strcmp(argv[1], "--ps-ranks") == 0) flags.ps_ranks = std::atoi(argv[2]);
  const ClusterSpec spec = resolve_cluster(process_environment(), flags);
  fmt::print("{} {} {}\n", spec.rank ? std::to_string(*spec.rank) : "-", task_name(spec.task),
             spec.tasks().size());
}
