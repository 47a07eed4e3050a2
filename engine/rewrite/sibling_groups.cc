#include "engine/rewrite/sibling_groups.h"

#include <algorithm>
#include <optional>
#include <set>
#include <span>
#include <tuple>
#include <utility>

#include "engine/ir/op.h"
#include "engine/rewrite/rewrite.h"
#include "engine/rewrite/written_streams.h"

namespace braid {
namespace {

Batching form_of(const Node& node) { return node.op->traits.batching; }

/// The handle that a value is a plain read of, or kNoNode.
NodeId handle_behind(const Graph& graph, ValueRef value) {
  const Node& node = graph.node(value.node);
  if (node.op->role == OpRole::Variable) return node.id;
  if (node.op->role != OpRole::Read || !node.control_inputs.empty()) return kNoNode;
  const Node& source = graph.node(node.inputs[0].node);
  return source.op->role == OpRole::Variable ? source.id : kNoNode;
}

/// Whether variables of this shape may lie one after another: each stays aligned to the packs of 16 bytes in
/// which kernels of programs that use it alone read it. One element is never read as a pack.
bool stays_aligned(const Shape& shape) {
  constexpr std::int64_t kPack = 4;
  return shape.elements() == 1 || shape.elements() % kPack == 0;
}

class Finder {
 public:
  explicit Finder(const Plan& plan)
      : plan_(plan),
        graph_(plan.program.graph),
        streams_(find_streams()),
        group_of_(static_cast<std::size_t>(graph_.size()), -1),
        lane_of_(group_of_.size(), -1) {}

  SiblingGroups find() {
    collect();
    for (const auto& [level, nodes] : levels_) group_level(nodes);
    return std::move(result_);
  }

 private:
  using Kind = SiblingOperand::Kind;
  static std::size_t index(NodeId id) { return static_cast<std::size_t>(id); }
  int group_of(NodeId id) const { return group_of_[index(id)]; }

  // ------------------------------------------------------------------------------------------ candidates

  void collect() {
    const std::vector<NodeId> order = graph_.topological_order();
    std::vector<int> level(index(graph_.size()), 0);
    for (const NodeId id : order) {
      const Node& node = graph_.node(id);
      int& at = level[index(id)];
      for (const ValueRef input : node.inputs) at = std::max(at, level[index(input.node)] + 1);
      for (const NodeId control : node.control_inputs) {
        at = std::max(at, level[index(control)] + 1);
        awaited_.insert(control);
      }
    }
    for (const NodeId id : order)
      if (may_join(graph_.node(id))) levels_[level[index(id)]].push_back(id);
    for (auto& [at, nodes] : levels_) std::sort(nodes.begin(), nodes.end());
  }

  bool may_join(const Node& node) const {
    const auto form = form_of(node);
    if (form == Batching::Unsaid || form == Batching::Never || !node.control_inputs.empty() ||
        awaited_.contains(node.id) || plan_.is_fed(node))
      return false;
    const auto is_float = [](const OutputInfo& info) {
      return info.dtype == DType::Float32 && info.shape.is_static() && info.shape.elements() > 0;
    };
    for (int i = 0; i < batched_inputs(form, node); ++i) {
      const OutputInfo& in = graph_.info(node.inputs[index(i)]);
      if (form == Batching::Update && index(i) + 1 < node.inputs.size()) {
        if (graph_.node(node.inputs[index(i)].node).op->role != OpRole::Variable) return false;
        continue;
      }
      if (!is_float(in)) return false;
      if (form == Batching::Elementwise && in.shape != node.outputs[0].shape) return false;
      if (form == Batching::BatchMatMul && in.shape.rank() != node.outputs[0].shape.rank()) return false;
    }
    if (form == Batching::Update) return node.outputs.empty();
    if (node.outputs.size() != 1 || !is_float(node.outputs[0]) || graph_.known_value({node.id, 0}))
      return false;
    if (form == Batching::Reduce) return graph_.known_value(node.inputs[1]) != nullptr;
    const bool bias = form == Batching::BiasAdd || form == Batching::BiasAddGrad;
    return !bias || node.attrs.get<std::string>("data_format", "NHWC") == "NHWC";
  }

  std::vector<int> find_streams() const {
    if (plan_.options.batch_siblings == BatchSiblings::AcrossScopes)
      return std::vector<int>(index(graph_.size()), kNoStream);
    return written_streams(plan_);
  }

  // ------------------------------------------------------------------------------------------------ groups

