// On a device, small updates cost their launches: replaces groups of braid.ApplyOptimizer and of
// braid.SparseApplyOptimizer nodes with one node for many variables each. A group has one optimizer with
// equal attributes, gradients of one type and factor, the same control inputs and, where gradients arrive
// from elsewhere, one arrival, so that no update waits for another exchange than its own; sparse groups also
// have one row width. Hand-set streams of the members are given up. Left alone are updates that another node
// waits for or is colocated with (so the rest have no successors, and grouping them makes no cycle), large
// dense ones, which fill a device by themselves, and a second update of a variable. A rule of groups
// (rule.h).
#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <set>

#include "engine/ir/op.h"
#include "engine/ops/common/index_groups.h"
#include "engine/ops/optimizer/optimizer_attrs.h"
#include "engine/ops/optimizer/update_inputs.h"
#include "engine/rewrite/passes.h"
#include "engine/rewrite/rule.h"

namespace braid {
namespace {

constexpr std::int64_t kLargeElements = 1 << 21;  // some 10 us of a device's memory bandwidth
constexpr std::int64_t kMostElements = 1 << 24;   // of a dense group, whose gradients all wait for the last
constexpr std::int64_t kMostRows = (1LL << 31) - 2;  // and one more for each table, for the keys of a group

const Pattern& sparse() {
  static const Pattern pattern{"braid.SparseApplyOptimizer"};
  return pattern;
}

const Pattern& update() {
  static const Pattern pattern{"braid.ApplyOptimizer", "braid.SparseApplyOptimizer"};
  return pattern;
}

class UpdateGroups {
 public:
  explicit UpdateGroups(Plan& plan) : plan_(plan), graph_(plan.program.graph) {}

  void run() {
    find_awaited();
    std::vector<NodeId> nodes(static_cast<std::size_t>(graph_.size()));
    std::iota(nodes.begin(), nodes.end(), 0);
    const Grouped grouped = join_groups(
        graph_, nodes, update(), [this](const Node& node) { return group_of(node); },
        [this](const std::vector<NodeId>& members) { return merge(members); });
    if (grouped.groups > 0)
      plan_.note(std::to_string(grouped.nodes) + " became " + std::to_string(grouped.groups));
  }

 private:
  struct Key {
    std::string_view op;
    OptimizerSpec optimizer;
    std::vector<NodeId> control_inputs;
    NodeId arrival;
    std::int64_t width;
    bool skip_negative, has_bags, weighted;
    DType values;
    ValueRef factor;  // or not valid
    auto operator<=>(const Key&) const = default;
  };
  struct Group {
    std::set<std::string> variables;
    std::int64_t rows = 0;      // of sparse updates
    std::int64_t elements = 0;  // of dense ones
  };

  UpdateInputs inputs_of(const Node& node) const {
    UpdateInputs in;
    in.spec = optimizer_spec(node.attrs);
    in.slots = static_cast<int>(optimizer_slots(in.spec).size());
    in.has_indices = sparse().names(node);
    in.has_bags = node.attrs.get(kHasBags, false);
    in.weighted = node.attrs.get(kWeighted, false);
    in.gradient_inputs = (in.has_indices ? 2 : 1) + (in.has_bags ? 1 : 0) + (in.weighted ? 1 : 0);
    return in;
  }

  void find_awaited() {
    for (NodeId id = 0; id < graph_.size(); ++id) {
      const Node& node = graph_.node(id);
      if (node.removed) continue;
      awaited_.insert(node.control_inputs.begin(), node.control_inputs.end());
      awaited_.insert(node.colocate_with);
    }
  }

  bool may_join(const Node& node) const {
    if (plan_.domain_of(node.id) != Domain::Device || awaited_.contains(node.id)) return false;
    const Shape& shape = graph_.info(node.inputs[0]).shape;
    if (sparse().names(node)) return shape[0] > 0 && shape[0] <= kMostRows;
    return shape.elements() <= kLargeElements;
  }

  /// The node that brings the gradient from elsewhere, or none where it is computed.
  NodeId arrival_of(ValueRef gradient) const {
    for (;;) {
      const Node& node = graph_.node(gradient.node);
      if (node.op->lane != Lane::Compute) return node.id;
      const auto view = std::find_if(node.op->views.begin(), node.op->views.end(),
                                     [&](const auto& pair) { return pair.first == gradient.output; });
      if (view == node.op->views.end()) return kNoNode;
      gradient = node.inputs[static_cast<std::size_t>(view->second)];
    }
  }

