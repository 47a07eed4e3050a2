#include "engine/rewrite/written_streams.h"

#include "engine/ir/colocation.h"
#include "engine/program/stream_rules.h"

namespace braid {
namespace {

std::size_t index(NodeId id) { return static_cast<std::size_t>(id); }

/// By a scope or a rule. What autodiff wrote on a backward node is its forward node's.
int written_stream(const Plan& plan, const Node& node) {
  const Graph& graph = plan.program.graph;
  const bool inherited = node.forward_of != kNoNode && graph.node(node.forward_of).stream == node.stream;
  const int scope = node.removed || !inherited ? node.stream : kNoStream;
  const auto& rules = plan.options.streams.rules;
  if (node.removed || !rules || (scope != kNoStream && plan.options.streams.scopes_win)) return scope;
  const auto rule = rules->find(node.name);
  return rule ? rules->rule(*rule).stream : scope;
}

}  // namespace

std::vector<int> written_streams(const Plan& plan) {
  const Graph& graph = plan.program.graph;
  std::vector<int> streams(index(graph.size()), kNoStream);
  const ColocationGroups groups(graph);
  for (NodeId id = 0; id < graph.size(); ++id) streams[index(id)] = written_stream(plan, graph.node(id));
  const std::vector<int> written = streams;
  for (const NodeId leader : groups.leaders()) {
    const NodeId from = groups.decide(leader, [&](NodeId id) { return written[index(id)]; }).from;
    for (const NodeId id : groups.members(leader))
      streams[index(id)] = from == kNoNode ? kNoStream : written[index(from)];
  }
  if (!plan.options.streams.grad_follows_forward) return streams;
  for (NodeId id = 0; id < graph.size(); ++id) {
    const NodeId forward = graph.node(id).forward_of;
    if (graph.node(id).removed || streams[index(id)] != kNoStream || forward == kNoNode ||
        streams[index(forward)] == kNoStream || !graph.node(forward).include_grad)
      continue;
    for (const NodeId with : groups.members(groups.leader(id)))
      streams[index(with)] = streams[index(forward)];
  }
  return streams;
}

}  // namespace braid