  /// What a node's operand must have in common with its siblings'. Values that are neither a group's nor a
  /// variable's may differ; split_by_values() has the last word on them.
  std::string operand_class(ValueRef value) const {
    const int group = group_of(value.node);
    if (group >= 0) return "g" + std::to_string(group);
    return handle_behind(graph_, value) != kNoNode ? "v" : "x";
  }

  std::string key_of(NodeId id) const {
    const Node& node = graph_.node(id);
    std::string key = node.op->name + "|" + node.device + "|" + std::to_string(streams_[index(id)]);
    const Batching form = form_of(node);
    for (int i = 0; i < batched_inputs(form, node); ++i) {
      const ValueRef input = node.inputs[index(i)];
      key += "|" + operand_class(input) + graph_.info(input).shape.to_string();
    }
    for (const OutputInfo& info : node.outputs) key += "|" + info.shape.to_string();
    if (form == Batching::Reduce)
      for (const std::int64_t axis : tensor_to_int64s(*graph_.known_value(node.inputs[1])))
        key += "," + std::to_string(axis);
    return key;
  }

  void group_level(const std::vector<NodeId>& nodes) {
    std::map<std::string, std::vector<std::vector<NodeId>>> buckets;
    for (const NodeId id : nodes) {
      auto& alike = buckets[key_of(id)];
      const auto bucket = std::find_if(alike.begin(), alike.end(), [&](const auto& b) {
        return same_attributes(graph_.node(b.front()), graph_.node(id));
      });
      if (bucket == alike.end())
        alike.push_back({id});
      else
        bucket->push_back(id);
    }
    for (const auto& [key, alike] : buckets)
      for (const std::vector<NodeId>& bucket : alike) split_by_values(bucket, 0);
  }

  /// Siblings of which some share an operand and others share another one are two groups.
  void split_by_values(const std::vector<NodeId>& nodes, std::size_t input) {
    if (nodes.size() < 2) return;
    const Node& first = graph_.node(nodes.front());
    if (static_cast<int>(input) == batched_inputs(form_of(first), first)) return split_by_lanes(nodes);
    std::map<ValueRef, std::vector<NodeId>> by_value;
    for (const NodeId id : nodes) by_value[graph_.node(id).inputs[input]].push_back(id);
    if (by_value.size() == 1 || by_value.size() == nodes.size() ||
        group_of(by_value.begin()->first.node) >= 0)
      return split_by_values(nodes, input + 1);
    for (const auto& [value, some] : by_value) split_by_values(some, input + 1);
  }

  /// The lane in which a node belongs: that of an operand which is a group's or a slab's, else that of the
  /// node whose gradient it computes.
  int lane_hint(NodeId id) const {
    const Node& node = graph_.node(id);
    const std::span inputs(node.inputs.data(), index(batched_inputs(form_of(node), node)));
    for (const ValueRef input : inputs)
      if (group_of(input.node) >= 0) return lane_of_[index(input.node)];
    for (const ValueRef input : inputs) {
      const NodeId handle = handle_behind(graph_, input);
      if (handle == kNoNode) continue;
      const auto known = slab_lanes_.find(variable_of(graph_, {handle, 0}).name);
      if (known != slab_lanes_.end()) return known->second;
    }
    return node.forward_of == kNoNode ? -1 : lane_of_[index(node.forward_of)];
  }

  /// In the order of their lanes; the second node of a lane is in a second group.
  void split_by_lanes(std::vector<NodeId> nodes) {
    std::stable_sort(nodes.begin(), nodes.end(),
                     [&](NodeId a, NodeId b) { return lane_hint(a) < lane_hint(b); });
    std::vector<std::vector<NodeId>> groups;
    for (std::size_t i = 0, use = 0; i < nodes.size(); ++i) {
      const int lane = lane_hint(nodes[i]);
      use = i > 0 && lane >= 0 && lane == lane_hint(nodes[i - 1]) ? use + 1 : 0;
      if (groups.size() <= use) groups.resize(use + 1);
      groups[use].push_back(nodes[i]);
    }
    for (auto& group : groups) add_group(std::move(group));
  }

