// Groups are chosen by hill climbing from all of them: a group that loses by itself is given up where that
// makes the whole gain more, so one that only carries its neighbours' results stays; then parts of the graph
// that do not gain enough as a whole (CostModel::worthwhile_batching) are given up. On a device,
// what fuse() would put into the node before it costs nothing, batched or not, and what a region will take in
// costs nothing by itself.
#include <algorithm>
#include <numeric>
#include <set>
#include <utility>

#include "engine/fusion/rules.h"
#include "engine/ir/op.h"
#include "engine/program/cost_model.h"
#include "engine/rewrite/fuse.h"
#include "engine/rewrite/horizontal_fusion.h"
#include "engine/rewrite/sibling_groups.h"

namespace braid {
namespace {

constexpr int kMostTrials = 256;

class Chooser {
 public:
  Chooser(const Plan& plan, SiblingGroups& found)
      : plan_(plan),
        graph_(plan.program.graph),
        result_(found),
        group_of_(static_cast<std::size_t>(graph_.size()), -1) {
    for (NodeId id = 0; id < graph_.size(); ++id) {
      first_value_.push_back(static_cast<int>(uses_.size()));
      uses_.resize(uses_.size() + graph_.node(id).outputs.size());
    }
    for (NodeId id = 0; id < graph_.size(); ++id) collect(graph_.node(id));
    fetched_.insert(plan_.fetches.begin(), plan_.fetches.end());
    for (std::size_t g = 0; g < found.groups.size(); ++g)
      for (const NodeId lane : found.groups[g].lanes) group_of_[index(lane)] = static_cast<int>(g);
    for (const SiblingGroup& group : found.groups) costs_.push_back(costs_of(group));
  }

  void run() {
    settle();
    evaluate();
    climb();
    while (give_up_losing_parts()) {
      settle();
      evaluate();
    }
    result_.separate_us = separate_;
    result_.batched_us = separate_ - gain();
  }

 private:
  using Kind = SiblingOperand::Kind;
  struct Use {
    NodeId node;
    int input;
  };
  struct GroupCosts {
    double separate_us = 0;       // of the lanes as they are
    double kernel_us = 0;         // of the batched node alone
    double unpack_us = 0;         // if lanes are used by themselves
    std::vector<double> pack_us;  // by operand, if it is packed
    bool fused = false;           // costs nothing behind an aligned operand
  };
  static std::size_t index(int i) { return static_cast<std::size_t>(i); }
  int group_of(NodeId id) const { return group_of_[index(id)]; }
  std::vector<Use>& uses_of(ValueRef value) {
    return uses_[index(first_value_[index(value.node)] + value.output)];
  }
  const std::vector<Use>& uses_of(ValueRef value) const {
    return uses_[index(first_value_[index(value.node)] + value.output)];
  }
  std::vector<ValueRef> values_of(const SiblingGroup& group, std::size_t input) const {
    std::vector<ValueRef> values;
    for (const NodeId lane : group.lanes) values.push_back(graph_.node(lane).inputs[input]);
    return values;
  }

  void collect(const Node& node) {
    if (node.removed) return;
    if (node.op->role == OpRole::Variable)
      handles_[variable_of(graph_, {node.id, 0}).name].push_back({node.id, 0});
    for (std::size_t i = 0; i < node.inputs.size(); ++i)
      if (!uses_shape_only(node, i)) uses_of(node.inputs[i]).push_back({node.id, static_cast<int>(i)});
    awaited_.insert(node.control_inputs.begin(), node.control_inputs.end());
  }

  // ------------------------------------------------------------------------------------------------ choice

  double gain() const { return std::accumulate(gains_.begin(), gains_.end(), 0.0); }

  void evaluate() {
    gains_.assign(result_.groups.size(), 0);
    separate_ = 0;
    for (std::size_t g = 0; g < result_.groups.size(); ++g) {
      const SiblingGroup& group = result_.groups[g];
      if (!group.accepted) continue;
      separate_ += costs_[g].separate_us;
      gains_[g] = costs_[g].separate_us - batched_us(g);
    }
  }

  void climb() {
    int trials = 0;
    for (bool improved = true; improved;) {
      improved = false;
      std::vector<int> losing;
      for (std::size_t g = 0; g < gains_.size(); ++g)
        if (gains_[g] < 0) losing.push_back(static_cast<int>(g));
      std::stable_sort(losing.begin(), losing.end(),
                       [&](int a, int b) { return gains_[index(a)] < gains_[index(b)]; });
      for (const int g : losing) {
        if (!result_.groups[index(g)].accepted) continue;
        if (++trials > kMostTrials) return;
        improved = try_without(g) || improved;
      }
    }
  }

  bool try_without(int g) {
    SiblingGroups groups = result_;
    std::vector<double> gains = gains_;
    const double separate = separate_, before = gain();
    result_.groups[index(g)].accepted = false;
    settle();
    evaluate();
    if (gain() > before) return true;
    result_ = std::move(groups);
    gains_ = std::move(gains);
    separate_ = separate;
    return false;
  }

