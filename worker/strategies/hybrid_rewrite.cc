#include "worker/strategies/hybrid_rewrite.h"

#include <algorithm>
#include <optional>

#include "base/error.h"
#include "engine/ir/op.h"
#include "engine/ops/common/index_groups.h"
#include "worker/strategies/expand_bags.h"
#include "worker/strategies/table_gathers.h"

namespace braid::worker {
namespace {

const char* split_of(const TableShard& table) {
  switch (table.buckets().split) {
    case RowSplit::Hashed:
      return kHashed;
    case RowSplit::Owned:
      return kOwned;
    case RowSplit::All:
      break;
  }
  return kAll;
}

const char* blocks_of(const TableShard& table) {
  return table.plan == TablePlan::Column ? "columns" : table.sharded() ? "own" : "copies";
}

}  // namespace

bool is_read_by_gathers_only(const Graph& graph, const VariableInfo& table) {
  for (NodeId id = 0; id < graph.size(); ++id) {
    const Node& node = graph.node(id);
    if (node.removed) continue;
    if (node.op->role == OpRole::Variable) {
      if (id != table.handle && variable_of(graph, {id, 0}).name == table.name) return false;
      continue;
    }
    for (std::size_t i = 0; i < node.inputs.size(); ++i)
      if (node.inputs[i] == ValueRef{table.handle, 0} &&
          !(i == 0 && (is_gather_of(node, table.handle) || is_bag_of(node, table.handle))))
        return false;
  }
  return true;
}

NodeId HybridRewrite::add_buckets(const Entry& entry, const std::string& name, std::vector<ValueRef> ids,
                                  bool padded) {
  const TableShard& table = *entry.table;
  std::int64_t most = 0;
  if (const auto rows = training_.slice_rows.find(table.name); rows != training_.slice_rows.end())
    most = *std::ranges::max_element(rows->second.indices);
  return add_node(graph_, "braid.BucketIds", name + table.name, std::move(ids),
                  {{"rows", table.rows},
                   {"ranks", static_cast<std::int64_t>(table.world)},
                   {"split", split_of(table)},
                   {"owner", static_cast<std::int64_t>(table.buckets().owner)},
                   {"most", most},
                   {kSkipNegative, padded}})
      .node;
}

void HybridRewrite::bucket(Entry& entry) {
  const ValueRef indices = entry.gradient.slices->indices;
  const auto ordered = in_order_of(graph_, indices, entry.gathers);
  if (ordered) entry.gathers = *ordered;
  std::vector<ValueRef> ids;
  bool padded = pads_indices(graph_, entry.gradient);
  for (const NodeId id : entry.gathers) {
    ids.push_back(known_ids_of(graph_, id));
    padded = padded || ids.back() != graph_.node(id).inputs[1];
  }
  if (entry.table->sharded()) {
    if (!ordered && !training_.slice_rows.empty())
      throw InvalidArgument(
          "table '" + entry.table->name +
          "': its gradient is not of the ids that were read, so workers must have parts of one "
          "size: input.global_batch_size must be a multiple of their number");
    entry.buckets = add_buckets(entry, "bucket_ids/", ids, padded);
  }
  if (!ordered || !padded) ids = {indices};
  entry.gradient_buckets = ordered && entry.table->sharded()
                               ? entry.buckets
                               : add_buckets(entry, "bucket_gradients/", std::move(ids), padded);
}

void HybridRewrite::look_up(const std::vector<const TableShard*>& tables,
                            const std::vector<VariableGradient>& gradients, const FindOwnRows& find_own) {
  for (std::size_t t = 0; t < tables.size(); ++t) {
    entries_.push_back({tables[t], gradients[t], gathers_of(graph_, gradients[t].variable.handle)});
    bucket(entries_.back());
  }
  if (find_own)
    find_own_rows(find_own);
  else
    exchange_ids();
  exchange_rows();
}

void HybridRewrite::find_own_rows(const FindOwnRows& find_own) {
  std::vector<ValueRef> lists;
  for (const Entry& entry : entries_) {
    if (entry.buckets == kNoNode || entry.buckets != entry.gradient_buckets)
      throw Internal("table '" + entry.table->name + "': the ids of its gradient are not those of its rows");
    lists.push_back({entry.buckets, 0});
  }
  std::vector<OwnRows> found = find_own(lists);
  for (std::size_t e = 0; e < entries_.size(); ++e) {
    Entry& entry = entries_[e];
    entry.wanted = entry.gradient_wanted = found[e].rows;
    entry.received = entry.gradient_received = found[e].received;
    entry.own = std::move(found[e].variable);
  }
}

/// One exchange of all lists.
void HybridRewrite::exchange_ids() {
  Node node;
  node.name = graph_.unique_name("all_to_all/ids");
  std::map<NodeId, int> parts;
  const auto add = [&](NodeId buckets) {
    if (buckets == kNoNode || !parts.try_emplace(buckets, static_cast<int>(parts.size())).second) return;
    node.inputs.push_back({buckets, 0});
  };
  for (const Entry& entry : entries_) {
    add(entry.buckets);
    add(entry.gradient_buckets);
  }
  if (parts.empty()) return;
  node.attrs.set("parts", static_cast<std::int64_t>(parts.size()));
  const NodeId id = add_collective_(std::move(node), "braid.AllToAll");
  for (Entry& entry : entries_) {
    if (entry.buckets != kNoNode) entry.wanted = entry.received = {id, parts.at(entry.buckets)};
    entry.gradient_wanted = entry.gradient_received = {id, parts.at(entry.gradient_buckets)};
  }
}

void HybridRewrite::exchange_rows() {
  std::vector<ValueRef> rows, sent, received;
  std::vector<std::size_t> sharded;
  for (std::size_t e = 0; e < entries_.size(); ++e) {
    const Entry& entry = entries_[e];
    if (!entry.table->sharded()) continue;
    const NodeId handle = entry.own ? entry.own->handle : entry.gradient.variable.handle;
    if (!entry.own) set_variable_shape(graph_, handle, entry.table->local_shape());
    rows.push_back(add_node(graph_, "braid.ResourceGatherOrZero", "rows/" + entry.table->name,
                            {{handle, 0}, entry.wanted}, {{"dtype", DType::Float32}},
                            entry.gathers.empty() ? kNoNode : entry.gathers.front()));
    sent.push_back(entry.received);
    received.push_back({entry.buckets, 0});
    sharded.push_back(e);
  }
  if (rows.empty()) return;
  const NodeId id = exchange("all_to_all/rows", std::move(rows), sent, received);
  for (std::size_t s = 0; s < sharded.size(); ++s) {
    const Entry& entry = entries_[sharded[s]];
    for (std::size_t g = 0; g < entry.gathers.size(); ++g)
      replace_gather(entry, g, {id, static_cast<int>(s)});
  }
}

NodeId HybridRewrite::exchange(const char* name, std::vector<ValueRef> values,
                               const std::vector<ValueRef>& sent, const std::vector<ValueRef>& received) {
  Node node;
  node.name = graph_.unique_name(name);
  node.attrs = {{"parts", static_cast<std::int64_t>(values.size())}, {"fill", fill_}};
  node.inputs = std::move(values);
  const auto counts = [](const std::vector<ValueRef>& lists) {
    return std::ranges::all_of(lists, [](const ValueRef& list) { return list.valid(); });
  };
  if (counts(sent) && counts(received))
    for (const auto* lists : {&sent, &received})
      node.inputs.insert(node.inputs.end(), lists->begin(), lists->end());
  return add_collective_(std::move(node), "braid.AllToAll");
}

void HybridRewrite::replace_gather(const Entry& entry, std::size_t gather, ValueRef rows) {
  const NodeId old = entry.gathers[gather];
  Node node;
  node.op = &OpRegistry::global().require("braid.Unbucket");
  node.name = graph_.unique_name(graph_.node(old).name + "/unbucket");
  node.attrs = {{"blocks", blocks_of(*entry.table)}};
  node.inputs = {rows, {entry.buckets, 2 + static_cast<int>(gather)}};
  const Node& before = graph_.node(old);
  node.control_inputs = before.control_inputs;
  node.stream = before.stream;
  node.colocate_with = before.colocate_with;
  node.include_grad = before.include_grad;
  node.device = before.device;
  put_in_place_of(graph_, old, {graph_.add(std::move(node)), 0});
}

std::vector<VariableGradient> HybridRewrite::exchange_gradients() {
  std::vector<ValueRef> sums, sent, received;
  for (const Entry& entry : entries_) {
    const ValueRef values = entry.gradient.slices->values;
    sums.push_back(add_node(graph_, "braid.SumBuckets", "sum_gradients/" + entry.table->name,
                            {values, {entry.gradient_buckets, 1}, {entry.gradient_buckets, 0}},
                            {{"blocks", blocks_of(*entry.table)}, {"fill", fill_}}, values.node));
    sent.push_back({entry.gradient_buckets, 0});
    received.push_back(entry.gradient_received);
  }
  std::vector<VariableGradient> gradients;
  if (sums.empty()) return gradients;
  const NodeId id = exchange("all_to_all/gradients", std::move(sums), sent, received);
  for (std::size_t e = 0; e < entries_.size(); ++e) {
    const TableShard& table = *entries_[e].table;
    VariableGradient gradient = entries_[e].gradient;
    if (entries_[e].own)
      gradient.variable = *entries_[e].own;
    else if (table.sharded())
      gradient.variable.shape = table.local_shape();
    const Shape& shape = gradient.variable.shape;
    std::vector<std::int64_t> rows(shape.dims().begin(), shape.dims().end());
    rows.front() = -1;
    gradient.slices =
        IndexedSlices{reshaped(graph_, entries_[e].gradient_wanted, {-1}, "gradient_rows/" + table.name),
                      reshaped(graph_, {id, static_cast<int>(e)}, rows, "gradients/" + table.name)};
    gradients.push_back(std::move(gradient));
  }
  return gradients;
}

}  // namespace braid::worker
