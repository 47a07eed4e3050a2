#include "worker/strategies/distinct_rewrite.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "engine/ops/common/index_groups.h"
#include "engine/ops/common/row_entries.h"
#include "worker/strategies/owner_ops.h"
#include "worker/strategies/table_gathers.h"

namespace braid::worker {
namespace {

constexpr double kMostExchanges = 4;  // of the exchange of gradients: each costs a meeting of all ranks

}  // namespace

bool DistinctRewrite::is_possible(const Graph& graph, const TableShard& shard,
                                  const VariableGradient& gradient) {
  if (shard.plan != TablePlan::Table || shard.parts() != 1 || shard.world < 2) return false;
  const NodeId handle = gradient.variable.handle;
  const std::vector<NodeId> lookups = lookups_of(graph, handle);
  if (lookups.size() != 1 || !is_gather_of(graph.node(lookups[0]), handle)) return false;
  return !pads_indices(graph, gradient) && in_order_of(graph, gradient.slices->indices, lookups).has_value();
}

/// Tables that are read by the same ids, and have as many rows, share a list.
void DistinctRewrite::list_ids(const std::vector<Table>& tables) {
  std::map<std::pair<ValueRef, std::int64_t>, std::size_t> known;
  for (const Table& table : tables) {
    const NodeId gather = gathers_of(graph_, table.gradient.variable.handle).front();
    const ValueRef ids = graph_.node(gather).inputs[1];
    const auto [at, is_new] = known.try_emplace({ids, table.shard->rows}, ids_.size());
    if (is_new) {
      ids_.push_back(ids);
      rows_.push_back(table.shard->rows);
    }
    entries_.push_back({table.shard, table.gradient, gather, table.gradient_bytes, at->second});
  }
  std::vector<std::size_t> sorted(entries_.size());
  std::iota(sorted.begin(), sorted.end(), 0U);
  std::ranges::stable_sort(
      sorted, {}, [&](std::size_t e) { return std::pair(entries_[e].table->dim, entries_[e].list); });
  std::vector<Entry> ordered;
  order_.resize(entries_.size());
  for (const std::size_t e : sorted) {
    order_[e] = ordered.size();
    ordered.push_back(std::move(entries_[e]));
  }
  entries_ = std::move(ordered);
}

/// Of this step, from the one before.
bool DistinctRewrite::find_lists() {
  const auto count = static_cast<int>(ids_.size());
  const NodeId distinct =
      add_node(graph_, "braid.DistinctRows", "distinct_rows", ids_, {{"rows", rows_}}).node;
  std::vector<ValueRef> values;
  std::vector<std::int64_t> owners;
  for (const Entry& entry : entries_) {
    values.push_back({distinct, static_cast<int>(entry.list)});
    owners.push_back(entry.table->owner);
  }
  for (int output = 0; output <= 2 * count; ++output) values.push_back({distinct, output});
  owners.resize(values.size(), IdsAhead::kStays);
  const TableShard& table = *entries_.front().table;
  ahead_.emplace(training_, table.rank, table.world, values, owners);
  if (!ahead_->possible()) {
    ahead_.reset();
    graph_.remove(distinct);
    return false;
  }
  const std::vector<ValueRef>& received = ahead_->received();
  for (std::size_t e = 0; e < entries_.size(); ++e) entries_[e].wanted = received[e];
  const auto own = received.begin() + std::ssize(entries_);
  lists_.assign(own, own + count);
  places_.assign(own + count, own + 2 * count);
  runs_ = received.back();
  for (std::size_t l = 0; l < ids_.size(); ++l) sizes_.push_back(ahead_->shape(entries_.size() + l)[0]);
  return true;
}

NodeId DistinctRewrite::exchange(const char* op, const char* name, std::span<const Entry> entries,
                                 std::vector<ValueRef> inputs) {
  std::vector<std::int64_t> owners;
  for (const Entry& entry : entries) owners.push_back(entry.table->owner);
  Node node;
  node.name = graph_.unique_name(name);
  node.attrs = {{kOwners, owners}, {"rank", static_cast<std::int64_t>(entries.front().table->rank)}};
  if (fill_) node.attrs.set("fill", true);
  node.inputs = std::move(inputs);
  return add_collective_(std::move(node), op);
}

bool DistinctRewrite::look_up(const std::vector<Table>& tables) {
  if (tables.empty()) return true;
  list_ids(tables);
  if (!find_lists()) {
    entries_.clear();
    return false;
  }
  std::vector<ValueRef> inputs;
  for (const Entry& entry : entries_) {
    set_variable_shape(graph_, entry.gradient.variable.handle, entry.table->local_shape());
    inputs.push_back({entry.gradient.variable.handle, 0});
  }
  for (const Entry& entry : entries_) inputs.push_back(entry.wanted);
  for (const Entry& entry : entries_) inputs.push_back(places_[entry.list]);
  const NodeId id =
      exchange("braid.RowsFromOwners", "from_owners/distinct_rows", entries_, std::move(inputs));
  for (std::size_t e = 0; e < entries_.size(); ++e)
    put_in_place_of(graph_, entries_[e].gather, {id, static_cast<int>(e)});
  return true;
}

void DistinctRewrite::exchange_next_ids() {
  if (ahead_) ahead_->exchange(add_collective_);
}

NodeId DistinctRewrite::exchange_sums(std::span<const Entry> entries) {
  std::vector<ValueRef> inputs;
  std::vector<std::int64_t> lists;
  for (const Entry& entry : entries) {
    inputs.push_back(entry.gradient.slices->values);
    lists.push_back(static_cast<std::int64_t>(entry.list));
  }
  inputs.push_back(runs_);
  const NodeId sums = add_node(graph_, "braid.SumRuns", "sum_gradients/distinct_rows", std::move(inputs),
                               {{kRunSizes, sizes_}, {kRunLists, lists}, {"fill", fill_}},
                               entries.front().gradient.slices->values.node)
                          .node;
  inputs.clear();
  for (int e = 0; e < static_cast<int>(entries.size()); ++e) inputs.push_back({sums, e});
  for (const Entry& entry : entries) inputs.push_back(lists_[entry.list]);
  for (const Entry& entry : entries) inputs.push_back(entry.wanted);
  return exchange("braid.SumsToOwners", "to_owners/sums", entries, std::move(inputs));
}

std::vector<VariableGradient> DistinctRewrite::exchange_gradients(std::int64_t bytes) {
  if (entries_.empty()) return {};
  double all = 0, before = 0;
  for (const Entry& entry : entries_) all += entry.gradient_bytes;
  const double count = std::floor(
      std::clamp(all / entries_.front().table->world / static_cast<double>(std::max<std::int64_t>(bytes, 1)),
                 1.0, kMostExchanges));
  std::vector<ValueRef> received;  // of each entry
  for (std::size_t first = 0; first < entries_.size();) {
    const auto piece = [&](const Entry& entry) {
      return std::floor((before + entry.gradient_bytes / 2) / std::max(all, 1.0) * count);
    };
    const double own = piece(entries_[first]);
    std::size_t end = first;
    for (; end < entries_.size() && piece(entries_[end]) == own; ++end)
      before += entries_[end].gradient_bytes;
    const NodeId id = exchange_sums(std::span(entries_).subspan(first, end - first));
    for (int output = 0; first < end; ++first) received.push_back({id, output++});
  }
  std::vector<VariableGradient> gradients;
  for (const std::size_t e : order_) {
    const Entry& entry = entries_[e];
    const ValueRef named = reshaped(graph_, entry.wanted, {-1}, "gradient_rows/" + entry.table->name);
    graph_.mutable_node(named.node).attrs.set(kPadsIndices, true);
    VariableGradient gradient = entry.gradient;
    gradient.variable.shape = entry.table->local_shape();
    gradient.slices = IndexedSlices{named, received[e]};
    gradients.push_back(std::move(gradient));
  }
  return gradients;
}

}  // namespace braid::worker
