#include "engine/import/choose_branches.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <unordered_map>
#include <vector>

#include "engine/import/branch_gates.h"
#include "engine/import/function_values.h"
#include "engine/import/node_inputs.h"

namespace braid {
namespace {

bool is_switch(const NodeDef& node) { return node.op() == "Switch" || node.op() == "RefSwitch"; }
bool is_merge(const NodeDef& node) { return node.op() == "Merge" || node.op() == "RefMerge"; }

bool has_effect(const std::string& op) {
  static constexpr std::string_view kEffects[] = {
      "Apply", "Assign", "Print", "Queue", "ResourceApply", "Resource", "Save", "Scatter", "SparseApply"};
  return op != "ResourceGather" && op != "ResourceGatherNd" &&
         std::any_of(std::begin(kEffects), std::end(kEffects),
                     [&](std::string_view effect) { return op.starts_with(effect); });
}

/// Predicates, by the value's name -> the branch in which a node is.
using Branches = std::map<std::string, bool>;

class Chooser {
 public:
  explicit Chooser(const GraphDef& graph) {
    chosen_.graph = graph;
    for (int i = 0; i < graph.node_size(); ++i) places_.try_emplace(graph.node(i).name(), i);
    for (const NodeDef& node : graph.node())
      if (is_switch(node) && !belongs_to_loop(node)) {
        is_switch_of_branches_.insert(node.name());
        const auto type = node.attr().find("T");
        if (node.op() == "Switch" && type != node.attr().end() && has_gradients(type->second.type()))
          passes_gradients_.insert(node.name());
      }
  }

  bool any() const { return !is_switch_of_branches_.empty(); }

  ChosenBranches run() {
    const int nodes = chosen_.graph.node_size();
    for (int i = 0; i < nodes; ++i) visit(i);
    for (int i = 0; i < nodes; ++i) rewrite(*chosen_.graph.mutable_node(i), branches_[i]);
    for (NodeDef& node : *added_.mutable_node()) *chosen_.graph.add_node() = std::move(node);
    return std::move(chosen_);
  }

 private:
  const NodeDef* find(const std::string& input) const {
    const auto at = places_.find(node_of(input));
    return at == places_.end() ? nullptr : &chosen_.graph.node(at->second);
  }

  /// A predicate behind Identities and Switches, which do not change it.
  std::string predicate(std::string value) const {
    for (;;) {
      const NodeDef* node = find(value);
      if (!node || node->input_size() == 0 || (node->op() != "Identity" && !is_switch(*node)))
        return value_of(node_of(value), output_of(value));
      value = node->input(0);
    }
  }

  bool belongs_to_loop(const NodeDef& node) const {
    const auto is = [&](const std::string& input, std::string_view op) {
      const NodeDef* other = find(input);
      return other && other->op().ends_with(op);
    };
    if (is_switch(node)) return node.input_size() > 1 && is(node.input(1), "LoopCond");
    return std::any_of(node.input().begin(), node.input().end(),
                       [&](const std::string& input) { return is(input, "NextIteration"); });
  }

  /// Visits what the node needs first, without the C++ stack: graphs are deep.
  void visit(int root) {
    std::vector<std::pair<int, int>> open{{root, 0}};
    while (!open.empty()) {
      const int place = open.back().first;
      const NodeDef& node = chosen_.graph.node(place);
      if (open.back().second == 0 && !seen_.insert(place).second) {
        open.pop_back();
        continue;
      }
      if (open.back().second < node.input_size()) {
        const auto at = places_.find(node_of(node.input(open.back().second++)));
        const bool back =
            at == places_.end() || chosen_.graph.node(at->second).op().ends_with("NextIteration");
        if (!back && !seen_.contains(at->second)) open.emplace_back(at->second, 0);
        continue;
      }
      branches_[place] = branches_of(node);
      open.pop_back();
    }
  }

  /// Where the node of an input is, and the side of a Switch that the input takes.
  Branches of_input(const std::string& input) const {
    const auto at = places_.find(node_of(input));
    if (at == places_.end()) return {};
    const auto known = branches_.find(at->second);
    Branches branches = known == branches_.end() ? Branches{} : known->second;
    const NodeDef& from = chosen_.graph.node(at->second);
    if (is_switch(from) && !belongs_to_loop(from) && from.input_size() > 1 && !input.starts_with('^'))
      branches[predicate(from.input(1))] = output_of(input) == 1;
    return branches;
  }

