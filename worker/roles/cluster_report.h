// Who a process of a job is and what of its host it is bound to, as JSON (`braid train --print-cluster`): its
// task and its peers, cores and their NUMA nodes, the nodes whose memory it may use, its GPU and the GPU's
// node. Starts nothing, opens no device. Thread rule: pure functions.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "launch/cluster_spec.h"

namespace braid::proto {
class Job;
}

namespace braid::worker {

/// "0-3,8" -> 0, 1, 2, 3, 8, as Linux writes lists of cores and nodes. What is no number is left out.
std::vector<int> parse_cpu_list(const std::string& text);
/// The inverse.
std::string format_cpu_list(const std::vector<int>& numbers);
/// The nodes, below `nodes` ("/sys/devices/system/node"), that have one of the cores; none where there is no
/// such directory.
std::vector<int> numa_nodes_of(const std::vector<int>& cores, const std::filesystem::path& nodes);

/// Lines of JSON, the last without an end. Throws: as check_cluster(), resolve_device() and device_ordinal().
std::string cluster_report(const proto::Job& job, const launch::ClusterSpec& cluster);

}  // namespace braid::worker
