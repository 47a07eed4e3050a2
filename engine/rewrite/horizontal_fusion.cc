#include "engine/rewrite/horizontal_fusion.h"
#include "engine/graph/passes.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <set>
#include <utility>

#include "engine/ir/colocation.h"
#include "engine/ir/op.h"
#include "engine/rewrite/sibling_groups.h"

namespace braid {
namespace {

using Kind = SiblingOperand::Kind;

Tensor int32_vector(const std::vector<std::int32_t>& values) {
  return Tensor::from<std::int32_t>(Shape{static_cast<std::int64_t>(values.size())}, values);
}

class Rewriter {
 public:
  Rewriter(Plan& plan, const SiblingGroups& found)
      : plan_(plan),
        graph_(plan.program.graph),
        colocation_(graph_),
        groups_(found.groups),
        slabs_(found.slabs),
        batched_(groups_.size(), kNoNode),
        unpacked_(groups_.size(), kNoNode),
        slab_nodes_(slabs_.size(), kNoNode) {}

  void run() {
    for (std::size_t g = 0; g < groups_.size(); ++g)
      if (groups_[g].accepted) make(static_cast<int>(g));
    redirect();
  }

  int packs() const { return packs_; }
  int slabs() const {
    return static_cast<int>(
        std::count_if(slab_nodes_.begin(), slab_nodes_.end(), [](NodeId id) { return id != kNoNode; }));
  }

 private:
  static std::size_t index(int i) { return static_cast<std::size_t>(i); }
  std::int64_t lanes_of(const SiblingGroup& group) const {
    return static_cast<std::int64_t>(group.lanes.size());
  }

  /// A node like the group's first lane: its stream, device and place in the backward graph.
  ValueRef add(const SiblingGroup& group, const std::string& op, const std::string& name,
               std::vector<ValueRef> inputs, AttrMap attrs) {
    const Node& first = graph_.node(group.lanes.front());
    Node node;
    node.op = &OpRegistry::global().require(op);
    node.name = graph_.unique_name(name);
    node.attrs = std::move(attrs);
    node.inputs = std::move(inputs);
    node.stream = stream_of(first);
    node.colocate_with = colocation_of(group);
    node.device = first.device;
    node.include_grad = first.include_grad;
    node.forward_of = forward_of(first);
    return {graph_.add(std::move(node)), 0};
  }

  /// That of scopes: rules find the node by its lanes' names.
  int stream_of(const Node& node) const {
    const auto id_of = [&](NodeId id) { return graph_.node(id).stream; };
    const NodeId from = colocation_.decide(colocation_.leader(node.id), id_of).from;
    return from == kNoNode ? kNoStream : id_of(from);
  }

  /// What all lanes are colocated with, unless it is one of them.
  NodeId colocation_of(const SiblingGroup& group) const {
    const NodeId leader = colocation_.leader(group.lanes.front());
    const bool all_are = std::all_of(group.lanes.begin(), group.lanes.end(), [&](NodeId lane) {
      return lane != leader && colocation_.leader(lane) == leader;
    });
    return all_are ? leader : kNoNode;
  }

  NodeId forward_of(const Node& node) const {
    if (node.forward_of == kNoNode) return kNoNode;
    const auto made = node_of_lane_.find(node.forward_of);
    return made == node_of_lane_.end() ? node.forward_of : made->second;
  }

  std::vector<std::string> names_of(const SiblingGroup& group) const {
    std::vector<std::string> names;
    for (const NodeId lane : group.lanes) names.push_back(graph_.node(lane).name);
    return names;
  }

  ValueRef constant(const SiblingGroup& group, const std::string& name, Tensor value) {
    const DType dtype = value.dtype();
    return add(group, "Const", name, {}, {{"dtype", dtype}, {"value", std::move(value)}});
  }

  // ---------------------------------------------------------------------------------------------- operands

