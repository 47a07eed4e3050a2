#include "worker/step/next_batch.h"

#include <algorithm>

#include "base/error.h"
#include "engine/ir/op.h"
#include "proto/job.pb.h"
#include "worker/job/job.h"

namespace braid::worker {
namespace {

bool is_known(const Graph& graph, NodeId id) {
  const std::size_t outputs = graph.node(id).outputs.size();
  for (std::size_t output = 0; output < outputs; ++output)
    if (!graph.known_value({id, static_cast<int>(output)})) return false;
  return outputs > 0;
}

/// Whether a program can run the node of any batch.
bool can_copy(const Graph& graph, NodeId id) {
  const Node& node = graph.node(id);
  const OpDef& op = *node.op;
  if (node.removed || !node.control_inputs.empty()) return false;
  const bool is_column = op.role == OpRole::Placeholder;
  if ((op.stateful && !is_column) || op.side_effect || op.lane != Lane::Compute) return false;
  for (const OutputInfo& output : node.outputs)
    if (dtype_size(output.dtype) == 0) return false;
  switch (op.role) {
    case OpRole::Placeholder:
      return node.attrs.get<std::string>(kNextOf, "").empty();
    case OpRole::Ordinary:
      return op.cpu || op.cuda || op.views.size() == node.outputs.size();
    case OpRole::Identity:
      return true;
    default:
      return false;
  }
}

}  // namespace

bool NextBatch::can_make(ValueRef value) const {
  std::vector<NodeId> open{value.node};
  std::map<NodeId, bool> seen;
  bool reads_column = false;
  while (!open.empty()) {
    const NodeId id = open.back();
    open.pop_back();
    if (!seen.try_emplace(id, true).second || is_known(graph_, id)) continue;
    if (!can_copy(graph_, id)) return false;
    reads_column = reads_column || graph_.node(id).op->role == OpRole::Placeholder;
    for (const ValueRef input : graph_.node(id).inputs) open.push_back(input.node);
  }
  return reads_column;
}

ValueRef NextBatch::make(ValueRef value) { return {copy(value.node), value.output}; }

NodeId NextBatch::copy(NodeId id) {
  if (is_known(graph_, id)) return id;
  if (const auto known = copies_.find(id); known != copies_.end()) return known->second;
  Node node = graph_.node(id);
  for (ValueRef& input : node.inputs) input.node = copy(input.node);
  if (node.op->role == OpRole::Placeholder) node.attrs.set(kNextOf, node.name);
  node.name = graph_.unique_name("next/" + node.name);
  node.colocate_with = node.forward_of = kNoNode;
  const NodeId made = graph_.add(std::move(node));
  copies_.emplace(id, made);
  return made;
}

std::string next_column(const Graph& graph, const std::string& feed) {
  const NodeId id = graph.find(feed);
  return id == kNoNode ? std::string() : graph.node(id).attrs.get<std::string>(kNextOf, "");
}

void add_next_feeds(const Graph& graph, const std::vector<FeedSpec>& columns, CompileRequest& request) {
  for (NodeId id = 0; id < graph.size(); ++id) {
    const Node& node = graph.node(id);
    if (node.removed || node.op->role != OpRole::Placeholder) continue;
    const std::string column = node.attrs.get<std::string>(kNextOf, "");
    if (column.empty()) continue;
    const auto of = std::ranges::find(columns, column, &FeedSpec::name);
    if (of == columns.end()) throw Internal("'" + node.name + "' is of '" + column + "', which is no column");
    request.feeds.push_back({node.name, of->dtype, of->shape});
  }
}

bool looks_ahead(const proto::Job& job) {
  return job.staging().enabled() && !job.input().has_follow() && !takes_batches(job);
}

namespace {

/// Copies of what keeps values for the next step, and of what these come from: they wait for nothing of the
/// step, but exchanges for each other.
class Alone {
 public:
  explicit Alone(Graph& graph) : graph_(graph) {}

  NodeId copy(NodeId id) {
    if (const auto known = copies_.find(id); known != copies_.end()) return known->second;
    Node node = graph_.node(id);
    const bool is_exchange = node.op->lane == Lane::Comm;
    bool differs = is_exchange || !node.control_inputs.empty() || node.attrs.get(kKeepsNext, false);
    for (ValueRef& input : node.inputs) {
      const NodeId made = copy(input.node);
      differs = differs || made != input.node;
      input.node = made;
    }
    if (!differs) return copies_[id] = id;
    node.control_inputs.clear();
    if (is_exchange && last_ != kNoNode) node.control_inputs.push_back(last_);
    node.attrs.set(kKeepsNext, false);
    node.name = graph_.unique_name(node.name + "/before_first");
    const NodeId made = graph_.add(std::move(node));
    if (is_exchange) last_ = made;
    return copies_[id] = made;
  }

 private:
  Graph& graph_;
  std::map<NodeId, NodeId> copies_;
  NodeId last_ = kNoNode;
};

}  // namespace

std::optional<BeforeFirst> before_first_step(const Graph& step, const std::vector<FeedSpec>& columns) {
  BeforeFirst before{step, {}};
  Alone alone(before.graph);
  for (NodeId id = 0; id < step.size(); ++id) {
    if (step.node(id).removed || !step.node(id).attrs.get(kKeepsNext, false)) continue;
    const NodeId kept = alone.copy(id);
    before.request.targets.push_back(before.graph.node(kept).name);
  }
  if (before.request.targets.empty()) return std::nullopt;
  add_next_feeds(before.graph, columns, before.request);
  return before;
}

}  // namespace braid::worker
