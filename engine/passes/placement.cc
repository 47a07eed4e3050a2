// Which device a node runs on. There is only the CPU so far; placement is soft: a node that asks for another
// device runs on the CPU, and the plan says so.
#include <map>

#include "engine/passes/plan.h"

namespace braid {
namespace {

bool names_cpu(const std::string& device) {
  // "/job:worker/task:1/cpu:0", "/device:CPU:0"; job and task are the strategy's business.
  return device.find("cpu:") != std::string::npos || device.find("CPU:") != std::string::npos;
}

bool names_a_kind(const std::string& device) {
  for (const char* kind : {"gpu:", "GPU:", "device:", "cuda:", "CUDA:", "tpu:", "TPU:"})
    if (device.find(kind) != std::string::npos) return true;
  return false;
}

}  // namespace

void place(Plan& plan) {
  struct Moved {
    int nodes = 0;
    std::string first;
  };
  std::map<std::string, Moved> moved;
  const Graph& graph = plan.program.graph;
  for (NodeId id = 0; id < graph.size(); ++id) {
    const Node& node = graph.node(id);
    if (node.removed || node.device.empty() || names_cpu(node.device) || !names_a_kind(node.device)) continue;
    Moved& entry = moved[node.device];
    if (entry.nodes++ == 0) entry.first = node.name;
  }
  for (const auto& [device, entry] : moved)
    plan.program.notes.push_back("placement: " + std::to_string(entry.nodes) + " nodes ask for '" + device +
                                 "' (first: '" + entry.first + "') and run on the CPU: no such device");
}

}  // namespace braid
