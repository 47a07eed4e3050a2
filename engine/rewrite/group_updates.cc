// On a device, small updates cost their launches: replaces groups of braid.ApplyOptimizer and of
// braid.SparseApplyOptimizer nodes with one node for many variables each. A group has one optimizer with
// equal attributes, gradients of one type, the same control inputs and, where gradients arrive from
// elsewhere, one arrival, so that no update waits for another exchange than its own; sparse groups also have
// one row width. Hand-set streams of the members are given up. Left alone are updates that another node waits
// for or is colocated with (so the rest have no successors, and grouping them makes no cycle), large dense
// ones, which fill a device by themselves, and a second update of a variable.
//
// No rule of rule.h: which nodes belong together is known only when all of them have been seen.
#include <algorithm>
#include <map>
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

const Pattern& dense() {
  static const Pattern pattern{"braid.ApplyOptimizer"};
  return pattern;
}
const Pattern& sparse() {
  static const Pattern pattern{"braid.SparseApplyOptimizer"};
  return pattern;
}

class UpdateGroups {
 public:
  explicit UpdateGroups(Plan& plan) : plan_(plan), graph_(plan.program.graph) {}

  void run() {
    find_awaited();
    for (NodeId id = 0; id < graph_.size(); ++id)
      if (may_join(id)) join(id);
    int nodes = 0, groups = 0;
    std::map<NodeId, NodeId> replaced;
    for (const Group& group : groups_) {
      if (group.members.size() < 2) continue;
      const NodeId many = merge(group);
      for (const NodeId member : group.members) replaced[member] = many;
      nodes += static_cast<int>(group.members.size());
      ++groups;
    }
    if (groups == 0) return;
    redirect_targets(replaced);
    for (const auto& [member, many] : replaced) graph_.remove(member);
    plan_.note(std::to_string(nodes) + " became " + std::to_string(groups));
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
    auto operator<=>(const Key&) const = default;
  };
  struct Group {
    std::vector<NodeId> members;
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

  bool may_join(NodeId id) const {
    const Node& node = graph_.node(id);
    if (node.removed || plan_.domain_of(id) != Domain::Device || awaited_.contains(id)) return false;
    if (!dense().names(node) && !sparse().names(node)) return false;
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

  void join(NodeId id) {
    const Node& node = graph_.node(id);
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
            graph_.info(node.inputs[static_cast<std::size_t>(in.values(0))]).dtype};
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
      return;
    group.variables.insert(variables.begin(), variables.end());
    group.members.push_back(id);
    group.rows += rows;
    group.elements += elements;
  }

  NodeId merge(const Group& group) {
    const Node& first = graph_.node(group.members.front());
    Node many;
    many.op = &OpRegistry::global().require(first.op->name + "Many");
    many.name = graph_.unique_name(first.name + "/and_" + std::to_string(group.members.size() - 1));
    many.attrs = first.attrs;
    many.control_inputs = first.control_inputs;
    many.device = first.device;
    std::vector<std::int64_t> hots;
    for (const NodeId member : group.members) {
      const Node& node = graph_.node(member);
      many.inputs.insert(many.inputs.end(), node.inputs.begin(), node.inputs.end());
      hots.push_back(node.attrs.get(kHots, std::vector<std::int64_t>{1})[0]);
    }
    if (std::any_of(hots.begin(), hots.end(), [](std::int64_t hot) { return hot != 1; }))
      many.attrs.set(kHots, std::move(hots));
    plan_.domains.push_back(Domain::Device);
    return graph_.add(std::move(many));
  }

  void redirect_targets(const std::map<NodeId, NodeId>& replaced) {
    std::set<NodeId> seen;
    std::vector<NodeId> targets;
    for (NodeId target : plan_.targets) {
      if (const auto found = replaced.find(target); found != replaced.end()) target = found->second;
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