  ValueRef operand(const SiblingGroup& group, std::size_t input) {
    const SiblingOperand& operand = group.operands[input];
    switch (operand.kind) {
      case Kind::Aligned:
        return {batched_[index(operand.group)], 0};
      case Kind::Shared:
        return lane_value(graph_.node(group.lanes.front()).inputs[input]);
      case Kind::Slab:
        return slab(group, operand.slab, group.form == Batching::Update);
      case Kind::Packed:
        break;
    }
    std::vector<ValueRef> values;
    for (const NodeId lane : group.lanes) values.push_back(lane_value(graph_.node(lane).inputs[input]));
    return pack(group, values);
  }

  /// A value as nodes outside of groups see it.
  ValueRef lane_value(ValueRef value) {
    const auto place = place_of_lane_.find(value.node);
    if (place == place_of_lane_.end()) return value;
    return {unpack(place->second.first), place->second.second};
  }

  NodeId unpack(int g) {
    NodeId& made = unpacked_[index(g)];
    if (made != kNoNode) return made;
    const SiblingGroup& group = groups_[index(g)];
    made = add(group, "Unpack", "batch/" + graph_.node(group.lanes.front()).name + "/lanes",
               {{batched_[index(g)], 0}}, {{"num", lanes_of(group)}, {"axis", std::int64_t{0}}})
               .node;
    ++packs_;
    return made;
  }

  ValueRef pack(const SiblingGroup& group, const std::vector<ValueRef>& values) {
    const auto known = packed_.find(values);
    if (known != packed_.end()) return known->second;
    const std::string name = "batch/" + graph_.node(values.front().node).name;
    const bool constant_values = std::all_of(
        values.begin(), values.end(), [&](ValueRef value) { return graph_.known_value(value) != nullptr; });
    ValueRef made;
    if (constant_values) {
      made = constant(group, name, stacked(values));
    } else {
      made = add(group, "Pack", name, values, {{"N", lanes_of(group)}, {"axis", std::int64_t{0}}});
      ++packs_;
    }
    packed_.emplace(values, made);
    return made;
  }

  Tensor stacked(const std::vector<ValueRef>& values) const {
    const Tensor& first = *graph_.known_value(values.front());
    Tensor all(first.dtype(), with_lanes(first.shape(), static_cast<std::int64_t>(values.size())));
    for (std::size_t i = 0; i < values.size(); ++i)
      std::memcpy(all.raw() + i * first.bytes(), graph_.known_value(values[i])->raw(), first.bytes());
    return all;
  }

  static Shape with_lanes(const Shape& shape, std::int64_t lanes) {
    std::vector<std::int64_t> dims(shape.dims().begin(), shape.dims().end());
    dims.insert(dims.begin(), lanes);
    return Shape(std::move(dims));
  }

  ValueRef slab(const SiblingGroup& group, int s, bool as_handle) {
    const VariableSlab& slab = slabs_[index(s)];
    NodeId& handle = slab_nodes_[index(s)];
    if (handle == kNoNode) {
      std::vector<std::string> members;
      for (const NodeId member : slab.handles) members.push_back(variable_of(graph_, {member, 0}).name);
      const VariableInfo first = variable_of(graph_, {slab.handles.front(), 0});
      const std::string name = graph_.unique_name("batch/" + first.name);
      handle = add(group, "VarHandleOp", name, {},
                   {{"dtype", first.dtype},
                    {"shape", with_lanes(first.shape, lanes_of(group))},
                    {"shared_name", name},
                    {"_trainable", first.trainable},
                    {kSlabMembers, std::move(members)}})
                   .node;
      slab_reads_[s] = add(group, "ReadVariableOp", name + "/read", {{handle, 0}}, {{"dtype", first.dtype}});
    }
    return as_handle ? ValueRef{handle, 0} : slab_reads_.at(s);
  }

  // ------------------------------------------------------------------------------------------------- nodes

