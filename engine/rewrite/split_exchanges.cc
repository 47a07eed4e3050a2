// What peers have written is taken by a node of its own, on another stream: the exchanges of a step have one
// stream and one order, and while a rank takes what came, the next one's bytes travel.
// Whoever waits for the node in that order waits for its first part. Small exchanges stay one node.
#include <algorithm>

#include "engine/ops/common/two_parts.h"
#include "engine/program/cost_model.h"
#include "engine/rewrite/passes.h"
#include "engine/rewrite/rewrite.h"

namespace braid {
namespace {

constexpr double kLeastTravel = 1 << 18;  // less takes as long as to begin another kernel

bool splits(const Plan& plan, const Node& node) {
  if (node.removed || !two_parts(*node.op) || plan.domain_of(node.id) != Domain::Device) return false;
  return !plan.is_fed(node) && modelled_cost(plan.program.graph, node).bytes >= kLeastTravel;
}

void split(Plan& plan, NodeId id) {
  Graph& graph = plan.program.graph;
  const TwoParts parts = *two_parts(*graph.node(id).op);
  Node send = graph.node(id), take = graph.node(id);
  send.op = &OpRegistry::global().require(parts.send);
  take.op = &OpRegistry::global().require(parts.take);
  const std::string name = send.name;
  const auto outputs = static_cast<int>(send.outputs.size());
  plan.domains.insert(plan.domains.end(), 2, Domain::Device);
  const NodeId sent = add_node(graph, std::move(send), name + "/send");
  take.inputs.push_back({sent, 0});
  take.control_inputs.clear();
  const NodeId taken = add_node(graph, std::move(take), name + "/take");
  for (int output = 0; output < outputs; ++output) replace_value(plan, {id, output}, {taken, output});
  for (NodeId user = 0; user < graph.size(); ++user) {
    std::vector<NodeId>& controls = graph.mutable_node(user).control_inputs;
    std::ranges::replace(controls, id, sent);
  }
  std::ranges::replace(plan.targets, id, taken);
  take_place(plan, id, taken);
  graph.remove(id);
}

}  // namespace

void split_exchanges(Plan& plan) {
  if (plan.options.streams.count <= 1 || plan.options.streams.policy == StreamPolicy::None) return;
  int count = 0;
  for (NodeId id = 0, nodes = plan.program.graph.size(); id < nodes; ++id) {
    if (!splits(plan, plan.program.graph.node(id))) continue;
    split(plan, id);
    ++count;
  }
  if (count > 0) plan.note(std::to_string(count) + " in two parts");
}

}  // namespace braid
