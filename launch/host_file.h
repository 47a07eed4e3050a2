// The hosts of a job that is started over ssh: a file with a line a host, as mpirun takes it.
//
//   # comment
//   node1 slots=2      two workers
//   node2              one
//
// Thread rule: pure functions.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "launch/cluster_spec.h"

namespace braid::launch {

struct Host {
  std::string name;  // or address; both ssh and the other tasks reach it by that
  int slots = 1;     // workers
};

/// Throws: InvalidArgument with `source` and the line.
std::vector<Host> parse_host_file(std::string_view text, const std::string& source);

/// The cluster's tasks on the hosts: the chief and workers fill one host's slots after another, servers go
/// around, an evaluator is on the first host. The addresses are ports from `first_port` on, on each host.
/// Throws: InvalidArgument when there are fewer slots than workers.
struct Placement {
  ClusterSpec cluster;
  std::map<Task, std::string> host_of;
};
struct TaskCounts {
  int workers = 1;
  int servers = 0;
  int evaluators = 0;
  bool with_chief = false;
};
Placement place_tasks(const std::vector<Host>& hosts, const TaskCounts& counts, int first_port);

}  // namespace braid::launch
