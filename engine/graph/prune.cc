// Resolves the request's names and keeps what its fetches and targets need.
#include <algorithm>

#include "base/error.h"
#include "engine/graph/passes.h"

namespace braid {

int Plan::feed_of(ValueRef value) const {
  const auto at =
      std::find_if(feeds.begin(), feeds.end(), [&](const FeedInfo& f) { return f.value == value; });
  return at == feeds.end() ? -1 : static_cast<int>(at - feeds.begin());
}

bool Plan::is_fed(const Node& node) const {
  if (node.outputs.empty()) return false;
  for (int output = 0; output < static_cast<int>(node.outputs.size()); ++output)
    if (feed_of({node.id, output}) < 0) return false;
  return true;
}

bool uses_shape_only(const Node& node, std::size_t input) {
  return std::any_of(node.op->shape_only.begin(), node.op->shape_only.end(), [&](int i) {
    return static_cast<std::size_t>(i < 0 ? i + static_cast<int>(node.inputs.size()) : i) == input;
  });
}

void resolve_request(Plan& plan) {
  const Graph& graph = plan.program.graph;
  for (const FeedSpec& feed : plan.request.feeds) {
    const ValueRef value = graph.parse_value(feed.name);
    if (value.output < 0) throw InvalidArgument("feed '" + feed.name + "' is a control edge, not a value");
    if (!feed.shape.is_static())
      throw InvalidArgument("feed '" + feed.name + "' has shape " + feed.shape.to_string() +
                            "; a program is compiled for static shapes");
    if (plan.feed_of(value) >= 0) throw InvalidArgument("feed '" + feed.name + "' is given twice");
    plan.feeds.push_back({value, feed.dtype, feed.shape});
  }
  for (const std::string& name : plan.request.fetches) {
    const ValueRef value = graph.parse_value(name);
    if (value.output < 0) throw InvalidArgument("fetch '" + name + "' is a control edge, not a value");
    plan.fetches.push_back(value);
  }
  for (const std::string& name : plan.request.targets) {
    const NodeId id = graph.find(name);  // a node's name, or also a value's or "^name"
    plan.targets.push_back(id != kNoNode ? id : graph.parse_value(name).node);
  }
}

void prune(Plan& plan, bool shapes_known) {
  Graph& graph = plan.program.graph;
  std::vector<char> kept(static_cast<std::size_t>(graph.size()), 0);
  std::vector<NodeId> open;
  const auto need = [&](NodeId id) {
    char& mark = kept[static_cast<std::size_t>(id)];
    // A fed node carries its feed's shape and needs nothing itself.
    if (!mark && !plan.is_fed(graph.node(id))) open.push_back(id);
    mark = 1;
  };
  for (const ValueRef value : plan.fetches) need(value.node);
  for (const NodeId id : plan.targets) need(id);
  while (!open.empty()) {
    const Node& node = graph.node(open.back());
    open.pop_back();
    for (std::size_t i = 0; i < node.inputs.size(); ++i)
      if (!(shapes_known && uses_shape_only(node, i))) need(node.inputs[i].node);
    for (const NodeId control : node.control_inputs) need(control);
  }
  for (NodeId id = 0; id < graph.size(); ++id)
    if (!kept[static_cast<std::size_t>(id)] && !graph.node(id).removed) graph.remove(id);
}

}  // namespace braid
