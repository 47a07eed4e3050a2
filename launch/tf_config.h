// TF_CONFIG: the JSON text by which TensorFlow's launchers say who takes part in a job and who a process is.
// Reads what TensorFlow, Kubeflow's operators (with and without dynamic workers) and Google's services write:
// {"cluster": {job: [address] or {index: address}}, "task": {"type", "index"}}. "sparseCluster" may stand for
// "cluster", an index may be a string, and other keys are ignored.
//
// With dynamic workers the operator gives server i a list of servers that holds its own address alone, and no
// workers. Its "task" is right and its place in the list is not, so the address is taken as that of "task".
#pragma once

#include <string>
#include <string_view>

#include "launch/listed_cluster.h"

namespace braid::launch {

/// An absent or empty cluster gives an empty ListedCluster. Throws: InvalidArgument with the byte, line and
/// column of bad JSON, else the JSON path.
ListedCluster parse_tf_config(std::string_view text);

/// The object under "cluster" alone. `where` is what errors name in front of the JSON path.
ListedCluster parse_cluster_json(std::string_view text, std::string_view where);

/// The TF_CONFIG that makes a process `task` of `cluster`. Lists jobs as arrays; a partial cluster as index
/// objects.
std::string write_tf_config(const ClusterSpec& cluster, const Task& task);

}  // namespace braid::launch
