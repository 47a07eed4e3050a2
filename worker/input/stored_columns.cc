#include "worker/input/stored_columns.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <string_view>

#include "base/error.h"
#include "engine/ir/infer.h"
#include "engine/ir/op.h"
#include "worker/step/training_graph.h"

namespace braid::worker {
namespace {

void set_type(Graph& graph, NodeId placeholder, DType dtype) {
  Node& node = graph.mutable_node(placeholder);
  node.attrs.set("dtype", dtype);
  node.outputs[0].dtype = dtype;
}

/// What converts a column is where the column is. It is not colocated with it: fused regions take in nodes of
/// one colocation.
ValueRef beside(Graph& graph, NodeId column, ValueRef made) {
  Node& node = graph.mutable_node(made.node);
  node.stream = graph.node(column).stream;
  node.device = graph.node(column).device;
  return made;
}

/// Makes what depends on narrow ids take them.
class Narrowing {
 public:
  Narrowing(Graph& graph, NarrowIds taken) : graph_(graph), by_nodes_(taken == NarrowIds::ByNodes) {}

  void add(ValueRef placeholder) {
    set_type(graph_, placeholder.node, DType::Int32);
    narrow_.insert(placeholder);
  }

  void run() {
    for (const NodeId id : graph_.topological_order()) {
      const Node& node = graph_.node(id);
      if (std::ranges::none_of(node.inputs, [&](ValueRef v) { return narrow_.contains(v); })) continue;
      if (by_nodes_ && takes_any_index(node) && retype(id)) continue;
      for (std::size_t i = 0; i < graph_.node(id).inputs.size(); ++i)
        if (const ValueRef input = graph_.node(id).inputs[i]; narrow_.contains(input)) {
          const ValueRef wide = widened(input);
          graph_.mutable_node(id).inputs[i] = wide;
        }
    }
  }

  /// Of an update that is to come.
  ValueRef as_taken(ValueRef index) { return !by_nodes_ && narrow_.contains(index) ? widened(index) : index; }

 private:
  /// Whether its integers are moved, or are places of rows: then their width changes nothing that it
  /// computes.
  static bool takes_any_index(const Node& node) {
    constexpr std::array<std::string_view, 7> kByIndex{"braid.Bag",        "braid.BagScale", "braid.BagRows",
                                                       "braid.BagMaxRows", "braid.BagIds",   "braid.BagOf",
                                                       "braid.GatherGrad"};
    return node.op->traits.elements == Elements::Moves ||
           std::ranges::find(kByIndex, node.op->name) != kByIndex.end();
  }

  /// False, and the node is as it was, where it does not take them, as one that joins them with wide ones.
  bool retype(NodeId id) {
    Node& node = graph_.mutable_node(id);
    const AttrMap attrs = node.attrs;
    const std::vector<OutputInfo> outputs = node.outputs;
    const auto last = std::ssize(node.inputs) - 1;
    if (node.op->traits.type_attributes)
      for (const TypeAttr& type : *node.op->traits.type_attributes) {
        const std::ptrdiff_t input = type.input < 0 ? last : type.input;
        if (input <= last && narrow_.contains(node.inputs[static_cast<std::size_t>(input)]) &&
            node.attrs.find(type.attr))
          node.attrs.set(std::string(type.attr), DType::Int32);
      }
    try {
      infer_node(graph_, id);
    } catch (const InvalidArgument&) {
      graph_.mutable_node(id).attrs = attrs;
      graph_.mutable_node(id).outputs = outputs;
      return false;
    }
    const Node& now = graph_.node(id);
    for (std::size_t o = 0; o < outputs.size(); ++o)
      if (outputs[o].dtype == DType::Int64 && now.outputs[o].dtype == DType::Int32)
        narrow_.insert({id, static_cast<int>(o)});
    return true;
  }

  ValueRef widened(ValueRef value) {
    const auto [wide, fresh] = wide_.try_emplace(value);
    if (fresh)
      wide->second = beside(graph_, value.node,
                            add_node(graph_, "Cast", graph_.node(value.node).name + "/wide", {value},
                                     {{"SrcT", DType::Int32}, {"DstT", DType::Int64}}));
    return wide->second;
  }

  Graph& graph_;
  const bool by_nodes_;
  std::set<ValueRef> narrow_;
  std::map<ValueRef, ValueRef> wide_;
};

}  // namespace

void cast_stored_columns(Graph& graph, const std::vector<std::string>& columns, const Batcher& batcher) {
  for (std::size_t c = 0; c < columns.size(); ++c) {
    if (batcher.dtype(c) != DType::UInt8) continue;
    const ValueRef column = graph.parse_value(columns[c]);
    set_type(graph, column.node, DType::UInt8);
    const ValueRef cast = add_node(graph, "Cast", columns[c] + "/cast", {column},
                                   {{"SrcT", DType::UInt8}, {"DstT", DType::Float32}}, column.node);
    const ValueRef scale =
        add_node(graph, "Const", columns[c] + "/scale", {},
                 {{"dtype", DType::Float32}, {"value", Tensor::scalar(batcher.scale(c))}}, column.node);
    const ValueRef scaled =
        add_node(graph, "Mul", columns[c] + "/scaled", {cast, scale}, {{"T", DType::Float32}}, column.node);
    graph.replace_uses(column, scaled);
    graph.mutable_node(cast.node).inputs[0] = column;
  }
}

void narrow_id_columns(TrainingGraph& training, const std::vector<std::string>& columns,
                       const Batcher& batcher, NarrowIds taken) {
  const Graph& graph = training.graph;
  Narrowing narrowing(training.graph, taken);
  for (std::size_t c = 0; c < columns.size(); ++c) {
    const NodeId column = graph.find(columns[c]);
    if (batcher.dtype(c) == DType::Int32 && column != kNoNode &&
        graph.info({column, 0}).dtype == DType::Int64)
      narrowing.add({column, 0});
  }
  narrowing.run();
  for (VariableGradient& gradient : training.gradients)
    if (gradient.slices) gradient.slices->indices = narrowing.as_taken(gradient.slices->indices);
}

std::vector<NodeId> casts_of_bytes(const Graph& graph, const std::vector<std::string>& columns) {
  std::set<ValueRef> bytes;
  for (const std::string& name : columns)
    if (const NodeId id = graph.find(name); id != kNoNode && graph.info({id, 0}).dtype == DType::UInt8)
      bytes.insert({id, 0});
  std::vector<NodeId> casts;
  for (NodeId id = 0; id < graph.size() && !bytes.empty(); ++id)
    if (const Node& node = graph.node(id);
        !node.removed && std::ranges::any_of(node.inputs, [&](ValueRef v) { return bytes.contains(v); }))
      casts.push_back(id);
  return casts;
}

}  // namespace braid::worker
