#include "worker/strategies/pipeline_cut.h"

#include <fmt/format.h>
#include <re2/re2.h>

#include <algorithm>
#include <functional>
#include <map>

#include "base/error.h"
#include "engine/ir/infer.h"
#include "engine/ir/op.h"
#include "engine/ops/common/index_groups.h"
#include "engine/program/cost_model.h"
#include "proto/job.pb.h"
#include "worker/strategies/pipeline_line.h"
#include "worker/strategies/pipeline_nodes.h"

namespace braid::worker {
namespace {

constexpr int kNone = -1;

class Cutter {
 public:
  Cutter(TrainingGraph& training, const proto::Pipeline& pipeline, const std::vector<FeedSpec>& columns,
         int stages, Domain domain)
      : training_(training),
        graph_(training.graph),
        pipeline_(pipeline),
        nodes_(pipeline_nodes(training, columns)),
        stages_(stages),
        domain_(domain),
        stage_(static_cast<std::size_t>(graph_.size()), kNone) {
    for (const NodeId id : nodes_.order)
      if (graph_.node(id).op->role != OpRole::Variable && !nodes_.is(nodes_.free, id) &&
          !nodes_.is(nodes_.backward, id))
        forward_.push_back(id);
    for (const VariableInfo& variable : list_variables(graph_)) handles_.emplace(variable.handle, variable);
    find_users();
  }

  PipelineCut run() {
    PipelineCut cut;
    if (pipeline_.stage_size() > 0)
      take_patterns();
    else if (!take_scopes())
      cut.chosen = true;
    if (cut.chosen)
      choose();
    else
      spread();
    settle_variables();
    place_backward();
    bring_gradients_home();
    check_edges();
    for (const NodeId id : nodes_.order)
      set_stage(graph_.mutable_node(id), at(id) == kNone ? std::nullopt : std::optional<int>(at(id)));
    cut.stages = estimate();
    return cut;
  }

 private:
  int& at(NodeId id) { return stage_[static_cast<std::size_t>(id)]; }

  /// The handle behind an input, or none.
  NodeId handle_of(ValueRef value) const {
    if (graph_.info(value).dtype != DType::Resource) return kNoNode;
    const std::string name = variable_of(graph_, value).name;
    for (const auto& [handle, variable] : handles_)
      if (variable.name == name) return handle;
    return kNoNode;
  }

  void find_users() {
    for (const NodeId id : forward_)
      for (const ValueRef input : graph_.node(id).inputs)
        if (const NodeId handle = handle_of(input); handle != kNoNode) users_[handle].push_back(id);
  }

  // ------------------------------------------------------------------------------------------ what is said

  void take_patterns() {
    if (pipeline_.stage_size() != stages_)
      throw InvalidArgument(
          fmt::format("strategy.pipeline.stage: {} stages for {} workers: each worker is one stage",
                      pipeline_.stage_size(), stages_));
    for (int stage = 0; stage < stages_; ++stage) {
      const std::string& match = pipeline_.stage(stage).match();
      const std::string place = fmt::format("strategy.pipeline.stage[{}].match '{}'", stage, match);
      const RE2 pattern(match, RE2::Quiet);
      if (!pattern.ok()) throw InvalidArgument(place + ": " + pattern.error());
      bool fits = false;
      const auto say = [&](NodeId id, const std::string& name) {
        if (!RE2::FullMatch(name, pattern)) return;
        fits = true;
        if (at(id) == kNone) at(id) = stage;
      };
      for (const auto& [handle, variable] : handles_)
        if (nodes_.is(nodes_.needed, handle)) say(handle, variable.name);
      for (const NodeId id : forward_) say(id, graph_.node(id).name);
      if (!fits) throw InvalidArgument(place + " fits no variable and no node of the model");
    }
  }

  bool take_scopes() {
    bool any = false;
    const auto take = [&](NodeId id) {
      const std::optional<int> stage = stage_of(graph_.node(id));
      if (!stage) return;
      if (*stage < 0 || *stage >= stages_)
        throw InvalidArgument(place_of(graph_.node(id)) + " asks for '" + graph_.node(id).device +
                              "', and there are " + std::to_string(stages_) + " workers");
      at(id) = *stage;
      any = any || *stage > 0;
    };
    for (const auto& [handle, variable] : handles_)
      if (nodes_.is(nodes_.needed, handle)) take(handle);
    for (const NodeId id : forward_) take(id);
    return any;
  }

