#include "engine/exec/placement_log.h"

#include <algorithm>

namespace braid {
namespace {

std::vector<Domain> domains_of(const Program& program, const std::vector<NodeId>& order) {
  std::vector<Domain> domains(static_cast<std::size_t>(program.graph.size()), Domain::Host);
  const auto domain = [&](NodeId id) -> Domain& { return domains[static_cast<std::size_t>(id)]; };
  std::vector<bool> runs(domains.size(), false);
  for (const ProgramOp& op : program.ops) {
    if (op.node == kNoNode || op.kind == OpKind::Copy) continue;
    domain(op.node) = op.domain;
    runs[static_cast<std::size_t>(op.node)] = true;
  }
  for (const NodeId id : order) {
    const Node& node = program.graph.node(id);
    if (runs[static_cast<std::size_t>(id)]) continue;
    if (node.op->role == OpRole::Variable) {
      const std::string name = variable_of(program.graph, {id, 0}).name;
      const auto holds = [&](const ProgramVariable& v) {
        return v.name == name || std::find(v.members.begin(), v.members.end(), name) != v.members.end();
      };
      const auto variable = std::find_if(program.variables.begin(), program.variables.end(), holds);
      if (variable != program.variables.end())
        domain(id) = program.buffers[static_cast<std::size_t>(variable->buffer)].domain;
    } else if (!node.op->views.empty()) {
      domain(id) = domain(node.inputs[static_cast<std::size_t>(node.op->views[0].second)].node);
    }
  }
  return domains;
}

}  // namespace

std::vector<std::string> placement_log(const Program& program, DeviceName process) {
  const std::vector<NodeId> order = program.graph.topological_order();
  const std::vector<Domain> domains = domains_of(program, order);
  std::vector<std::string> lines;
  for (const NodeId id : order) {
    const Node& node = program.graph.node(id);
    if (node.removed) continue;
    process.kind = domains[static_cast<std::size_t>(id)] == Domain::Device ? "GPU" : "CPU";
    lines.push_back(node.name + ": (" + node.op->name + "): " + full_device_name(process));
  }
  return lines;
}

}  // namespace braid
