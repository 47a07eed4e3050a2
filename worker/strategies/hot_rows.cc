#include "worker/strategies/hot_rows.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <unordered_map>

#include "base/error.h"
#include "engine/ops/common/index_groups.h"
#include "worker/strategies/table_gathers.h"

namespace braid::worker {
namespace {

constexpr std::uint64_t kCountedBatches = 16;

using Ids = std::vector<std::int64_t>;
using TimesNamed = std::unordered_map<std::int64_t, std::int64_t>;

void count_ids(const Tensor& ids, std::int64_t rows, TimesNamed& counts) {
  const auto add = [&](auto list) {
    for (const auto id : list)
      if (id >= 0 && static_cast<std::int64_t>(id) < rows) ++counts[static_cast<std::int64_t>(id)];
  };
  if (ids.dtype() == DType::Int32)
    add(ids.data<std::int32_t>());
  else
    add(ids.data<std::int64_t>());
}

Ids most_named(const TimesNamed& counts, std::int64_t most) {
  std::vector<std::pair<std::int64_t, std::int64_t>> order;  // times, id
  for (const auto& [id, times] : counts) order.emplace_back(-times, id);
  const auto kept = std::min(order.size(), static_cast<std::size_t>(most));
  std::ranges::partial_sort(order, order.begin() + static_cast<std::ptrdiff_t>(kept));
  Ids hot;
  for (std::size_t i = 0; i < kept; ++i) hot.push_back(order[i].second);
  std::ranges::sort(hot);
  return hot;
}

/// The hot ones' places of several lists, one behind another.
ValueRef joined(Graph& graph, const std::vector<ValueRef>& lists, const std::string& name) {
  if (lists.size() == 1) return reshaped(graph, lists[0], {-1}, name);
  std::vector<ValueRef> inputs;
  for (const ValueRef list : lists) {
    const DType dtype = graph.info(graph.node(list.node).inputs[0]).dtype;
    ValueRef wide = list;
    if (dtype != DType::Int64)
      wide = add_node(graph, "Cast", name + "/int64", {list}, {{"SrcT", dtype}, {"DstT", DType::Int64}});
    inputs.push_back(reshaped(graph, wide, {-1}, name + "/flat"));
  }
  inputs.push_back(add_node(graph, "Const", name + "/axis", {},
                            {{"value", Tensor::scalar<std::int32_t>(0)}, {"dtype", DType::Int32}}));
  return add_node(graph, "ConcatV2", name, std::move(inputs), {{"N", std::ssize(lists)}});
}

}  // namespace

std::string hot_variable(const TableShard& table, const std::string& variable) {
  return table.name + "/hot" + variable.substr(table.name.size());
}

void choose_hot_rows(const Graph& graph, const BatchValues& values, std::vector<PlannedTable>& tables) {
  std::vector<std::string> names;      // of ids
  std::vector<PlannedTable*> readers;  // of each
  const std::vector<VariableInfo> variables = list_variables(graph);
  for (PlannedTable& table : tables) {
    TableShard& shard = table.shard;
    shard.hot.clear();
    if (shard.most_hot() == 0) continue;
    if (!values) {
      shard.hot.resize(static_cast<std::size_t>(shard.most_hot()));
      std::iota(shard.hot.begin(), shard.hot.end(), std::int64_t{0});
      continue;
    }
    const auto its = std::ranges::find(variables, shard.name, &VariableInfo::name);
    if (its == variables.end()) throw Internal("there is no table '" + shard.name + "'");
    for (const NodeId lookup : lookups_of(graph, its->handle)) {
      names.push_back(graph.value_name(graph.node(lookup).inputs[1]));
      readers.push_back(&table);
    }
  }
  if (names.empty()) return;
  std::map<PlannedTable*, TimesNamed> counts;
  for (const std::vector<Tensor>& batch : values(graph, names, kCountedBatches))
    for (std::size_t i = 0; i < batch.size(); ++i)
      count_ids(batch[i], readers[i]->shard.rows, counts[readers[i]]);
  for (const auto& [table, its] : counts) table->shard.hot = most_named(its, table->shard.most_hot());
}

TableShard hot_table(const TableShard& table) {
  TableShard hot = table;
  hot.name = hot_variable(table, table.name);
  hot.former_name.clear();
  hot.rows = std::ssize(table.hot);
  hot.plan = TablePlan::Replicate;
  hot.hot_rows = 0;
  hot.hot.clear();
  return hot;
}

VariableGradient split_hot_rows(TrainingGraph& training, const TableShard& table,
                                VariableGradient& gradient) {
  Graph& graph = training.graph;
  const Shape shape{std::ssize(table.hot), table.dim};
  VariableGradient hot = gradient;
  hot.variable.name = hot_variable(table, table.name);
  hot.variable.shape = shape;
  hot.variable.handle = add_state(graph, hot.variable.name, shape, 0, 0).node;
  if (const auto rows = training.slice_rows.find(table.name); rows != training.slice_rows.end())
    training.slice_rows.emplace(hot.variable.name, rows->second);

  const auto split = [&](ValueRef ids) {
    return add_node(graph, "braid.SplitHotIds", "hot_ids/" + table.name, {ids}, {{"hot", table.hot}}).node;
  };
  const std::vector<NodeId> gathers = gathers_of(graph, gradient.variable.handle);
  const auto ordered = in_order_of(graph, gradient.slices->indices, gathers);
  std::vector<ValueRef> places;
  for (const NodeId gather : ordered.value_or(gathers)) {
    const NodeId ids = split(known_ids_of(graph, gather));
    graph.mutable_node(gather).attrs.set(kKnownIds, graph.node(ids).name);
    places.push_back({ids, 1});
    const ValueRef rows = add_node(graph, "braid.HotRows", graph.node(gather).name + "/hot",
                                   {{hot.variable.handle, 0}, {gather, 0}, places.back()}, {}, gather);
    graph.replace_uses({gather, 0}, rows);
    graph.mutable_node(rows.node).inputs[1] = {gather, 0};
  }
  if (ordered) {
    hot.slices->indices = joined(graph, places, "hot_gradient_rows/" + table.name);
  } else {
    const NodeId ids = split(gradient.slices->indices);
    gradient.slices->indices = {ids, 0};
    hot.slices->indices = {ids, 1};
  }
  for (const VariableGradient* part : {&hot, &gradient})
    if (part == &hot || !ordered)
      graph.mutable_node(part->slices->indices.node).attrs.set(kPadsIndices, true);
  return hot;
}

}  // namespace braid::worker