  /// From what is said to all forward nodes.
  void spread() {
    for (auto& [handle, users] : users_)
      for (const NodeId user : users)
        if (at(handle) != kNone && at(user) == kNone) at(user) = at(handle);
    for (const NodeId id : forward_) {
      if (at(id) != kNone) continue;
      int last = kNone;
      for (const ValueRef input : graph_.node(id).inputs) last = std::max(last, at(input.node));
      for (const NodeId control : graph_.node(id).control_inputs) last = std::max(last, at(control));
      at(id) = last == kNone && !is_of_reader(id) ? 0 : last;
    }
    std::map<NodeId, int> first;  // by node: the first stage that reads it
    for (auto id = forward_.rbegin(); id != forward_.rend(); ++id) {
      if (at(*id) == kNone) at(*id) = first.contains(*id) ? first.at(*id) : 0;
      for (const ValueRef input : graph_.node(*id).inputs) {
        const auto [known, fresh] = first.try_emplace(input.node, at(*id));
        if (!fresh) known->second = std::min(known->second, at(*id));
      }
    }
  }

  // ------------------------------------------------------------------------------------------ what is chosen

  double cost_of(NodeId id) const {
    const Node& node = nodes_.inferred.node(id);
    const bool is_view = !node.op->views.empty() && node.op->views.size() == node.outputs.size();
    if (is_view || node.op->role == OpRole::Nothing || node.op->role == OpRole::Variable) return 0;
    return modelled_us(modelled_cost(nodes_.inferred, node), node.op->lane, domain_);
  }

  double bytes_of(ValueRef value) const {
    const OutputInfo& info = nodes_.inferred.info(value);
    return info.shape.is_static() && info.dtype != DType::Resource
               ? static_cast<double>(info.shape.elements()) * static_cast<double>(dtype_size(info.dtype))
               : 0;
  }

  void choose() {
    const std::vector<NodeId> line = weights_beside_readers();
    std::vector<std::size_t> place(static_cast<std::size_t>(graph_.size()));
    for (std::size_t i = 0; i < line.size(); ++i) place[static_cast<std::size_t>(line[i])] = i;
    const auto place_of_node = [&](NodeId id) { return place[static_cast<std::size_t>(id)]; };
    LineOfNodes all(line.size());
    for (const NodeId id : line) all.add_cost(place_of_node(id), cost_of(id));
    for (const NodeId id : nodes_.order) {
      if (!nodes_.is(nodes_.backward, id)) continue;
      const NodeId forward = graph_.node(id).forward_of;
      const bool placed = forward != kNoNode && nodes_.is(nodes_.needed, forward) && is_forward(forward);
      if (placed) all.add_cost(place_of_node(forward), cost_of(id));
    }
    for (const NodeId id : line)
      for (std::size_t i = 0; i < graph_.node(id).inputs.size(); ++i) {
        const ValueRef input = graph_.node(id).inputs[i];
        if (!is_forward(input.node) || reads_shape_only(graph_.node(id), i)) continue;
        // Forward, and its gradient back.
        const bool has_gradient = is_floating(graph_.info(input).dtype);
        all.add_value(input, place_of_node(input.node), place_of_node(id),
                      bytes_of(input) * (has_gradient ? 2 : 1));
      }
    for (const auto& [handle, users] : users_)
      for (const NodeId user : users) all.keep_together(place_of_node(users.front()), place_of_node(user));
    const std::vector<std::size_t> ends = all.cut(stages_, cost_model(domain_).network_bytes_per_us);
    if (ends.empty())
      throw InvalidArgument(fmt::format(
          "strategy PIPELINE: the model's {} forward nodes cannot be cut into {} stages, since variables are "
          "on one stage with all that looks into them: use fewer workers",
          line.size(), stages_));
    int stage = 0;
    for (std::size_t i = 0; i < line.size(); ++i) {
      while (i >= ends[static_cast<std::size_t>(stage)]) ++stage;
      at(line[i]) = stage;
    }
  }

  bool is_forward(NodeId id) const {
    return !nodes_.is(nodes_.free, id) && !nodes_.is(nodes_.backward, id) &&
           graph_.node(id).op->role != OpRole::Variable;
  }

  /// What is computed of weights alone, or of nothing (random numbers), belongs to its first reader.
  bool is_of_reader(NodeId id) const {
    const Node& node = graph_.node(id);
    return nodes_.is(nodes_.of_weights, id) ||
           (std::all_of(node.inputs.begin(), node.inputs.end(),
                        [&](ValueRef input) { return nodes_.is(nodes_.free, input.node); }) &&
            std::all_of(node.control_inputs.begin(), node.control_inputs.end(),
                        [&](NodeId control) { return nodes_.is(nodes_.free, control); }));
  }

  /// In programs that make all variables first their reads would all be on the first stage.
  std::vector<NodeId> weights_beside_readers() const {
    std::vector<NodeId> line;
    std::vector<char> done(static_cast<std::size_t>(graph_.size()));
    const std::function<void(NodeId)> add = [&](NodeId id) {
      if (!is_forward(id) || done[static_cast<std::size_t>(id)]) return;
      done[static_cast<std::size_t>(id)] = 1;
      for (const ValueRef input : graph_.node(id).inputs) add(input.node);
      for (const NodeId control : graph_.node(id).control_inputs) add(control);
      line.push_back(id);
    };
    for (const NodeId id : forward_)
      if (!is_of_reader(id)) add(id);
    for (const NodeId id : forward_) add(id);
    return line;
  }

