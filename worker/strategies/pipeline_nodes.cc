#include "worker/strategies/pipeline_nodes.h"

#include <algorithm>

#include "engine/ir/device_name.h"
#include "engine/ir/infer.h"
#include "engine/ir/op.h"

namespace braid::worker {
namespace {

class NodeMarks {
 public:
  NodeMarks(const TrainingGraph& training, PipelineNodes& found)
      : training_(training), graph_(training.graph), found_(found) {}

  void run() {
    const auto size = static_cast<std::size_t>(graph_.size());
    for (auto* marks : {&found_.needed, &found_.free, &found_.backward, &found_.of_weights})
      marks->assign(size, 0);
    mark_needed();
    for (const NodeId id : graph_.topological_order()) {
      if (!found_.is(found_.needed, id)) continue;
      found_.order.push_back(id);
      mark(id);
    }
  }

 private:
  void mark_needed() {
    std::vector<NodeId> open;
    const auto need = [&](NodeId id) {
      if (id == kNoNode || found_.is(found_.needed, id)) return;
      found_.needed[static_cast<std::size_t>(id)] = 1;
      open.push_back(id);
    };
    need(training_.loss.node);
    need(training_.weighted_loss.node);
    for (const VariableGradient& gradient : training_.gradients) {
      need(gradient.variable.handle);
      need(gradient.dense.node);
      if (gradient.slices) need(gradient.slices->indices.node);
      if (gradient.slices) need(gradient.slices->values.node);
    }
    for (const std::string& target : training_.targets) need(graph_.find(target));
    while (!open.empty()) {
      const Node& node = graph_.node(open.back());
      open.pop_back();
      for (const ValueRef input : node.inputs) need(input.node);
      for (const NodeId control : node.control_inputs) need(control);
    }
  }

  void mark(NodeId id) {
    const Node& node = graph_.node(id);
    const auto all_of = [&](const std::vector<char>& what) {
      return std::all_of(node.inputs.begin(), node.inputs.end(),
                         [&](ValueRef input) { return found_.is(what, input.node); }) &&
             std::all_of(node.control_inputs.begin(), node.control_inputs.end(),
                         [&](NodeId control) { return found_.is(what, control); });
    };
    const bool is_column = node.op->role == OpRole::Placeholder;
    const bool is_variable = node.op->role == OpRole::Variable;
    const bool is_plain = !node.op->stateful && !node.op->side_effect && node.op->lane == Lane::Compute;
    const auto at = static_cast<std::size_t>(id);
    found_.free[at] = is_column || (!is_variable && is_plain && all_of(found_.free));
    const bool reads = node.op->role == OpRole::Read;
    std::vector<char>& of_weights = found_.of_weights;
    const auto is_constant = [&](NodeId input) {
      return found_.is(of_weights, input) || graph_.node(input).op->role == OpRole::Variable ||
             (found_.is(found_.free, input) && no_column_above(input));
    };
    of_weights[at] = !found_.free[at] && !is_variable && (is_plain || reads) && !node.op->side_effect &&
                     std::all_of(node.inputs.begin(), node.inputs.end(),
                                 [&](ValueRef input) { return is_constant(input.node); }) &&
                     std::all_of(node.control_inputs.begin(), node.control_inputs.end(), is_constant);
    found_.backward[at] =
        node.forward_of != kNoNode ||
        std::any_of(node.inputs.begin(), node.inputs.end(),
                    [&](ValueRef input) { return found_.is(found_.backward, input.node); }) ||
        std::any_of(node.control_inputs.begin(), node.control_inputs.end(),
                    [&](NodeId control) { return found_.is(found_.backward, control); });
  }

  bool no_column_above(NodeId id) {
    if (column_above_.empty()) {
      column_above_.assign(static_cast<std::size_t>(graph_.size()), 0);
      for (const NodeId each : graph_.topological_order()) {
        const Node& node = graph_.node(each);
        column_above_[static_cast<std::size_t>(each)] =
            node.op->role == OpRole::Placeholder ||
            std::any_of(node.inputs.begin(), node.inputs.end(), [&](ValueRef input) {
              return column_above_[static_cast<std::size_t>(input.node)] != 0;
            });
      }
    }
    return column_above_[static_cast<std::size_t>(id)] == 0;
  }

  const TrainingGraph& training_;
  const Graph& graph_;
  PipelineNodes& found_;
  std::vector<char> column_above_;
};

}  // namespace

std::vector<FeedSpec> fed_columns(const TrainingGraph& training) {
  std::vector<FeedSpec> columns;
  for (const FeedInfo& feed : training.feeds)
    columns.push_back({training.graph.node(feed.value.node).name, feed.dtype, feed.shape});
  return columns;
}

std::int64_t value_bytes(const OutputInfo& info) {
  return info.shape.is_static() ? info.shape.elements() * static_cast<std::int64_t>(dtype_size(info.dtype))
                                : 0;
}

PipelineNodes pipeline_nodes(const TrainingGraph& training, const std::vector<FeedSpec>& columns) {
  PipelineNodes found;
  found.inferred = training.graph;
  std::vector<FeedInfo> feeds;
  for (const FeedSpec& column : columns)
    if (const NodeId id = found.inferred.find(column.name); id != kNoNode)
      feeds.push_back({{id, 0}, column.dtype, column.shape});
  infer_graph(found.inferred, feeds);
  NodeMarks(training, found).run();
  return found;
}

std::optional<int> stage_of(const Node& node) {
  if (node.device.empty()) return std::nullopt;
  const DeviceName name = parse_device_name(node.device);
  return name.job.value_or("worker") == "worker" ? name.task : std::nullopt;
}

void set_stage(Node& node, std::optional<int> stage) {
  const DeviceName name = node.device.empty() ? DeviceName{} : parse_device_name(node.device);
  node.device = stage ? "/job:worker/task:" + std::to_string(*stage) : "";
  if (name.kind) node.device += "/device:" + *name.kind + ":" + std::to_string(name.index.value_or(0));
}

}  // namespace braid::worker