  void make(int g) {
    const SiblingGroup& group = groups_[index(g)];
    const Node first = graph_.node(group.lanes.front());  // a copy: nodes are added
    const std::string name = "batch/" + first.name;
    std::vector<ValueRef> inputs;
    for (std::size_t i = 0; i < group.operands.size(); ++i) inputs.push_back(operand(group, i));
    ValueRef made;
    switch (group.form) {
      case Batching::Elementwise:
      case Batching::Broadcasting:
      case Batching::Update:
        made = add(group, first.op->name, name, std::move(inputs), without_annotations(first.attrs));
        break;
      case Batching::BatchMatMul:
        made = add(group, "BatchMatMulV2", name, std::move(inputs),
                   {{"adj_x", first.attrs.get<bool>("adj_x", false)},
                    {"adj_y", first.attrs.get<bool>("adj_y", false)}});
        break;
      case Batching::Reshape:
        made = reshape(group, name, inputs[0], with_lanes(first.outputs[0].shape, lanes_of(group)));
        break;
      case Batching::Reduce:
        made = reduce(group, first, name, inputs[0]);
        break;
      case Batching::MatMul:
        made = add(group, "BatchMatMulV2", name, std::move(inputs),
                   {{"adj_x", first.attrs.get<bool>("transpose_a", false)},
                    {"adj_y", first.attrs.get<bool>("transpose_b", false)}});
        break;
      case Batching::BiasAdd:
        made = add(group, "AddV2", name, {inputs[0], bias(group, first, inputs[1])}, {});
        break;
      case Batching::BiasAddGrad:
        made = sum_of_rows(group, first, name, inputs[0]);
        break;
      case Batching::Unsaid:
      case Batching::Never:
        throw Internal("[horizontal_fusion] " + place_of(first) +
                       " is batched, but its op says it cannot be");
    }
    batched_[index(g)] = made.node;
    graph_.mutable_node(made.node).attrs.set(kLanes, names_of(group));
    for (int lane = 0; lane < static_cast<int>(group.lanes.size()); ++lane) {
      node_of_lane_[group.lanes[index(lane)]] = made.node;
      place_of_lane_[group.lanes[index(lane)]] = {g, lane};
    }
  }

  static AttrMap without_annotations(const AttrMap& attrs) {
    AttrMap kept;
    for (const auto& [name, value] : attrs)
      if (!name.starts_with('_')) kept.set(name, value);
    return kept;
  }

  /// [lanes, n] to [lanes, 1, ..., n], so that it is added along the last axis of each lane.
  ValueRef bias(const SiblingGroup& group, const Node& first, ValueRef bias) {
    if (group.operands[1].kind == Kind::Shared) return bias;
    const Shape& out = first.outputs[0].shape;
    std::vector<std::int64_t> dims(index(out.rank()) + 1, 1);
    dims.front() = lanes_of(group);
    dims.back() = out[out.rank() - 1];
    return reshape(group, "batch/" + first.name + "/bias", bias, Shape(std::move(dims)));
  }

  ValueRef reshape(const SiblingGroup& group, const std::string& name, ValueRef value, const Shape& shape) {
    const std::vector<std::int32_t> dims(shape.dims().begin(), shape.dims().end());
    return add(group, "Reshape", name, {value, constant(group, name + "/shape", int32_vector(dims))}, {});
  }

  ValueRef reduce(const SiblingGroup& group, const Node& first, const std::string& name, ValueRef input) {
    const int rank = graph_.info(first.inputs[0]).shape.rank();
    std::vector<std::int32_t> axes;
    for (const std::int64_t axis : tensor_to_int64s(*graph_.known_value(first.inputs[1])))
      axes.push_back(static_cast<std::int32_t>(axis < 0 ? axis + rank + 1 : axis + 1));
    return add(group, first.op->name, name, {input, constant(group, name + "/axes", int32_vector(axes))},
               {{"keep_dims", first.attrs.get<bool>("keep_dims", false)}});
  }

