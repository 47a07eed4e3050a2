#include "engine/graph/check_values.h"

#include <map>
#include <string>

#include "engine/ir/op.h"

namespace braid {
namespace {

/// The op of the nodes that this pass adds.
const OpDef& check_op() { return OpRegistry::global().require("CheckNumerics"); }

bool is_checked(const Plan& plan, const Node& node, int output) {
  const OutputInfo& info = node.outputs[static_cast<std::size_t>(output)];
  if (info.dtype != DType::Float32 && info.dtype != DType::Float64) return false;
  if (plan.program.graph.known_value({node.id, output})) return false;
  if (plan.feed_of({node.id, output}) >= 0) return true;
  for (const auto& [view, input] : node.op->views)
    if (view == output)
      return plan.program.graph.info(node.inputs[static_cast<std::size_t>(input)]).dtype == DType::Resource;
  return node.op != &check_op();
}

/// What the error says: "output 1 of [Split] node 'parts'".
std::string description(const Plan& plan, const Node& node, int output) {
  const std::string place = place_of(node);
  if (plan.feed_of({node.id, output}) >= 0) return "what is fed to " + place;
  return node.outputs.size() == 1 ? "the output of " + place
                                  : "output " + std::to_string(output) + " of " + place;
}

ValueRef add_check(Plan& plan, ValueRef value) {
  Graph& graph = plan.program.graph;
  const Node& from = graph.node(value.node);
  Node check;
  check.name = graph.unique_name(graph.value_name(value) + "/check_numerics");
  check.op = &check_op();
  check.inputs = {value};
  check.attrs = {{"message", description(plan, from, value.output)}, {"braid_fatal", true}};
  check.device = from.device;
  check.stream = from.stream;
  return {graph.add(std::move(check)), 0};
}

}  // namespace

void check_values(Plan& plan) {
  Graph& graph = plan.program.graph;
  std::map<ValueRef, ValueRef> checked;
  for (const NodeId id : graph.topological_order())
    for (int output = 0; output < static_cast<int>(graph.node(id).outputs.size()); ++output)
      if (is_checked(plan, graph.node(id), output))
        checked.emplace(ValueRef{id, output}, add_check(plan, {id, output}));
  graph.replace_uses(checked);
  for (const auto& [value, check] : checked) graph.mutable_node(check.node).inputs = {value};
  for (ValueRef& fetch : plan.fetches)
    if (const auto check = checked.find(fetch); check != checked.end()) fetch = check->second;
}

}  // namespace braid