  void add_group(std::vector<NodeId> lanes) {
    if (lanes.size() < 2) return;
    SiblingGroup group;
    group.form = form_of(graph_.node(lanes.front()));
    group.lanes = std::move(lanes);
    for (int i = 0; i < batched_inputs(group.form, graph_.node(group.lanes.front())); ++i) {
      const auto operand = make_operand(group, index(i));
      if (!operand) return;
      group.operands.push_back(*operand);
    }
    if (std::all_of(group.operands.begin(), group.operands.end(),
                    [](const SiblingOperand& operand) { return operand.kind == Kind::Shared; }))
      return;  // one node, written twice
    const int number = static_cast<int>(result_.groups.size());
    for (std::size_t lane = 0; lane < group.lanes.size(); ++lane) {
      group_of_[index(group.lanes[lane])] = number;
      lane_of_[index(group.lanes[lane])] = static_cast<int>(lane);
    }
    result_.groups.push_back(std::move(group));
  }

  std::vector<ValueRef> values_of(const SiblingGroup& group, std::size_t input) const {
    std::vector<ValueRef> values;
    for (const NodeId lane : group.lanes) values.push_back(graph_.node(lane).inputs[input]);
    return values;
  }

  std::optional<SiblingOperand> make_operand(const SiblingGroup& group, std::size_t input) {
    const std::vector<ValueRef> values = values_of(group, input);
    const bool same = std::all_of(values.begin(), values.end(), [&](ValueRef v) { return v == values[0]; });
    const bool may_share = group.form == Batching::MatMul || group.form == Batching::BatchMatMul ||
                           group.form == Batching::Broadcasting || group.form == Batching::BiasAdd;
    if (same) {
      if (group.form == Batching::Update) return std::nullopt;
      return SiblingOperand{may_share ? Kind::Shared : Kind::Packed};
    }
    const Shape& out = group.form == Batching::Broadcasting
                           ? graph_.node(group.lanes.front()).outputs[0].shape
                           : graph_.info(values[0]).shape;
    if (group.form == Batching::Broadcasting && graph_.info(values[0]).shape != out) return std::nullopt;
    if (is_aligned(values)) return SiblingOperand{Kind::Aligned, group_of(values[0].node), -1};
    const int slab = find_slab(values);
    if (slab >= 0) return SiblingOperand{Kind::Slab, -1, slab};
    if (group.form == Batching::Update && input + 1 < graph_.node(group.lanes.front()).inputs.size())
      return std::nullopt;
    return SiblingOperand{};
  }

  bool is_aligned(const std::vector<ValueRef>& values) const {
    const int group = group_of(values[0].node);
    if (group < 0 || result_.groups[static_cast<std::size_t>(group)].lanes.size() != values.size())
      return false;
    for (std::size_t lane = 0; lane < values.size(); ++lane)
      if (group_of(values[lane].node) != group ||
          lane_of_[index(values[lane].node)] != static_cast<int>(lane))
        return false;
    return true;
  }

  /// Of distinct variables of one shape, each in one slab only; -1 where that cannot be.
  int find_slab(const std::vector<ValueRef>& values) {
    std::vector<NodeId> handles;
    std::set<std::string> names;
    for (const ValueRef value : values) {
      handles.push_back(handle_behind(graph_, value));
      if (handles.back() == kNoNode) return -1;
      const VariableInfo variable = variable_of(graph_, {handles.back(), 0});
      if (variable.sparse || variable.dtype != DType::Float32 || !names.insert(variable.name).second)
        return -1;
      if (!stays_aligned(variable.shape)) return -1;
    }
    for (std::size_t s = 0; s < result_.slabs.size(); ++s)
      if (result_.slabs[s].handles == handles) return static_cast<int>(s);
    for (const std::string& name : names)
      if (slab_lanes_.contains(name)) return -1;
    for (std::size_t lane = 0; lane < handles.size(); ++lane)
      slab_lanes_[variable_of(graph_, {handles[lane], 0}).name] = static_cast<int>(lane);
    result_.slabs.push_back({std::move(handles)});
    return static_cast<int>(result_.slabs.size()) - 1;
  }

  const Plan& plan_;
  const Graph& graph_;
  const std::vector<int> streams_;             // by node
  std::map<int, std::vector<NodeId>> levels_;  // candidates
  std::set<NodeId> awaited_;                   // by control edges
  std::vector<int> group_of_, lane_of_;        // by node
  std::map<std::string, int> slab_lanes_;      // by variable
  SiblingGroups result_;
};

}  // namespace

int batched_inputs(Batching form, const Node& node) {
  const bool first_only = form == Batching::Reshape || form == Batching::Reduce;
  return first_only ? 1 : static_cast<int>(node.inputs.size());
}

SiblingGroups find_sibling_groups(const Plan& plan) {
  SiblingGroups found = Finder(plan).find();
  choose_sibling_groups(plan, found);
  return found;
}

}  // namespace braid
