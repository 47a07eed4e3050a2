#include "engine/rewrite/rewrite.h"

#include <algorithm>

namespace braid {

bool is_plain(const Plan& plan, const Node& node) {
  if (node.removed || !node.control_inputs.empty() || plan.is_fed(node)) return false;
  for (int o = 0; o < static_cast<int>(node.outputs.size()); ++o)
    if (plan.feed_of({node.id, o}) >= 0) return false;
  return true;
}

bool is_fetched(const Plan& plan, NodeId id) {
  return std::any_of(plan.fetches.begin(), plan.fetches.end(),
                     [&](ValueRef fetch) { return fetch.node == id; });
}

bool is_inner(const Plan& plan, NodeId id) {
  return is_plain(plan, plan.program.graph.node(id)) && !is_fetched(plan, id) &&
         std::find(plan.targets.begin(), plan.targets.end(), id) == plan.targets.end();
}

bool suits_device(const Plan& plan, const Node& node) {
  if (!node.op->cuda_supports) return true;
  const Graph& graph = plan.program.graph;
  std::vector<OutputInfo> inputs;
  for (const ValueRef input : node.inputs) {
    inputs.push_back(graph.info(input));
    if (inputs.back().dtype == DType::Resource) inputs.back().dtype = variable_of(graph, input).dtype;
  }
  return node.op->cuda_supports(node, inputs);
}

bool together(const Node& a, const Node& b) {
  return a.stream == b.stream && a.device == b.device && a.colocate_with == b.colocate_with;
}

bool same_attributes(const Node& a, const Node& b) {
  const auto differs = [](const AttrMap& from, const AttrMap& in) {
    return std::any_of(from.begin(), from.end(), [&](const auto& item) {
      if (item.first.starts_with('_')) return false;  // annotations
      const Attr* other = in.find(item.first);
      if (!other) return true;
      const auto &v = static_cast<const AttrValue_&>(item.second),
                 &w = static_cast<const AttrValue_&>(*other);
      if (v.index() != w.index()) return true;
      return std::visit(
          [&](const auto& value) {
            using T = std::decay_t<decltype(value)>;
            if constexpr (std::is_same_v<T, Tensor>)
              return true;
            else
              return value != std::get<T>(w);
          },
          v);
    });
  };
  return !differs(a.attrs, b.attrs) && !differs(b.attrs, a.attrs);
}

bool follows_from(const Graph& graph, NodeId id, NodeId from) {
  std::vector<NodeId> stack{id};
  std::unordered_set<NodeId> seen{id};
  while (!stack.empty()) {
    const Node& node = graph.node(stack.back());
    if (node.id == from) return true;
    stack.pop_back();
    for (const ValueRef input : node.inputs)
      if (seen.insert(input.node).second) stack.push_back(input.node);
    for (const NodeId control : node.control_inputs)
      if (seen.insert(control).second) stack.push_back(control);
  }
  return false;
}

NodeId add_node(Graph& graph, Node node, const std::string& name) {
  node.id = kNoNode;
  node.outputs.clear();
  node.known_values.clear();
  node.name = graph.unique_name(name);
  return graph.add(std::move(node));
}

NodeId replace(Plan& plan, NodeId old, Node node, const char* suffix) {
  Graph& graph = plan.program.graph;
  const NodeId made = add_node(graph, std::move(node), graph.node(old).name + suffix);
  for (NodeId id = 0; id < graph.size(); ++id) {
    Node& user = graph.mutable_node(id);
    if (user.removed || id == made) continue;
    for (ValueRef& input : user.inputs)
      if (input.node == old) input.node = made;
    std::replace(user.control_inputs.begin(), user.control_inputs.end(), old, made);
  }
  take_place(plan, old, made);
  for (ValueRef& fetch : plan.fetches)
    if (fetch.node == old) fetch.node = made;
  std::replace(plan.targets.begin(), plan.targets.end(), old, made);
  return made;
}

void take_place(Plan& plan, NodeId old, NodeId made) {
  Graph& graph = plan.program.graph;
  for (NodeId id = 0; id < graph.size(); ++id) {
    Node& node = graph.mutable_node(id);
    if (id == made) continue;
    if (node.colocate_with == old) node.colocate_with = made;
    if (node.forward_of == old) node.forward_of = made;
  }
}

void replace_with(Plan& plan, NodeId old, ValueRef with) {
  Graph& graph = plan.program.graph;
  replace_value(plan, {old, 0}, with);
  for (NodeId id = 0; id < graph.size(); ++id) {
    std::vector<NodeId>& controls = graph.mutable_node(id).control_inputs;
    std::replace(controls.begin(), controls.end(), old, with.node);
  }
  std::replace(plan.targets.begin(), plan.targets.end(), old, with.node);
  take_place(plan, old, with.node);
}

void replace_value(Plan& plan, ValueRef from, ValueRef to) {
  plan.program.graph.replace_uses(from, to);
  std::replace(plan.fetches.begin(), plan.fetches.end(), from, to);
}

Users::Users(const Graph& graph) : graph_(&graph) {
  for (NodeId id = 0; id < graph.size(); ++id) {
    const Node& node = graph.node(id);
    named_.insert(node.colocate_with);
    if (node.removed) continue;
    for (const ValueRef input : node.inputs) users_[input.node].push_back(id);
    for (const NodeId control : node.control_inputs) users_[control].push_back(id);
    named_.insert(node.control_inputs.begin(), node.control_inputs.end());
  }
}

const std::vector<NodeId>& Users::of(NodeId id) const {
  static const std::vector<NodeId> nobody;
  const auto found = users_.find(id);
  return found == users_.end() ? nobody : found->second;
}

std::vector<NodeId> Users::readers(NodeId id) const {
  std::vector<NodeId> readers = of(id);
  std::erase_if(readers, [&](NodeId user) {
    const Node& node = graph_->node(user);
    if (std::count(node.control_inputs.begin(), node.control_inputs.end(), id) != 0) return false;
    for (std::size_t i = 0; i < node.inputs.size(); ++i)
      if (node.inputs[i].node == id && !uses_shape_only(node, i)) return false;
    return true;
  });
  return readers;
}

bool Users::is_awaited(NodeId id) const {
  return std::any_of(of(id).begin(), of(id).end(), [&](NodeId user) {
    const std::vector<NodeId>& controls = graph_->node(user).control_inputs;
    return std::find(controls.begin(), controls.end(), id) != controls.end();
  });
}

bool Users::is_only_reader(NodeId reader, ValueRef value) const {
  const std::vector<NodeId>& users = of(value.node);
  return std::all_of(users.begin(), users.end(), [&](NodeId user) {
    const Node& node = graph_->node(user);
    const auto& controls = node.control_inputs;
    return user == reader || (std::find(node.inputs.begin(), node.inputs.end(), value) == node.inputs.end() &&
                              std::find(controls.begin(), controls.end(), value.node) == controls.end());
  });
}

}  // namespace braid