  ValueRef sum_of_rows(const SiblingGroup& group, const Node& first, const std::string& name,
                       ValueRef input) {
    std::vector<std::int32_t> axes;
    for (int axis = 1; axis < graph_.info(first.inputs[0]).shape.rank(); ++axis) axes.push_back(axis);
    return add(group, "Sum", name, {input, constant(group, name + "/axes", int32_vector(axes))},
               {{"keep_dims", false}});
  }

  /// Whoever used a lane's result alone takes it from the Unpack; lanes go.
  void redirect() {
    std::map<ValueRef, ValueRef> replaced;
    std::set<NodeId> lanes;
    for (const auto& [lane, place] : place_of_lane_) {
      lanes.insert(lane);
      const SiblingGroup& group = groups_[index(place.first)];
      if (group.unpacked) replaced[{lane, 0}] = {unpack(place.first), place.second};
    }
    for (const NodeId lane : lanes) graph_.remove(lane);
    graph_.replace_uses(replaced);
    redirect_colocation();
    for (ValueRef& fetch : plan_.fetches)
      if (const auto to = replaced.find(fetch); to != replaced.end()) fetch = to->second;
    std::set<NodeId> seen;
    std::vector<NodeId> targets;
    for (NodeId target : plan_.targets) {
      if (const auto made = node_of_lane_.find(target); made != node_of_lane_.end()) target = made->second;
      if (seen.insert(target).second) targets.push_back(target);
    }
    plan_.targets = std::move(targets);
  }

  /// What is with a lane is with the batch, as long as lanes of one batch have one stream.
  void redirect_colocation() {
    if (plan_.options.batch_siblings == BatchSiblings::AcrossScopes) return;
    for (NodeId id = 0; id < graph_.size(); ++id) {
      NodeId& with = graph_.mutable_node(id).colocate_with;
      if (const auto made = node_of_lane_.find(with); made != node_of_lane_.end()) with = made->second;
    }
  }

  Plan& plan_;
  Graph& graph_;
  const ColocationGroups colocation_;  // before anything is made
  const std::vector<SiblingGroup>& groups_;
  const std::vector<VariableSlab>& slabs_;
  std::vector<NodeId> batched_, unpacked_;  // by group
  std::vector<NodeId> slab_nodes_;          // handles, by slab
  std::map<int, ValueRef> slab_reads_;
  std::map<NodeId, NodeId> node_of_lane_;
  std::map<NodeId, std::pair<int, int>> place_of_lane_;  // group and lane
  std::map<std::vector<ValueRef>, ValueRef> packed_;
  int packs_ = 0;
};

}  // namespace

std::string lanes_text(const Node& node) {
  return fmt::format("{}", fmt::join(node.attrs.get<std::vector<std::string>>(kLanes, {}), ", "));
}

void fuse_horizontally(Plan& plan) {
  if (plan.options.batch_siblings == BatchSiblings::Off) return;
  const SiblingGroups found = find_sibling_groups(plan);
  int nodes = 0, groups = 0;
  for (const SiblingGroup& group : found.groups) {
    if (!group.accepted) continue;
    nodes += static_cast<int>(group.lanes.size());
    ++groups;
  }
  if (groups == 0) {
    plan.note("no siblings that gain by it");
    return;
  }
  Rewriter rewriter(plan, found);
  rewriter.run();
  cancel_packs(plan);
  if (plan.options.domain == Domain::Device) join_outer_products(plan);
  prune(plan, true);
  plan.note(
      Severity::Info,
      fmt::format("{} nodes became {}, with {} packs and unpacks and {} slabs of variables; modelled "
                  "{:.1f} us instead of {:.1f} us",
                  nodes, groups, rewriter.packs(), rewriter.slabs(), found.batched_us, found.separate_us));
}

}  // namespace braid
