#include "worker/strategies/owner_rewrite.h"

#include "base/error.h"
#include "engine/ops/common/index_groups.h"
#include "engine/ops/sparse/bag_args.h"
#include "worker/strategies/expand_bags.h"
#include "worker/strategies/owner_ops.h"
#include "worker/strategies/table_gathers.h"

namespace braid::worker {
namespace {

bool is_weighted(const Node& bag) { return bag.attrs.get(kBagWeights, false); }

}  // namespace

NodeId OwnerRewrite::exchange(const char* op, const char* name, std::vector<ValueRef> inputs,
                              std::vector<std::int64_t> owners) {
  Node node;
  node.name = graph_.unique_name(name);
  node.attrs = {{kOwners, std::move(owners)},
                {"rank", static_cast<std::int64_t>(entries_.front().table->rank)}};
  node.inputs = std::move(inputs);
  return add_collective_(std::move(node), op);
}

void OwnerRewrite::look_up(const std::vector<const TableShard*>& tables,
                           const std::vector<VariableGradient>& gradients) {
  for (std::size_t t = 0; t < tables.size(); ++t) {
    const NodeId handle = gradients[t].variable.handle;
    entries_.push_back({tables[t], gradients[t], lookups_of(graph_, handle)});
    Entry& entry = entries_.back();
    entry.is_bag = entry.gathers.size() == 1 && is_bag_of(graph_.node(entry.gathers[0]), handle);
    set_variable_shape(graph_, handle, tables[t]->local_shape());
  }
  if (entries_.empty()) return;
  exchange_ids();
  exchange_rows();
}

/// Those of each gather, and those of the gradient's rows where they are others.
void OwnerRewrite::exchange_ids() {
  std::vector<ValueRef> ids;
  std::vector<std::int64_t> owners;
  const auto send = [&](ValueRef value, const TableShard& table) {
    ids.push_back(value);
    owners.push_back(table.owner);
    return static_cast<int>(ids.size()) - 1;
  };
  std::vector<int> named, weights;
  for (const Entry& entry : entries_) {
    const ValueRef indices = entry.gradient.slices->indices;
    const std::size_t first = ids.size();
    for (const NodeId gather : entry.gathers) send(graph_.node(gather).inputs[1], *entry.table);
    // A bag's gradient has the ids of the bag. Of a ragged one that is gathered some may be none.
    const bool same = entry.is_bag || (entry.gathers.size() == 1 && !pads_indices(graph_, entry.gradient) &&
                                       in_order_of(graph_, indices, entry.gathers));
    named.push_back(same ? static_cast<int>(first) : send(indices, *entry.table));
    weights.push_back(entry.is_bag && is_weighted(graph_.node(entry.gathers[0]))
                          ? send(graph_.node(entry.gathers[0]).inputs[2], *entry.table)
                          : -1);
  }
  const NodeId id = exchange("braid.ToOwners", "to_owners/ids", std::move(ids), std::move(owners));
  int output = 0;
  for (std::size_t e = 0; e < entries_.size(); ++e) {
    Entry& entry = entries_[e];
    for (std::size_t g = 0; g < entry.gathers.size(); ++g) wanted_.push_back({id, output++});
    if (named[e] == output) ++output;  // the gradient's own
    if (weights[e] == output) entry.weights = {id, output++};
    entry.named = reshaped(graph_, {id, named[e]}, {-1}, "gradient_rows/" + entry.table->name);
    if (pads_indices(graph_, entry.gradient))
      graph_.mutable_node(entry.named.node).attrs.set(kPadsIndices, true);
  }
}

/// Each gather's copy at the owner reads the ids of all ranks.
void OwnerRewrite::exchange_rows() {
  std::vector<ValueRef> rows, likes;
  std::vector<std::int64_t> owners, axes;
  std::vector<NodeId> gathers;
  for (const Entry& entry : entries_)
    for (const NodeId old : entry.gathers) {
      Node gather = graph_.node(old);
      likes.push_back(gather.inputs[1]);
      gather.inputs[1] = wanted_[rows.size()];
      if (entry.weights.valid()) gather.inputs[2] = entry.weights;
      axes.push_back(entry.is_bag ? 1 : -1);
      gather.name = graph_.unique_name(gather.name + "/at_owner");
      gather.control_inputs.clear();
      gather.colocate_with = kNoNode;
      rows.push_back({graph_.add(std::move(gather)), 0});
      owners.push_back(entry.table->owner);
      gathers.push_back(old);
    }
  std::vector<ValueRef> inputs = rows;
  inputs.insert(inputs.end(), likes.begin(), likes.end());
  const NodeId id = exchange("braid.FromOwners", "from_owners/rows", std::move(inputs), std::move(owners));
  graph_.mutable_node(id).attrs.set(kLikeAxes, axes);
  for (std::size_t g = 0; g < gathers.size(); ++g)
    put_in_place_of(graph_, gathers[g], {id, static_cast<int>(g)});
  int output = 0;
  for (const Entry& entry : entries_) {
    Rows& its = rows_.emplace_back(Rows{graph_.node(id).name, {}});
    for (std::size_t g = 0; g < entry.gathers.size(); ++g) its.outputs.push_back(output++);
  }
}

/// Of the sums that this rank has.
ValueRef OwnerRewrite::sum_gradients(const Entry& entry) const {
  const Node& rows = graph_.node(entry.gradient.slices->values.node);
  if (rows.op->name != "braid.BagRows")
    throw Internal("table '" + entry.table->name + "': the gradient of its bags is '" + rows.name + "'");
  return rows.inputs[0];
}

/// The gradients of single rows at the owner, which its update does not make (engine/rewrite/bag_updates.cc).
ValueRef OwnerRewrite::rows_of_sums(const Entry& entry, ValueRef sums) {
  const Node& at_source = graph_.node(entry.gradient.slices->values.node);
  std::vector<ValueRef> inputs{sums, graph_.node(entry.named.node).inputs[0]};
  if (entry.weights.valid()) inputs.push_back(entry.weights);
  const AttrMap attrs = at_source.attrs;
  return add_node(graph_, "braid.BagRows", "gradient_rows_of/" + entry.table->name, std::move(inputs), attrs);
}

std::vector<VariableGradient> OwnerRewrite::exchange_gradients() {
  std::vector<VariableGradient> gradients;
  if (entries_.empty()) return gradients;
  std::vector<ValueRef> values;
  std::vector<std::int64_t> owners;
  for (const Entry& entry : entries_) {
    values.push_back(entry.is_bag ? sum_gradients(entry) : entry.gradient.slices->values);
    owners.push_back(entry.table->owner);
  }
  const NodeId id = exchange("braid.ToOwners", "to_owners/gradients", std::move(values), std::move(owners));
  for (std::size_t e = 0; e < entries_.size(); ++e) {
    VariableGradient gradient = entries_[e].gradient;
    gradient.variable.shape = entries_[e].table->local_shape();
    ValueRef rows{id, static_cast<int>(e)};
    if (entries_[e].is_bag) rows = rows_of_sums(entries_[e], rows);
    gradient.slices = IndexedSlices{entries_[e].named, rows};
    gradients.push_back(std::move(gradient));
  }
  return gradients;
}

}  // namespace braid::worker
