#include "engine/staging/auto_stage.h"

#include <algorithm>
#include <set>

#include "base/error.h"
#include "engine/ir/op.h"

namespace braid {
namespace {

class Finder {
 public:
  Finder(const Graph& graph, const AutoStageRequest& request)
      : graph_(graph),
        in_step_(static_cast<std::size_t>(graph.size()), 0),
        fed_(in_step_),
        staged_(in_step_) {
    for (const std::string& name : request.records) records_.insert(node_named(graph, name));
    for (const std::string& name : request.keep) kept_.insert(node_named(graph, name));
    for (const std::string& name : request.targets) kept_.insert(node_named(graph, name));
    if (!request.only.empty()) {
      std::vector<NodeId> wanted;
      for (const std::string& name : request.only) wanted.push_back(node_named(graph, name));
      const GraphPart part = part_above(graph, {}, wanted, {});
      only_.emplace(part.nodes.begin(), part.nodes.end());
    }
    std::vector<ValueRef> roots;
    for (const std::string& name : request.fetches) roots.push_back(graph.parse_value(name));
    fetches_ = {roots.begin(), roots.end()};
    // The closures grow forward, so one walk in topological order makes them.
    const GraphPart needed = part_above(graph, roots, {kept_.begin(), kept_.end()}, {});
    needed_ = {needed.nodes.begin(), needed.nodes.end()};
    for (const NodeId id : graph.topological_order())
      if (needed_.contains(id)) order_.push_back(id);
  }

  AutoStageResult run(const StageOptions& options) {
    close();
    find_crossing();
    AutoStageResult result;
    result.nodes = count_work();
    if (crossing_.empty() || result.nodes == 0) {
      result.nodes = 0;
      result.report = why_nothing();
      return result;
    }
    GraphStage stage;
    stage.options = options;
    stage.outputs = {crossing_.begin(), crossing_.end()};
    add_siblings(graph_, stage.outputs);
    result.report = std::to_string(result.nodes) + " of " + std::to_string(order_.size()) +
                    " nodes run ahead of the step; handed over: " + list(stage.outputs);
    result.stage = std::move(stage);
    return result;
  }

 private:
  std::size_t at(NodeId id) const { return static_cast<std::size_t>(id); }

  /// Whether the node must stay in the step whatever is above it.
  bool is_state(const Node& node) const {
    if (kept_.contains(node.id) || node.op->role == OpRole::Variable) return true;
    if (node.op->role == OpRole::Placeholder) return !records_.contains(node.id);
    if (only_ && !only_->contains(node.id)) return true;
    return node.op->side_effect || node.op->lane != Lane::Compute || node.outputs.empty();
  }

  void close() {
    for (const NodeId id : order_) {
      const Node& node = graph_.node(id);
      bool in_step = is_state(node), fed = records_.contains(id);
      for (const ValueRef input : node.inputs) {
        in_step = in_step || in_step_[at(input.node)];
        fed = fed || fed_[at(input.node)];
      }
      for (const NodeId control : node.control_inputs) {
        in_step = in_step || in_step_[at(control)];
        fed = fed || fed_[at(control)];
      }
      in_step_[at(id)] = in_step;
      fed_[at(id)] = fed;
      // A record's own value comes through the stage, even where what depends on it is kept.
      staged_[at(id)] = records_.contains(id) || (fed && !in_step);
    }
  }

  void find_crossing() {
    for (const ValueRef value : fetches_)
      if (staged_[at(value.node)]) crossing_.insert(value);
    for (const NodeId id : order_) {
      if (!in_step_[at(id)]) continue;
      const Node& node = graph_.node(id);
      for (const ValueRef input : node.inputs)
        if (staged_[at(input.node)]) crossing_.insert(input);
      // When all its values are fed a node has run before the step.
      for (const NodeId control : node.control_inputs)
        if (staged_[at(control)])
          for (int output = 0; output < static_cast<int>(graph_.node(control).outputs.size()); ++output)
            crossing_.insert({control, output});
    }
  }

  static bool is_view(const Node& node) {
    return !node.op->views.empty() && node.op->views.size() == node.outputs.size();
  }

  /// Nodes above the crossing values that compute something: views and records cost nothing to leave.
  int count_work() const {
    const GraphPart part = part_above(graph_, {crossing_.begin(), crossing_.end()}, {}, {});
    return static_cast<int>(std::count_if(part.nodes.begin(), part.nodes.end(), [&](NodeId id) {
      const Node& node = graph_.node(id);
      return staged_[at(id)] && !records_.contains(id) && !is_view(node) && node.op->role != OpRole::Nothing;
    }));
  }

  std::string why_nothing() const {
    if (records_.empty()) return "nothing to stage: no placeholder comes with records";
    for (const NodeId id : records_)
      if (needed_.contains(id))
        return "nothing to stage: whatever depends on records depends on state too, or computes nothing";
    return "nothing to stage: the step needs no records";
  }

  std::string list(const std::vector<ValueRef>& values) const {
    constexpr std::size_t kMost = 8;
    std::string text;
    for (std::size_t i = 0; i < std::min(values.size(), kMost); ++i)
      text += (i ? ", " : "") + graph_.value_name(values[i]);
    if (values.size() > kMost) text += " and " + std::to_string(values.size() - kMost) + " more";
    return text;
  }

  const Graph& graph_;
  std::set<NodeId> records_, kept_, needed_;
  std::optional<std::set<NodeId>> only_;  // what may be staged; nothing: all
  std::set<ValueRef> fetches_, crossing_;
  std::vector<NodeId> order_;
  std::vector<char> in_step_, fed_, staged_;  // by node
};

}  // namespace

AutoStageResult auto_stage(const Graph& graph, const AutoStageRequest& request) {
  return Finder(graph, request).run(request.options);
}

}  // namespace braid
