#include "worker/strategies/owner_rewrite.h"

#include "worker/strategies/owner_ops.h"
#include "worker/strategies/table_gathers.h"

namespace braid::worker {

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
    entries_.push_back({tables[t], gradients[t], gathers_of(graph_, handle)});
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
  std::vector<int> named;
  for (const Entry& entry : entries_) {
    const ValueRef indices = entry.gradient.slices->indices;
    const std::size_t first = ids.size();
    for (const NodeId gather : entry.gathers) send(graph_.node(gather).inputs[1], *entry.table);
    const bool same = entry.gathers.size() == 1 && in_order_of(graph_, indices, entry.gathers);
    named.push_back(same ? static_cast<int>(first) : send(indices, *entry.table));
  }
  const NodeId id = exchange("braid.ToOwners", "to_owners/ids", std::move(ids), std::move(owners));
  int output = 0;
  for (std::size_t e = 0; e < entries_.size(); ++e) {
    Entry& entry = entries_[e];
    for (std::size_t g = 0; g < entry.gathers.size(); ++g) wanted_.push_back({id, output++});
    if (named[e] == output) ++output;  // the gradient's own
    entry.named = reshaped(graph_, {id, named[e]}, {-1}, "gradient_rows/" + entry.table->name);
  }
}

/// Each gather's copy at the owner reads the ids of all ranks.
void OwnerRewrite::exchange_rows() {
  std::vector<ValueRef> rows, likes;
  std::vector<std::int64_t> owners;
  std::vector<NodeId> gathers;
  for (const Entry& entry : entries_)
    for (const NodeId old : entry.gathers) {
      Node gather = graph_.node(old);
      likes.push_back(gather.inputs[1]);
      gather.inputs[1] = wanted_[rows.size()];
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
  for (std::size_t g = 0; g < gathers.size(); ++g)
    put_in_place_of(graph_, gathers[g], {id, static_cast<int>(g)});
  int output = 0;
  for (const Entry& entry : entries_) {
    Rows& its = rows_.emplace_back(Rows{graph_.node(id).name, {}});
    for (std::size_t g = 0; g < entry.gathers.size(); ++g) its.outputs.push_back(output++);
  }
}

std::vector<VariableGradient> OwnerRewrite::exchange_gradients() {
  std::vector<VariableGradient> gradients;
  if (entries_.empty()) return gradients;
  std::vector<ValueRef> values;
  std::vector<std::int64_t> owners;
  for (const Entry& entry : entries_) {
    values.push_back(entry.gradient.slices->values);
    owners.push_back(entry.table->owner);
  }
  const NodeId id = exchange("braid.ToOwners", "to_owners/gradients", std::move(values), std::move(owners));
  for (std::size_t e = 0; e < entries_.size(); ++e) {
    VariableGradient gradient = entries_[e].gradient;
    gradient.variable.shape = entries_[e].table->local_shape();
    gradient.slices = IndexedSlices{entries_[e].named, {id, static_cast<int>(e)}};
    gradients.push_back(std::move(gradient));
  }
  return gradients;
}

}  // namespace braid::worker
