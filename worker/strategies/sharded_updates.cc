#include "worker/strategies/sharded_updates.h"

#include "engine/ir/op.h"
#include "engine/ops/optimizer/optimizer_attrs.h"
#include "worker/strategies/shard_ops.h"

namespace braid::worker {

void ShardedUpdates::add_bucket(const std::vector<VariableGradient>& gradients,
                                const OptimizerSpec& optimizer, bool scatter) {
  Graph& graph = training_.graph;
  const std::string name = "shard/bucket" + std::to_string(buckets_.size());
  Bucket bucket{{}, optimizer};
  std::vector<ValueRef> values;
  std::int64_t elements = 0;
  for (const VariableGradient& gradient : gradients) {
    bucket.variables.push_back(gradient.variable);
    values.push_back(gradient.dense);
    elements += gradient.variable.shape.elements();
  }
  const std::int64_t part = (elements + world_ - 1) / world_;
  VariableGradient own;
  own.variable.name = name;
  own.variable.shape = Shape{part};
  if (scatter) {
    Node node;
    node.name = graph.unique_name(name + "/reduce_scatter");
    node.inputs = values;
    node.attrs = {{kPart, part}};
    own.dense = {add_collective_(std::move(node), "braid.ReduceScatterGradients"), 0};
  } else {
    own.dense = add_node(graph, "braid.OwnPart", name + "/own_part", values, {{kPart, part}});
  }
  parts_.push_back(std::move(own));
  buckets_.push_back(std::move(bucket));
}

std::vector<RankState> ShardedUpdates::add_updates() {
  Graph& graph = training_.graph;
  std::vector<RankState> states;
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    const Bucket& bucket = buckets_[b];
    const VariableInfo& part = parts_[b].variable;
    std::vector<ValueRef> handles;
    for (const VariableInfo& variable : bucket.variables) handles.push_back({variable.handle, 0});
    Node update;
    update.name = graph.unique_name(part.name + "/update");
    update.op = &OpRegistry::global().require("braid.ApplyPart");
    update.inputs = handles;
    for (const SlotSpec& slot : optimizer_slots(bucket.optimizer)) {
      RankState state{graph.unique_name(part.name + "/" + std::string(slot.name))};
      for (const VariableInfo& variable : bucket.variables)
        state.pieces.push_back(
            {variable.name + "/" + std::string(slot.name), variable.shape, slot.initial_value});
      update.inputs.push_back(
          add_state(graph, state.variable, part.shape, slot.initial_value, slot.initial_value));
      states.push_back(std::move(state));
    }
    update.inputs.push_back(parts_[b].dense);
    update.attrs = optimizer_attrs(bucket.optimizer);
    update.colocate_with = kNoNode;
    const NodeId updated = graph.add(std::move(update));
    Node gather;
    gather.name = graph.unique_name(part.name + "/gather");
    gather.inputs = std::move(handles);
    gather.control_inputs = {updated};
    training_.targets.push_back(gather.name);
    add_collective_(std::move(gather), "braid.GatherVariables");
  }
  return states;
}

std::vector<std::vector<VariableGradient>> split_by_optimizer(
    const std::vector<VariableGradient>& bucket,
    const std::function<const OptimizerSpec&(const VariableGradient&)>& optimizer_of) {
  std::vector<std::vector<VariableGradient>> parts;
  for (const VariableGradient& gradient : bucket) {
    if (parts.empty() || optimizer_of(parts.back().front()) != optimizer_of(gradient)) parts.emplace_back();
    parts.back().push_back(gradient);
  }
  return parts;
}

}  // namespace braid::worker
