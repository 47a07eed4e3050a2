#include "engine/graph/specialize.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <set>

#include "base/error.h"
#include "engine/graph/shape_values.h"
#include "engine/graph/write_order.h"
#include "engine/ir/constant_folder.h"
#include "engine/ir/infer.h"
#include "engine/ir/op.h"
#include "engine/ir/string_ids.h"

namespace braid {
namespace {

/// Its shapes are known, and a program can compute it, or need not.
bool is_ready(const Graph& graph, const Node& node) {
  if (unknown_shape_value(graph, node) >= 0) return false;
  std::vector<OutputInfo> inputs;
  for (const ValueRef input : node.inputs) inputs.push_back(graph.info(input));
  const bool has_no_kernel = node.op->fold != nullptr || moves_strings(node, inputs);
  for (int o = 0; o < static_cast<int>(node.outputs.size()); ++o) {
    const OutputInfo& info = node.outputs[static_cast<std::size_t>(o)];
    if (info.dtype == DType::Resource) continue;
    const bool needs_value = info.dtype == DType::String || has_no_kernel;
    const bool computes = !needs_value || graph.known_value({node.id, o}) != nullptr;
    if (!info.shape.is_static() || !computes) return false;
  }
  return true;
}

class Specializer {
 public:
  Specializer(Graph graph, const std::map<std::string, Tensor>& feeds) : graph_(std::move(graph)) {
    for (const auto& [name, tensor] : feeds) {
      const ValueRef value = graph_.parse_value(name);
      fed_.emplace(value, tensor);
      infos_.push_back({value, tensor.dtype(), tensor.shape()});
    }
  }

  Graph run(const std::vector<std::string>& fetches, const std::vector<std::string>& targets) {
    std::vector<NodeId> roots;
    for (const std::string& fetch : fetches) roots.push_back(graph_.parse_value(fetch).node);
    for (const std::string& target : targets) {
      const NodeId id = graph_.find(target);  // a node's name, which may have no outputs, or a value's
      roots.push_back(id != kNoNode ? id : graph_.parse_value(target).node);
    }
    infer_graph(graph_, infos_);
    order_.emplace(graph_);
    // A node is made static before those behind it are looked at, so each is looked at once.
    for (const NodeId id : needed(roots)) {
      if (is_fed(graph_.node(id))) continue;
      infer_again(id);
      if (is_ready(graph_, graph_.node(id))) continue;
      check_not_placeholder(graph_.node(id));
      make_inputs_known(id);
      infer_again(id);
      if (!is_ready(graph_, graph_.node(id)))
        throw InvalidArgument(place_of(graph_.node(id)) +
                              ": its outputs are not known, even from the values of its inputs");
    }
    return std::move(graph_);
  }

 private:
  static void check_not_placeholder(const Node& node) {
    if (node.op->role == OpRole::Placeholder)
      throw InvalidArgument(place_of(node) + ": it is needed but not fed");
  }

  bool is_fed(const Node& node) const {
    for (int o = 0; o < static_cast<int>(node.outputs.size()); ++o)
      if (!fed_.contains({node.id, o})) return false;
    return !node.outputs.empty();
  }

  /// The node's rule, with the feeds' shapes for those of its outputs that are fed.
  void infer_again(NodeId id) {
    infer_node(graph_, id);
    Node& node = graph_.mutable_node(id);
    for (int o = 0; o < static_cast<int>(node.outputs.size()); ++o)
      if (const auto fed = fed_.find({id, o}); fed != fed_.end()) {
        node.outputs[static_cast<std::size_t>(o)] = {fed->second.dtype(), fed->second.shape()};
        if (!node.known_values.empty()) node.known_values[static_cast<std::size_t>(o)] = Tensor();
      }
  }

  /// What the roots need, producers first.
  std::vector<NodeId> needed(std::vector<NodeId> open) const {
    std::set<NodeId> seen(open.begin(), open.end());
    while (!open.empty()) {
      const Node& node = graph_.node(open.back());
      open.pop_back();
      if (is_fed(node)) continue;
      for (const ValueRef input : node.inputs)
        if (seen.insert(input.node).second) open.push_back(input.node);
      for (const NodeId control : node.control_inputs)
        if (seen.insert(control).second) open.push_back(control);
    }
    std::vector<NodeId> order;
    for (const NodeId id : graph_.topological_order())
      if (seen.contains(id)) order.push_back(id);
    return order;
  }

  void make_inputs_known(NodeId id) {
    for (std::size_t i = 0; i < graph_.node(id).inputs.size(); ++i) {
      const ValueRef input = graph_.node(id).inputs[i];
      const bool is_known = graph_.known_value(input) != nullptr;
      if (is_known || graph_.info(input).dtype == DType::Resource || reads_shape_only(graph_.node(id), i))
        continue;
      Node constant;
      constant.name = graph_.unique_name(graph_.node(id).name + "/value");
      constant.op = &OpRegistry::global().require("Const");
      const Tensor value = value_of(input, id);
      constant.attrs = {{"value", value}, {"dtype", value.dtype()}};
      if (!fed_.contains(input)) constant.control_inputs = order_->writes_until(input.node);
      const NodeId added = graph_.add(std::move(constant));
      graph_.mutable_node(id).inputs[i] = {added, 0};
    }
  }

  /// `user` is the node whose shape needs it.
  const Tensor& value_of(ValueRef ref, NodeId user) {
    if (const auto fed = fed_.find(ref); fed != fed_.end()) return fed->second;
    if (const Tensor* known = graph_.known_value(ref)) return *known;
    if (const auto done = computed_.find(ref); done != computed_.end()) return done->second;
    const Node& node = graph_.node(ref.node);
    if (const int input = node.op->stands_for; input >= 0)
      return value_of(node.inputs[static_cast<std::size_t>(input)], user);
    check_not_placeholder(node);
    std::vector<OutputInfo> infos;
    std::vector<const Tensor*> values;
    for (std::size_t i = 0; i < node.inputs.size(); ++i) {
      infos.push_back(graph_.info(node.inputs[i]));
      const bool reads = infos.back().dtype != DType::Resource && !reads_shape_only(node, i);
      values.push_back(reads ? &value_of(node.inputs[i], user) : nullptr);
    }
    std::vector<Tensor> outputs = folder_.fold(node, infos, values);
    if (outputs.empty())
      throw InvalidArgument(place_of(graph_.node(user)) + ": its shape depends on the value of '" +
                            graph_.value_name(ref) + "' (" + node.op->name +
                            "), which cannot be computed before the program runs");
    for (int o = 0; o < static_cast<int>(outputs.size()); ++o)
      computed_[{ref.node, o}] = std::move(outputs[static_cast<std::size_t>(o)]);
    return computed_.at(ref);
  }

  Graph graph_;
  std::optional<WriteOrder> order_;
  std::map<ValueRef, Tensor> fed_;
  std::vector<FeedInfo> infos_;
  std::map<ValueRef, Tensor> computed_;
  ConstantFolder folder_{std::numeric_limits<std::size_t>::max()};
};

}  // namespace

Graph specialize(const Graph& graph, const std::map<std::string, Tensor>& feeds,
                 const std::vector<std::string>& fetches, const std::vector<std::string>& targets) {
  return Specializer(graph, feeds).run(fetches, targets);
}

}  // namespace braid