  /// A part: groups that hand results or variables on to each other.
  bool give_up_losing_parts() {
    std::vector<int> part(result_.groups.size());
    std::iota(part.begin(), part.end(), 0);
    const auto root = [&](int g) {
      while (part[index(g)] != g) g = part[index(g)] = part[index(part[index(g)])];
      return g;
    };
    std::vector<int> first_of_slab(result_.slabs.size(), -1);
    for (int g = 0; g < static_cast<int>(result_.groups.size()); ++g) {
      if (!result_.groups[index(g)].accepted) continue;
      for (const SiblingOperand& operand : result_.groups[index(g)].operands) {
        if (operand.kind == Kind::Aligned) part[index(root(g))] = root(operand.group);
        if (operand.kind != Kind::Slab) continue;
        int& first = first_of_slab[index(operand.slab)];
        if (first < 0) first = g;
        part[index(root(g))] = root(first);
      }
    }
    const double least = cost_model(plan_.options.domain).worthwhile_batching;
    std::vector<double> gains(part.size(), 0);
    for (int g = 0; g < static_cast<int>(part.size()); ++g) {
      const SiblingGroup& group = result_.groups[index(g)];
      if (group.accepted) gains[index(root(g))] += gains_[index(g)] - least * costs_[index(g)].separate_us;
    }
    bool any = false;
    for (int g = 0; g < static_cast<int>(part.size()); ++g) {
      SiblingGroup& group = result_.groups[index(g)];
      if (!group.accepted || gains[index(root(g))] > 0) continue;
      group.accepted = false;
      any = true;
    }
    return any;
  }

  /// What follows from the groups that are accepted: aligned operands, possible slabs, results that are
  /// unpacked. An update without its slabs cannot be batched, which may take slabs from others.
  void settle() {
    for (bool changed = true; changed;) {
      changed = false;
      for (SiblingGroup& group : result_.groups)
        for (SiblingOperand& operand : group.operands)
          if (operand.kind == Kind::Aligned &&
              !result_.groups[static_cast<std::size_t>(operand.group)].accepted)
            operand = {};
      for (std::size_t s = 0; s < result_.slabs.size(); ++s) {
        VariableSlab& slab = result_.slabs[s];
        slab.possible = slab.possible && all_uses_batched(static_cast<int>(s));
      }
      for (SiblingGroup& group : result_.groups) {
        for (SiblingOperand& operand : group.operands) {
          if (operand.kind != Kind::Slab || result_.slabs[static_cast<std::size_t>(operand.slab)].possible)
            continue;
          if (group.form == Batching::Update) {
            changed = changed || group.accepted;
            group.accepted = false;
          } else {
            operand = {};
          }
        }
      }
    }
    for (SiblingGroup& group : result_.groups)
      group.unpacked = group.form != Batching::Update &&
                       std::any_of(group.lanes.begin(), group.lanes.end(), [&](NodeId lane) {
                         return is_used_alone({lane, 0});
                       });
  }

  // ------------------------------------------------------------------------------------------------- costs

  const SiblingOperand* operand_at(const Use& use) const {
    const int group = group_of(use.node);
    if (group < 0 || !result_.groups[static_cast<std::size_t>(group)].accepted) return nullptr;
    const auto& operands = result_.groups[index(group)].operands;
    return index(use.input) < operands.size() ? &operands[index(use.input)] : nullptr;
  }

  bool is_used_alone(ValueRef value) const {
    const std::vector<Use>& uses = uses_of(value);
    return fetched_.contains(value) || std::any_of(uses.begin(), uses.end(), [&](const Use& use) {
             const SiblingOperand* operand = operand_at(use);
             return !operand || operand->kind != Kind::Aligned;
           });
  }

  /// Whether what uses lanes by themselves takes all of them as they lie (join_outer_products).
  bool is_taken_whole(const SiblingGroup& group) const {
    for (std::size_t lane = 0; lane < group.lanes.size(); ++lane) {
      const ValueRef value{group.lanes[lane], 0};
      if (fetched_.contains(value)) return false;
      for (const Use& use : uses_of(value)) {
        const SiblingOperand* operand = operand_at(use);
        if (operand && operand->kind == Kind::Aligned) continue;
        if (!takes_lane(graph_.node(use.node), index(use.input), lane, group.lanes.size())) return false;
      }
    }
    return true;
  }

  bool all_uses_batched(int slab) const {
    const auto in_slab = [&](const Use& use) {
      const SiblingOperand* operand = operand_at(use);
      return operand && operand->kind == Kind::Slab && operand->slab == slab;
    };
    for (const NodeId handle : result_.slabs[static_cast<std::size_t>(slab)].handles) {
      for (const ValueRef value : handles_.at(variable_of(graph_, {handle, 0}).name)) {
        if (fetched_.contains(value)) return false;
        for (const Use& use : uses_of(value)) {
          const Node& reader = graph_.node(use.node);
          if (reader.op->role != OpRole::Read) {
            if (!in_slab(use)) return false;
            continue;
          }
          const std::vector<Use>& reads = uses_of({reader.id, 0});
          if (!reader.control_inputs.empty() || awaited_.contains(reader.id) ||
              fetched_.contains({reader.id, 0}))
            return false;
          if (!std::all_of(reads.begin(), reads.end(), in_slab)) return false;
        }
      }
    }
    return true;
  }

