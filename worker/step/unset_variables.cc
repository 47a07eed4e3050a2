#include "worker/step/unset_variables.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/error.h"
#include "engine/ir/op.h"
#include "engine/staging/graph_stage.h"

namespace braid::worker {
namespace {

/// Who uses each variable among the nodes.
struct Uses {
  std::vector<NodeId> readers, writers;
};

std::map<std::string, Uses> uses_of(const Graph& graph, const std::vector<NodeId>& nodes,
                                    std::vector<std::string>& order) {
  std::map<std::string, Uses> uses;
  for (const NodeId id : nodes) {
    const Node& node = graph.node(id);
    for (std::size_t i = 0; i < node.inputs.size(); ++i) {
      const Access access = handle_access(*node.op, i);
      if (access == Access::None || graph.info(node.inputs[i]).dtype != DType::Resource) continue;
      const std::string name = variable_of(graph, node.inputs[i]).name;
      const auto [at, is_new] = uses.try_emplace(name);
      if (is_new) order.push_back(name);
      (access == Access::Write ? at->second.writers : at->second.readers).push_back(id);
    }
  }
  return uses;
}

/// Whether every reader runs after some writer, by the graph's edges.
bool is_set_first(const Graph& graph, const std::vector<NodeId>& topological, const Uses& uses) {
  if (uses.writers.empty()) return uses.readers.empty();
  std::set<NodeId> after(uses.writers.begin(), uses.writers.end());
  for (const NodeId id : topological) {
    const Node& node = graph.node(id);
    const bool follows = std::any_of(node.inputs.begin(), node.inputs.end(),
                                     [&](ValueRef v) { return after.contains(v.node); }) ||
                         std::any_of(node.control_inputs.begin(), node.control_inputs.end(),
                                     [&](NodeId control) { return after.contains(control); });
    if (follows) after.insert(id);
  }
  return std::all_of(uses.readers.begin(), uses.readers.end(), [&](NodeId id) { return after.contains(id); });
}

}  // namespace

std::vector<std::string> take_unset_variables(const Graph& graph, const std::vector<std::string>& outputs,
                                              const std::vector<std::string>& targets,
                                              const std::vector<std::string>& given,
                                              std::set<std::string>& set) {
  std::vector<ValueRef> roots, known;
  std::vector<NodeId> nodes;
  for (const std::string& name : outputs) {
    roots.push_back(graph.parse_value(name));
    if (roots.back().output < 0)
      throw InvalidArgument(fmt::format("'{}' is a control edge, not a value", name));
  }
  for (const std::string& name : given) known.push_back(graph.parse_value(name));
  for (const std::string& name : targets) nodes.push_back(node_named(graph, name));
  const GraphPart part = part_above(graph, roots, nodes, known);
  std::vector<std::string> order;
  const std::map<std::string, Uses> uses = uses_of(graph, part.nodes, order);
  std::vector<NodeId> topological;  // of the part; only wanted where something is written
  if (std::any_of(uses.begin(), uses.end(), [](const auto& one) { return !one.second.writers.empty(); })) {
    const std::set<NodeId> in_part(part.nodes.begin(), part.nodes.end());
    for (const NodeId id : graph.topological_order())
      if (in_part.contains(id)) topological.push_back(id);
  }
  std::vector<std::string> unset;
  for (const std::string& name : order) {
    const Uses& own = uses.at(name);
    if (!set.contains(name) && !is_set_first(graph, topological, own)) unset.push_back(name);
    if (!own.writers.empty()) set.insert(name);
  }
  return unset;
}

std::string unset_text(const std::vector<std::string>& names) {
  constexpr std::size_t kShown = 5;
  std::string text = names.size() == 1 ? "1 variable has no value: "
                                       : fmt::format("{} variables have no values: ", names.size());
  for (std::size_t i = 0; i < std::min(kShown, names.size()); ++i)
    text += (i == 0 ? "'" : ", '") + names[i] + "'";
  return names.size() > kShown ? text + ", ..." : text;
}

}  // namespace braid::worker