  /// The group that the update joins, by its place in groups_; none where it stays alone.
  std::optional<std::size_t> group_of(const Node& node) {
    if (!may_join(node)) return std::nullopt;
    const UpdateInputs in = inputs_of(node);
    const Shape& shape = graph_.info(node.inputs[0]).shape;
    const bool by_rows = sparse().names(node);
    Key key{node.op->name,
            in.spec,
            node.control_inputs,
            arrival_of(node.inputs[static_cast<std::size_t>(in.values(0))]),
            by_rows ? shape.elements() / shape[0] : 0,
            node.attrs.get(kSkipNegative, false),
            in.has_bags,
            in.weighted,
            graph_.info(node.inputs[static_cast<std::size_t>(in.values(0))]).dtype,
            node.attrs.get(kHasFactor, false) ? node.inputs.back() : ValueRef{}};
    std::sort(key.control_inputs.begin(), key.control_inputs.end());
    const std::int64_t rows = by_rows ? shape[0] + 1 : 0, elements = by_rows ? 0 : shape.elements();
    std::vector<std::string> variables;
    for (int i = 0; i < in.gradient(0); ++i)
      variables.push_back(variable_of(graph_, node.inputs[static_cast<std::size_t>(i)]).name);

    const auto [open, is_new] = open_.try_emplace(std::move(key), groups_.size());
    if (!is_new && (groups_[open->second].rows + rows > kMostRows ||
                    groups_[open->second].elements + elements > kMostElements))
      open->second = groups_.size();
    if (open->second == groups_.size()) groups_.emplace_back();
    Group& group = groups_[open->second];
    if (std::any_of(variables.begin(), variables.end(),
                    [&](const std::string& name) { return group.variables.contains(name); }))
      return std::nullopt;
    group.variables.insert(variables.begin(), variables.end());
    group.rows += rows;
    group.elements += elements;
    return open->second;
  }

  NodeId merge(const std::vector<NodeId>& members) {
    const Node& first = graph_.node(members.front());
    Node many;
    many.op = &OpRegistry::global().require(first.op->name + "Many");
    many.name = graph_.unique_name(first.name + "/and_" + std::to_string(members.size() - 1));
    many.attrs = first.attrs;
    many.control_inputs = first.control_inputs;
    many.device = first.device;
    const std::ptrdiff_t factors = first.attrs.get(kHasFactor, false) ? 1 : 0;
    const ValueRef factor = first.inputs.back();
    std::vector<std::int64_t> hots, offsets;
    for (const NodeId member : members) {
      const Node& node = graph_.node(member);
      many.inputs.insert(many.inputs.end(), node.inputs.begin(), node.inputs.end() - factors);
      hots.push_back(node.attrs.get(kHots, std::vector<std::int64_t>{1})[0]);
      offsets.push_back(node.attrs.get(kValueOffsets, std::vector<std::int64_t>{-1})[0]);
    }
    if (factors > 0) many.inputs.push_back(factor);
    // What the first one says is of one variable.
    if (first.attrs.has(kHots) || std::any_of(hots.begin(), hots.end(), [](auto hot) { return hot != 1; }))
      many.attrs.set(kHots, std::move(hots));
    if (first.attrs.has(kValueOffsets) ||
        std::any_of(offsets.begin(), offsets.end(), [](auto offset) { return offset >= 0; }))
      many.attrs.set(kValueOffsets, std::move(offsets));
    plan_.domains.push_back(Domain::Device);
    const NodeId made = graph_.add(std::move(many));
    redirect_targets({members.begin(), members.end()}, made);
    return made;
  }

  void redirect_targets(const std::set<NodeId>& members, NodeId made) {
    std::set<NodeId> seen;
    std::vector<NodeId> targets;
    for (NodeId target : plan_.targets) {
      if (members.contains(target)) target = made;
      if (seen.insert(target).second) targets.push_back(target);
    }
    plan_.targets = std::move(targets);
  }

  Plan& plan_;
  Graph& graph_;
  std::set<NodeId> awaited_;  // nodes that others wait for or are colocated with
  std::vector<Group> groups_;
  std::map<Key, std::size_t> open_;  // the group that still takes members
};

}  // namespace

void group_updates(Plan& plan) { UpdateGroups(plan).run(); }

}  // namespace braid