  double us(const Cost& cost) const { return modelled_us(cost, Lane::Compute, plan_.options.domain); }

  bool all_known(const std::vector<ValueRef>& values) const {
    return std::all_of(values.begin(), values.end(),
                       [&](ValueRef value) { return graph_.known_value(value) != nullptr; });
  }

  bool is_used_once(ValueRef value) const { return uses_of(value).size() == 1 && !fetched_.contains(value); }

  bool is_fused(const Node& node) const {
    return plan_.options.domain != Domain::Host &&
           fuses_into_input(graph_, node, [&](ValueRef value) { return is_used_once(value); });
  }

  /// Whether a region will take the lane in: it is elementwise, and so is a node beside it that no group has,
  /// forward or backward as it is.
  bool joins_region(const Node& lane, Batching form) const {
    if (!plan_.options.fusion || plan_.options.domain == Domain::Host ||
        (form != Batching::Elementwise && form != Batching::Broadcasting) || !is_formula(lane))
      return false;
    const auto takes = [&](NodeId id) {
      const Node& node = graph_.node(id);
      return group_of(id) < 0 && is_formula(node) &&
             (node.forward_of == kNoNode) == (lane.forward_of == kNoNode);
    };
    const std::vector<Use>& uses = uses_of({lane.id, 0});
    return std::any_of(lane.inputs.begin(), lane.inputs.end(),
                       [&](ValueRef value) { return !graph_.known_value(value) && takes(value.node); }) ||
           std::any_of(uses.begin(), uses.end(), [&](const Use& use) { return takes(use.node); });
  }
  static bool is_formula(const Node& node) {
    const fusion::FusionRule* const rule = fusion::rules().find(node.op->name);
    return rule != nullptr && rule->loop != nullptr;
  }

  /// What of a group's costs does not depend on the groups that are accepted: it is asked for many times.
  GroupCosts costs_of(const SiblingGroup& group) const {
    GroupCosts costs;
    Cost all;
    for (const NodeId lane : group.lanes) {
      const Cost cost = modelled_cost(graph_, graph_.node(lane));
      all.flops += cost.flops;
      all.bytes += cost.bytes;
      if (!is_fused(graph_.node(lane)) && !joins_region(graph_.node(lane), group.form))
        costs.separate_us += us(cost);
    }
    if (group.form == Batching::Reshape) costs.separate_us = 0;  // the same memory
    costs.kernel_us = group.form == Batching::Reshape ? 0 : us(all);
    const auto copy_us = [&](const OutputInfo& info) {
      const double bytes = static_cast<double>(info.shape.elements()) * sizeof(float);
      return us({0, 2 * bytes * static_cast<double>(group.lanes.size())});
    };
    const Node& first = graph_.node(group.lanes.front());
    costs.fused = is_fused(first);
    for (std::size_t i = 0; i < group.operands.size(); ++i) {
      const OutputInfo& info = graph_.info(first.inputs[i]);
      const bool stays = info.dtype == DType::Resource || all_known(values_of(group, i));
      costs.pack_us.push_back(stays ? 0 : copy_us(info));
    }
    if (group.form != Batching::Update) costs.unpack_us = copy_us(first.outputs[0]);
    return costs;
  }

  double batched_us(std::size_t g) const {
    const SiblingGroup& group = result_.groups[g];
    const GroupCosts& costs = costs_[g];
    double sum = costs.fused && group.operands[0].kind == Kind::Aligned ? 0 : costs.kernel_us;
    for (std::size_t i = 0; i < group.operands.size(); ++i)
      if (group.operands[i].kind == Kind::Packed) sum += costs.pack_us[i];
    return group.unpacked && !is_taken_whole(group) ? sum + costs.unpack_us : sum;
  }

  const Plan& plan_;
  const Graph& graph_;
  SiblingGroups& result_;
  std::vector<int> group_of_;                             // by node
  std::vector<int> first_value_;                          // by node: place in uses_ of its first output
  std::vector<std::vector<Use>> uses_;                    // by live nodes
  std::map<std::string, std::vector<ValueRef>> handles_;  // by variable
  std::set<NodeId> awaited_;                              // by control edges
  std::set<ValueRef> fetched_;
  std::vector<GroupCosts> costs_;  // by group
  std::vector<double> gains_;      // by group
  double separate_ = 0;
};

}  // namespace

void choose_sibling_groups(const Plan& plan, SiblingGroups& found) { Chooser(plan, found).run(); }

}  // namespace braid
