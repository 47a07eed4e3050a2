#include "worker/strategies/ordered_rows.h"

#include <algorithm>

#include "engine/ir/op.h"
#include "worker/strategies/hybrid_rewrite.h"
#include "worker/strategies/table_gathers.h"

namespace braid::worker {
namespace {

using Ints = std::vector<std::int64_t>;

bool is_index(DType dtype) { return dtype == DType::Int32 || dtype == DType::Int64; }

}  // namespace

NodeId add_row_keys(TrainingGraph& training, std::int64_t dim, const std::vector<std::vector<NodeId>>& tables,
                    std::int64_t servers, bool entries) {
  Graph& graph = training.graph;
  std::vector<ValueRef> ids;
  Ints lists, padded;
  for (std::size_t t = 0; t < tables.size(); ++t)
    for (const NodeId gather : tables[t]) {
      ids.push_back(known_ids_of(graph, gather));
      lists.push_back(static_cast<std::int64_t>(t));
      padded.push_back(ids.back() == graph.node(gather).inputs[1] ? 0 : 1);
    }
  const NodeId keys =
      add_node(graph, "braid.PsKeys", "ps/keys" + std::to_string(dim), std::move(ids),
               {{"lists", lists}, {"padded", padded}, {"servers", servers}, {"entries", entries}})
          .node;
  training.ahead.push_back(graph.node(keys).name);
  return keys;
}

bool OrderedRows::can_take(const Graph& graph, const VariableGradient& gradient) {
  if (!gradient.slices || !is_read_by_gathers_only(graph, gradient.variable)) return false;
  const std::vector<NodeId> gathers = gathers_of(graph, gradient.variable.handle);
  return !gathers.empty() && std::ranges::all_of(gathers, [&](NodeId id) {
    return is_index(graph.info(graph.node(id).inputs[1]).dtype);
  }) && in_order_of(graph, gradient.slices->indices, gathers).has_value();
}

void OrderedRows::add(const VariableGradient& gradient, int table, std::size_t slots) {
  const std::int64_t dim = gradient.variable.shape[1];
  if (!options_.cached) slots = 0;
  auto group =
      std::ranges::find_if(groups_, [&](const Group& g) { return g.dim == dim && g.slots == slots; });
  if (group == groups_.end()) group = groups_.insert(groups_.end(), Group{dim, slots, {}});
  group->tables.push_back(
      {gradient, table,
       *in_order_of(graph_, gradient.slices->indices, gathers_of(graph_, gradient.variable.handle))});
}

std::vector<std::vector<int>> OrderedRows::tables() const {
  std::vector<std::vector<int>> all;
  for (const Group& group : groups_) {
    auto& its = all.emplace_back();
    for (const Table& table : group.tables) its.push_back(table.number);
  }
  return all;
}

void OrderedRows::add_keys(Group& group) {
  std::vector<std::vector<NodeId>> gathers;
  for (const Table& table : group.tables) gathers.push_back(table.gathers);
  group.keys = add_row_keys(training_, group.dim, gathers, options_.servers);
}

/// Where the cache has the step's rows is found out beside the step before.
NodeId OrderedRows::add_plan() {
  Node plan;
  plan.name = graph_.unique_name("ps/plan_rows");
  plan.op = &OpRegistry::global().require("braid.PsPlanRows");
  Ints tables, group_tables;
  for (const Group& group : groups_) {
    plan.inputs.push_back({group.keys, 0});
    plan.inputs.push_back({group.keys, 1});
    group_tables.push_back(std::ssize(group.tables));
    for (const Table& table : group.tables) tables.push_back(table.number);
  }
  plan.attrs = {{"tables", tables}, {"group_tables", group_tables}};
  return graph_.add(std::move(plan));
}

ValueRef OrderedRows::pull(bool votes, const std::vector<Dense>& dense) {
  Node pull;
  pull.name = graph_.unique_name("ps/pull_rows");
  pull.op = &OpRegistry::global().require("braid.PsRows");
  Ints tables, group_tables, dims;
  for (Group& group : groups_) {
    add_keys(group);
    pull.inputs.push_back({group.keys, 0});
    pull.inputs.push_back({group.keys, 1});
    group_tables.push_back(std::ssize(group.tables));
    dims.push_back(group.dim);
    for (const Table& table : group.tables) tables.push_back(table.number);
  }
  Ints dense_tables;
  for (const Dense& variable : dense) {
    pull.inputs.push_back(variable.value);
    dense_tables.push_back(variable.table);
  }
  pull.attrs = {{"tables", tables},
                {"dense_tables", dense_tables},
                {"group_tables", group_tables},
                {"dims", dims},
                {"versioned", options_.versioned},
                {"ahead", options_.ahead},
                {"cached", options_.cached},
                {"votes", votes},
                {"fill", options_.fill}};
  if (options_.cached) pull.control_inputs.push_back(add_plan());
  const NodeId id = graph_.add(std::move(pull));
  for (const Dense& variable : dense) read_behind(graph_, variable.value, id);
  for (std::size_t g = 0; g < groups_.size(); ++g) replace_gathers(groups_[g], {id, static_cast<int>(g)});
  return votes ? ValueRef{id, groups()} : ValueRef{};
}

void OrderedRows::replace_gathers(const Group& group, ValueRef rows) {
  int output = 3;
  for (const Table& table : group.tables)
    for (const NodeId gather : table.gathers) {
      const std::string name = graph_.node(gather).name + "/rows";
      put_in_place_of(graph_, gather,
                      add_node(graph_, "braid.Unbucket", name, {rows, {group.keys, output++}}, {}, gather));
    }
}

/// The gradients of the ids of all lists, one behind the other, summed for each key.
ValueRef OrderedRows::sums_of(const Group& group) {
  std::vector<ValueRef> parts;
  for (const Table& table : group.tables)
    parts.push_back(reshaped(graph_, table.gradient.slices->values, {-1, group.dim},
                             "ps/gradient/" + table.gradient.variable.name));
  ValueRef values = parts[0];
  if (const auto count = std::ssize(parts); count > 1) {
    const NodeId beside = parts[0].node;
    parts.push_back(add_node(graph_, "Const", "ps/axis", {},
                             {{"dtype", DType::Int32}, {"value", Tensor::scalar<std::int32_t>(0)}}));
    values = add_node(graph_, "ConcatV2", "ps/gradients" + std::to_string(group.dim), std::move(parts),
                      {{"N", static_cast<std::int64_t>(count)}, {"T", DType::Float32}}, beside);
  }
  return add_node(graph_, "braid.SumBuckets", "ps/sums" + std::to_string(group.dim),
                  {values, {group.keys, 2}, {group.keys, 0}}, {{"fill", options_.fill}}, values.node);
}

/// What is not known of a shape is the batch.
std::int64_t OrderedRows::bytes_of(const Group& group, std::int64_t examples) const {
  std::int64_t ids = 0;
  const Node& keys = graph_.node(group.keys);
  for (const ValueRef& input : keys.inputs) {
    const Shape& shape = graph_.info(input).shape;
    std::int64_t its = shape.has_rank() ? 1 : examples;
    for (int d = 0; shape.has_rank() && d < shape.rank(); ++d) its *= shape[d] < 0 ? examples : shape[d];
    ids += its;
  }
  return ids * group.dim * static_cast<std::int64_t>(sizeof(float));
}

std::vector<std::vector<int>> OrderedRows::pushes(std::int64_t bytes, std::int64_t examples) const {
  std::vector<std::vector<int>> pushes;
  std::int64_t filled = 0;
  for (int g = 0; g < groups(); ++g) {
    const std::int64_t its = bytes_of(groups_[static_cast<std::size_t>(g)], examples);
    if (pushes.empty() || filled + its > bytes) {
      pushes.emplace_back();
      filled = 0;
    }
    pushes.back().push_back(g);
    filled += its;
  }
  return pushes;
}

void OrderedRows::push(const std::vector<int>& its, std::int64_t sequence, std::int64_t examples,
                       ValueRef vote, const std::vector<Dense>& dense) {
  Node push;
  push.name = graph_.unique_name("ps/push_rows" + std::to_string(its.front()));
  push.op = &OpRegistry::global().require("braid.PsPushRows");
  std::vector<ValueRef> sums;
  Ints tables, group_tables, dims;
  const Ints groups(its.begin(), its.end());
  for (const int g : its) {
    const Group& group = groups_[static_cast<std::size_t>(g)];
    push.inputs.push_back({group.keys, 0});
    push.inputs.push_back({group.keys, 1});
    sums.push_back(sums_of(group));
    for (const Table& table : group.tables) tables.push_back(table.number);
    group_tables.push_back(std::ssize(group.tables));
    dims.push_back(group.dim);
  }
  push.inputs.insert(push.inputs.end(), sums.begin(), sums.end());
  Ints dense_tables;
  for (const Dense& gradient : dense) {
    push.inputs.push_back(gradient.value);
    dense_tables.push_back(gradient.table);
  }
  if (vote.valid()) push.inputs.push_back(vote);
  push.attrs = {{"tables", tables},      {"group_tables", group_tables}, {"dims", dims},
                {"votes", vote.valid()}, {"examples", examples},         {"sequence", sequence},
                {"groups", groups},      {"cached", options_.cached},    {"dense_tables", dense_tables}};
  training_.targets.push_back(push.name);
  graph_.add(std::move(push));
}

}  // namespace braid::worker
