#include "worker/strategies/hybrid_tables.h"

#include <algorithm>
#include <iterator>
#include <optional>

#include "engine/ir/op.h"
#include "engine/ops/state/variable_init.h"
#include "worker/checkpoint/stored_variables.h"
#include "worker/job/optimizers.h"
#include "worker/step/whole_updates.h"
#include "worker/strategies/expand_bags.h"
#include "worker/strategies/hybrid_rewrite.h"
#include "worker/strategies/table_gathers.h"

namespace braid::worker {
namespace {

TableShard shard_of(const TrainingGraph& training, const VariableInfo& variable,
                    const OptimizerSpec& optimizer, const Peers& peers) {
  TableShard shard;
  shard.name = variable.name;
  shard.former_name = former_name(training.graph, variable);
  shard.rows = variable.shape[0];
  shard.dim = shard.rows == 0 ? 0 : variable.shape.elements() / shard.rows;
  shard.rank = peers.rank;
  shard.world = peers.world;
  shard.init = variable_init_spec(training.graph.node(variable.handle));
  shard.row_wise = optimizer.row_wise;
  for (const SlotSpec& slot : optimizer_slots(optimizer)) {
    shard.slots.emplace_back(slot.name);
    shard.slot_initials.push_back(slot.initial_value);
  }
  return shard;
}

/// `sized`: the graph for the step's feeds; null: they are not known.
void count_ids(const Graph& graph, const Graph* sized, const VariableInfo& variable, PlannedTable& table) {
  table.ids_per_example = 0;
  const std::vector<NodeId> lookups = lookups_of(graph, variable.handle);
  for (const NodeId gather : lookups) {
    const ValueRef read = graph.node(gather).inputs[1];
    const Shape& ids = graph.info(read).shape;
    table.can_send_all = table.can_send_all && ids.has_rank() && ids.rank() > 0;
    std::int64_t of_example = 1;
    for (int axis = 1; table.can_send_all && axis < ids.rank(); ++axis)
      of_example *= std::max<std::int64_t>(ids[axis], 1);
    table.ids_per_example += of_example;
    if (!sized) continue;
    const Shape& known = sized->info(read).shape;
    if (!known.is_static()) continue;
    table.ids += known.elements();
    if (pools_at_owner(graph, variable) && known.rank() > 0) table.bags += known[0];
  }
}

}  // namespace

std::vector<PlannedTable> list_tables(const TrainingGraph& training,
                                      const std::vector<VariableGradient>& gradients,
                                      const Optimizers& optimizers, const Peers& peers) {
  const Graph& graph = training.graph;
  std::optional<Graph> sized;
  if (!training.feeds.empty() && !gradients.empty()) {
    sized = graph;
    infer_graph(*sized, training.feeds);
  }
  std::vector<PlannedTable> tables;
  for (const VariableGradient& gradient : gradients) {
    const VariableInfo& variable = gradient.variable;
    PlannedTable table;
    const OptimizerSpec optimizer =
        with_small_states(optimizer_of(training, optimizers, variable.name), variable.shape.elements(), true);
    table.shard = shard_of(training, variable, optimizer, peers);
    table.can_be_sharded = variable.shape.rank() == 2 && variable.dtype == DType::Float32 &&
                           is_read_by_gathers_only(graph, variable);
    table.can_send_all = training.slice_rows.empty();
    count_ids(graph, sized ? &*sized : nullptr, variable, table);
    tables.push_back(std::move(table));
  }
  return tables;
}

bool pools_at_owner(const Graph& graph, const VariableInfo& table) {
  const std::vector<NodeId> lookups = lookups_of(graph, table.handle);
  return lookups.size() == 1 && is_bag_of(graph.node(lookups[0]), table.handle) &&
         !is_ragged_bag(graph.node(lookups[0]));
}

}  // namespace braid::worker
