// On a device, halves of squares that clipping adds up (braid.ClipScale) cost their launches: those of dense
// gradients become one braid.L2LossMany, and those of tables whose rows a braid.GroupRows has grouped for
// their updates one braid.RowsL2LossMany, which need not sort them again. Large tensors, which fill a device
// by themselves, keep their own.
#include <algorithm>
#include <map>
#include <optional>

#include "engine/ops/common/index_groups.h"
#include "engine/rewrite/passes.h"
#include "engine/rewrite/rule.h"

namespace braid {
namespace {

constexpr std::int64_t kMostSquared = 1 << 22;  // elements

class NormGroups {
 public:
  explicit NormGroups(Plan& plan) : plan_(plan), graph_(plan.program.graph), users_(graph_) {}

  void run() {
    static const Pattern scale{"braid.ClipScale"};
    const NodeId count = graph_.size();
    for (NodeId id = 0; id < count; ++id) {
      const Node& node = graph_.node(id);
      if (node.removed || !scale.names(node) || plan_.domain_of(id) != Domain::Device) continue;
      join_tensors(id);
      for (NodeId rows = 0; rows < count; ++rows) join_rows(id, rows);
    }
    if (joined_ > 0) plan_.note(std::to_string(joined_) + " became " + std::to_string(made_));
  }

 private:
  /// Whether `id` makes a number for the scale alone.
  bool is_for_scale(NodeId id) const {
    return plan_.domain_of(id) == Domain::Device && is_inner(plan_, id) && users_.of(id).size() == 1 &&
           !users_.is_named(id);
  }

  void join_tensors(NodeId scale) {
    static const Pattern loss{"L2Loss"};
    std::vector<NodeId> members;
    for (const ValueRef input : graph_.node(scale).inputs) {
      const Node& node = graph_.node(input.node);
      if (!loss.names(node) || !is_for_scale(node.id)) continue;
      const OutputInfo& info = graph_.info(node.inputs[0]);
      if (info.dtype == DType::Float32 && info.shape.is_static() && info.shape.elements() <= kMostSquared)
        members.push_back(node.id);
    }
    if (members.size() < 2) return;
    std::vector<ValueRef> inputs;
    for (const NodeId member : members) inputs.push_back(graph_.node(member).inputs[0]);
    join(scale, members, "braid.L2LossMany", std::move(inputs), {});
  }

  /// The members that are of the tables of a grouping, in their order.
  std::optional<std::vector<NodeId>> of_tables(NodeId scale, const Node& grouping) const {
    static const Pattern loss{"braid.RowsL2Loss"};
    const auto rows = grouping.attrs.get<std::vector<std::int64_t>>("rows", {});
    std::vector<NodeId> members;
    for (std::size_t t = 0; t < grouping.inputs.size(); ++t) {
      const auto& inputs = graph_.node(scale).inputs;
      const auto found = std::find_if(inputs.begin(), inputs.end(), [&](ValueRef input) {
        const Node& node = graph_.node(input.node);
        return loss.names(node) && is_for_scale(node.id) && node.inputs[0] == grouping.inputs[t] &&
               node.attrs.get("rows", std::int64_t{-1}) == rows[t] &&
               node.attrs.get(kSkipNegative, false) == grouping.attrs.get(kSkipNegative, false) &&
               std::find(members.begin(), members.end(), node.id) == members.end();
      });
      if (found == inputs.end()) return std::nullopt;
      members.push_back(found->node);
      if (values_type(members.back()) != values_type(members.front())) return std::nullopt;
    }
    return members;
  }
  DType values_type(NodeId id) const { return graph_.info(graph_.node(id).inputs[1]).dtype; }

  void join_rows(NodeId scale, NodeId id) {
    static const Pattern group{"braid.GroupRows"};
    const Node& grouping = graph_.node(id);
    if (grouping.removed || !group.names(grouping)) return;
    const auto members = of_tables(scale, grouping);
    if (!members) return;
    std::vector<ValueRef> inputs;
    for (const NodeId member : *members) inputs.push_back(graph_.node(member).inputs[1]);
    inputs.push_back({id, 0});
    join(scale, *members, "braid.RowsL2LossMany", std::move(inputs),
         {{"rows", grouping.attrs.get<std::vector<std::int64_t>>("rows", {})}});
  }

  void join(NodeId scale, const std::vector<NodeId>& members, const char* op, std::vector<ValueRef> inputs,
            AttrMap attrs) {
    const Node& first = graph_.node(members.front());
    Node many;
    many.op = &OpRegistry::global().require(op);
    many.name = graph_.unique_name(first.name + "/and_" + std::to_string(members.size() - 1));
    many.attrs = std::move(attrs);
    many.inputs = std::move(inputs);
    many.device = first.device;
    plan_.domains.push_back(Domain::Device);
    const ValueRef made{graph_.add(std::move(many)), 0};
    std::vector<ValueRef> halves{made};
    for (const ValueRef input : graph_.node(scale).inputs)
      if (std::find(members.begin(), members.end(), input.node) == members.end()) halves.push_back(input);
    graph_.mutable_node(scale).inputs = std::move(halves);
    for (const NodeId member : members) graph_.remove(member);
    joined_ += static_cast<int>(members.size());
    ++made_;
  }

  Plan& plan_;
  Graph& graph_;
  const Users users_;
  int joined_ = 0, made_ = 0;
};

}  // namespace

void group_norms(Plan& plan) { NormGroups(plan).run(); }

}  // namespace braid