  Branches branches_of(const NodeDef& node) {
    Branches branches;
    if (!is_merge(node) || belongs_to_loop(node)) {
      for (const std::string& input : node.input()) branches.merge(of_input(input));
      return branches;
    }
    std::vector<Branches> sides;
    for (const std::string& input : node.input())
      if (!input.starts_with('^')) sides.push_back(of_input(input));
    if (sides.size() != 2) return branches;
    for (const auto& [value, side] : sides[0]) {
      const auto other = sides[1].find(value);
      if (other == sides[1].end()) continue;
      if (other->second == side)
        branches.emplace(value, side);
      else
        decides_.try_emplace(node.name(), value, side);
    }
    return branches;
  }

  // ---- the nodes in their places

  void rewrite(NodeDef& node, const Branches& branches) {
    if (is_switch(node) && !belongs_to_loop(node)) return pass_on(node);
    if (is_merge(node) && !belongs_to_loop(node)) return select(node);
    for (std::string& input : *node.mutable_input()) input = past_switch(input);
    if (branches.empty()) return;
    if (reads_variable(node)) return gate_read(node, branches);
    if (node.op() == "Assert") return guard(node, branches);
    if (has_effect(node.op()))
      chosen_.problems.emplace(
          node.name(),
          "it has an effect inside of a branch of tf.cond, of which both are computed: do it "
          "outside, with a value that the condition chooses");
  }

  /// Both outputs of a Switch are its value, those of floats behind gates.
  std::string past_switch(const std::string& input) const {
    const NodeDef* from = find(input);
    const bool chosen = from && is_switch_of_branches_.contains(from->name());
    if (!chosen || input.starts_with('^')) return input;
    if (!passes_gradients_.contains(from->name())) return from->name();
    return from->name() + (output_of(input) == 1 ? "/if_true" : "/if_false");
  }

  void pass_on(NodeDef& node) {
    const std::string value = past_switch(node.input(0));
    const std::string condition = node.input_size() > 1 ? predicate(node.input(1)) : std::string();
    if (passes_gradients_.contains(node.name()))
      for (const bool side : {true, false})
        add_gate(added_, node.name() + (side ? "/if_true" : "/if_false"), value, condition, side, node);
    keep(node, "Identity", {value});
  }

  /// What is read within branches, behind a gate for each of them.
  void gate_read(NodeDef& node, const Branches& branches) {
    const std::string name = node.name();
    std::string value = name + "/read";
    std::size_t left = branches.size();
    for (const auto& [condition, side] : branches) {
      const std::string gate = --left == 0 ? name : fmt::format("{}/gate_{}", name, left);
      add_gate(added_, gate, value, condition, side, node);
      value = gate;
    }
    node.set_name(name + "/read");
  }

  void select(NodeDef& node) {
    const auto decides = decides_.find(node.name());
    if (decides == decides_.end()) {
      chosen_.problems.emplace(node.name(),
                               "control flow is not supported: it is not seen which condition decides");
      return;
    }
    std::vector<std::string> sides;
    for (const std::string& input : node.input())
      if (!input.starts_with('^')) sides.push_back(past_switch(input));
    if (!decides->second.second) std::swap(sides[0], sides[1]);
    keep(node, "Select", {decides->second.first, sides[0], sides[1]});
  }

  static void keep(NodeDef& node, const char* op, std::vector<std::string> inputs) {
    node.set_op(op);
    replace_data_inputs(node, std::move(inputs));
    node.mutable_attr()->erase("N");
  }

  /// The condition, or that the branch is not taken.
  void guard(NodeDef& node, const Branches& branches) {
    std::string condition = node.input(0);
    for (const auto& [value, side] : branches) {
      if (!side && predicate(condition) == value) continue;
      std::string other = value;
      if (side)
        other = add(node.name() + "/apart" + std::to_string(added_.node_size()), "LogicalNot", {value});
      condition =
          add(node.name() + "/holds" + std::to_string(added_.node_size()), "LogicalOr", {condition, other});
    }
    node.set_input(0, condition);
  }

  std::string add(const std::string& name, const char* op, const std::vector<std::string>& inputs) {
    NodeDef& node = *added_.add_node();
    node.set_name(name);
    node.set_op(op);
    for (const std::string& input : inputs) node.add_input(input);
    return name;
  }

  ChosenBranches chosen_;
  std::unordered_map<std::string, int> places_;
  std::set<int> seen_;
  std::map<int, Branches> branches_;
  std::map<std::string, std::pair<std::string, bool>>
      decides_;  // Merge -> predicate, side of its first input
  std::set<std::string> is_switch_of_branches_, passes_gradients_;
  GraphDef added_;
};

}  // namespace

std::optional<ChosenBranches> choose_branches(const GraphDef& graph) {
  Chooser chooser(graph);
  if (!chooser.any()) return std::nullopt;
  return chooser.run();
}

}  // namespace braid