  // -------------------------------------------------------------------------------------------- what follows

  void settle_variables() {
    for (const auto& [handle, users] : users_)
      for (const NodeId user : users) {
        if (at(handle) == kNone) at(handle) = at(user);
        if (at(handle) == at(user)) continue;
        throw InvalidArgument(fmt::format(
            "variable '{}' is on stage {} of the pipeline, and {} on stage {} looks into it: put all that "
            "gathers from a variable, reads or updates it onto one stage",
            handles_.at(handle).name, at(handle), place_of(graph_.node(user)), at(user)));
      }
    for (const auto& [handle, variable] : handles_)
      if (nodes_.is(nodes_.needed, handle) && at(handle) == kNone) at(handle) = 0;
    // Other handles of the same variables.
    for (const NodeId id : nodes_.order)
      if (graph_.node(id).op->role == OpRole::Variable && at(id) == kNone) at(id) = at(handle_of({id, 0}));
  }

  void place_backward() {
    for (const NodeId id : nodes_.order) {
      if (!nodes_.is(nodes_.backward, id) || nodes_.is(nodes_.free, id)) continue;
      const NodeId forward = graph_.node(id).forward_of;
      int stage = forward == kNoNode ? kNone : at(forward);
      if (stage == kNone)
        for (const ValueRef input : graph_.node(id).inputs) stage = std::max(stage, at(input.node));
      at(id) = std::max(stage, 0);
    }
  }

  /// A gradient may be what another stage has made, such as that of a sum behind a gather.
  void bring_gradients_home() {
    for (VariableGradient& gradient : training_.gradients) {
      const auto bring = [&](ValueRef& value) {
        const int made = at(value.node), home = at(gradient.variable.handle);
        if (made == kNone || made == home) return;
        AttrMap attrs{{"T", graph_.info(value).dtype}};
        if (graph_.node(value.node).attrs.get(kPadsIndices, false)) attrs.set(kPadsIndices, true);
        value = add_node(graph_, "Identity", "pipeline/" + gradient.variable.name, {value}, std::move(attrs));
        graph_.mutable_node(value.node).forward_of = gradient.variable.handle;
        set_stage(graph_.mutable_node(value.node), home);
      };
      if (gradient.slices) bring(gradient.slices->indices);
      if (gradient.slices) bring(gradient.slices->values);
      if (gradient.dense.valid()) bring(gradient.dense);
    }
  }

  void check_edges() {
    std::vector<bool> found(static_cast<std::size_t>(stages_));
    for (const NodeId id : forward_) {
      found[static_cast<std::size_t>(at(id))] = true;
      const Node& node = graph_.node(id);
      for (const ValueRef input : node.inputs)
        if (is_forward(input.node) && at(input.node) > at(id))
          throw InvalidArgument(fmt::format(
              "{} on stage {} of the pipeline reads {} of stage {}: a stage reads what is before it",
              place_of(node), at(id), place_of(graph_.node(input.node)), at(input.node)));
    }
    for (std::size_t stage = 0; stage < found.size(); ++stage)
      if (!found[stage])
        throw InvalidArgument(fmt::format("stage {} of the pipeline has no nodes of the model", stage));
  }

  std::vector<StageEstimate> estimate() {
    std::vector<StageEstimate> stages(static_cast<std::size_t>(stages_));
    for (const NodeId id : nodes_.order) {
      if (at(id) == kNone) continue;
      StageEstimate& stage = stages[static_cast<std::size_t>(at(id))];
      if (const auto variable = handles_.find(id); variable != handles_.end()) {
        stage.variable_bytes +=
            variable->second.shape.elements() * static_cast<std::int64_t>(dtype_size(variable->second.dtype));
        continue;
      }
      ++stage.nodes;
      (nodes_.is(nodes_.backward, id) ? stage.times.backward : stage.times.forward) += cost_of(id);
    }
    return stages;
  }

  TrainingGraph& training_;
  Graph& graph_;
  const proto::Pipeline& pipeline_;
  const PipelineNodes nodes_;
  const int stages_;
  const Domain domain_;
  std::vector<int> stage_;       // by node
  std::vector<NodeId> forward_;  // what is to be placed, inputs first
  std::map<NodeId, VariableInfo> handles_;
  std::map<NodeId, std::vector<NodeId>> users_;  // of handles, forward
};

}  // namespace

PipelineCut cut_pipeline(TrainingGraph& training, const proto::Pipeline& pipeline,
                         const std::vector<FeedSpec>& columns, int stages, Domain domain) {
  return Cutter(training, pipeline, columns, stages, domain).run();
}

}  // namespace braid::worker
