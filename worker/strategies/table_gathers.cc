#include "worker/strategies/table_gathers.h"

#include <algorithm>
#include <optional>

#include "worker/step/training_graph.h"
#include "worker/strategies/expand_bags.h"

namespace braid::worker {
namespace {

/// The values that `indices` is made of by joining and flattening, in their order.
void find_parts(const Graph& graph, ValueRef indices, const std::vector<ValueRef>& known,
                std::vector<ValueRef>& parts) {
  const Node& node = graph.node(indices.node);
  if (std::ranges::find(known, indices) != known.end() || node.inputs.empty()) {
    parts.push_back(indices);
  } else if (node.op->name == "ConcatV2") {
    for (std::size_t i = 0; i + 1 < node.inputs.size(); ++i) find_parts(graph, node.inputs[i], known, parts);
  } else if (node.op->name == "Reshape" || node.op->name == "Cast" || node.op->name == "Identity" ||
             node.op->name == "braid.BagIds") {
    find_parts(graph, node.inputs[0], known, parts);
  } else {
    parts.push_back(indices);
  }
}

}  // namespace

std::vector<NodeId> gathers_of(const Graph& graph, NodeId handle) {
  std::vector<NodeId> found;
  for (NodeId id = 0; id < graph.size(); ++id)
    if (is_gather_of(graph.node(id), handle)) found.push_back(id);
  return found;
}

std::vector<NodeId> lookups_of(const Graph& graph, NodeId handle) {
  std::vector<NodeId> found;
  for (NodeId id = 0; id < graph.size(); ++id)
    if (is_gather_of(graph.node(id), handle) || is_bag_of(graph.node(id), handle)) found.push_back(id);
  return found;
}

std::optional<std::vector<NodeId>> in_order_of(const Graph& graph, ValueRef indices,
                                               std::vector<NodeId> gathers) {
  std::vector<ValueRef> known, parts;
  for (const NodeId id : gathers) known.push_back(graph.node(id).inputs[1]);
  find_parts(graph, indices, known, parts);
  std::vector<NodeId> ordered;
  for (const ValueRef part : parts) {
    const auto at =
        std::ranges::find_if(gathers, [&](NodeId id) { return graph.node(id).inputs[1] == part; });
    if (at == gathers.end()) return std::nullopt;
    ordered.push_back(*at);
    gathers.erase(at);
  }
  if (!gathers.empty()) return std::nullopt;
  return ordered;
}

ValueRef known_ids_of(const Graph& graph, NodeId gather) {
  const Node& node = graph.node(gather);
  const auto name = node.attrs.get<std::string>(kKnownIds, "");
  return name.empty() ? node.inputs[1] : ValueRef{graph.find(name), 0};
}

void put_in_place_of(Graph& graph, NodeId old, ValueRef replacement) {
  graph.replace_uses({old, 0}, replacement);
  for (NodeId user = 0; user < graph.size(); ++user) {
    Node& its = graph.mutable_node(user);
    std::ranges::replace(its.control_inputs, old, replacement.node);
    if (its.colocate_with == old) its.colocate_with = replacement.node;
    if (its.forward_of == old) its.forward_of = replacement.node;
  }
  graph.remove(old);
}

void read_behind(Graph& graph, ValueRef handle, NodeId pull) {
  for (NodeId reader = 0; reader < pull; ++reader) {
    Node& node = graph.mutable_node(reader);
    if (!node.removed && std::ranges::find(node.inputs, handle) != node.inputs.end())
      node.control_inputs.push_back(pull);
  }
}

void set_variable_shape(Graph& graph, NodeId handle, const Shape& shape) {
  Node& node = graph.mutable_node(handle);
  node.attrs.set("shape", shape);
  node.outputs[0].shape = shape;
}

ValueRef reshaped(Graph& graph, ValueRef list, std::vector<std::int64_t> shape, const std::string& name) {
  const Shape length{std::ssize(shape)};
  const ValueRef to =
      add_node(graph, "Const", name + "/shape", {},
               {{"dtype", DType::Int64}, {"value", Tensor::from<std::int64_t>(length, shape)}});
  return add_node(graph, "Reshape", name, {list, to});
}

}  // namespace braid::worker
