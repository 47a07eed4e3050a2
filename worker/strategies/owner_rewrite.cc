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
  std::vector<ValueRef> values;
  std::vector<std::int64_t> owners;
  const auto send = [&](ValueRef value, const TableShard& table) {
    const auto first = static_cast<int>(values.size());
    for (int part = 0; part < table.parts(); ++part) {
      values.push_back(value);
      owners.push_back(table.owner_of(part));
    }
    return first;
  };
  struct Places {
    std::vector<int> gathers;
    int named, weights;
  };
  std::vector<Places> places;
  for (const Entry& entry : entries_) {
    Places its{{}, 0, -1};
    for (const NodeId gather : entry.gathers)
      its.gathers.push_back(send(graph_.node(gather).inputs[1], *entry.table));
    const ValueRef indices = entry.gradient.slices->indices;
    // A bag's gradient has the ids of the bag. Of a ragged one that is gathered some may be none.
    const bool same = entry.is_bag || (entry.gathers.size() == 1 && !pads_indices(graph_, entry.gradient) &&
                                       in_order_of(graph_, indices, entry.gathers));
    its.named = same ? its.gathers.front() : send(indices, *entry.table);
    if (entry.is_bag && is_weighted(graph_.node(entry.gathers[0])))
      its.weights = send(graph_.node(entry.gathers[0]).inputs[2], *entry.table);
    places.push_back(std::move(its));
  }
  const NodeId id = exchange("braid.ToOwners", "to_owners/ids", std::move(values), std::move(owners));
  for (std::size_t e = 0; e < entries_.size(); ++e) {
    Entry& entry = entries_[e];
    for (const int first : places[e].gathers) entry.wanted.push_back({id, first});
    if (places[e].weights >= 0) entry.weights = {id, places[e].weights};
    entry.named = reshaped(graph_, {id, places[e].named + entry.table->own_part()}, {-1},
                           "gradient_rows/" + entry.table->name);
    if (pads_indices(graph_, entry.gradient))
      graph_.mutable_node(entry.named.node).attrs.set(kPadsIndices, true);
  }
}

/// A gather's copy at the owner of a part reads the ids of all ranks.
ValueRef OwnerRewrite::add_gather(const Entry& entry, std::size_t gather, int part) {
  const auto of_part = [part](ValueRef first) { return ValueRef{first.node, first.output + part}; };
  Node copy = graph_.node(entry.gathers[gather]);
  copy.inputs[1] = of_part(entry.wanted[gather]);
  if (entry.weights.valid()) copy.inputs[2] = of_part(entry.weights);
  copy.name = graph_.unique_name(copy.name + "/at_owner");
  copy.control_inputs.clear();
  copy.colocate_with = kNoNode;
  return {graph_.add(std::move(copy)), 0};
}

void OwnerRewrite::exchange_rows() {
  std::vector<ValueRef> rows, likes;
  std::vector<std::int64_t> owners, axes;
  for (const Entry& entry : entries_)
    for (std::size_t g = 0; g < entry.gathers.size(); ++g)
      for (int part = 0; part < entry.table->parts(); ++part) {
        rows.push_back(add_gather(entry, g, part));
        likes.push_back(graph_.node(entry.gathers[g]).inputs[1]);
        owners.push_back(entry.table->owner_of(part));
        axes.push_back(entry.is_bag ? 1 : -1);
      }
  std::vector<ValueRef> inputs = rows;
  inputs.insert(inputs.end(), likes.begin(), likes.end());
  const NodeId id = exchange("braid.FromOwners", "from_owners/rows", std::move(inputs), std::move(owners));
  graph_.mutable_node(id).attrs.set(kLikeAxes, axes);
  int output = 0;
  for (const Entry& entry : entries_)
    for (const NodeId gather : entry.gathers) {
      put_in_place_of(graph_, gather, joined(entry, {id, output}));
      output += entry.table->parts();
    }
}

/// The columns of all owners beside each other.
ValueRef OwnerRewrite::joined(const Entry& entry, ValueRef first) {
  const int parts = entry.table->parts();
  if (parts == 1) return first;
  std::vector<ValueRef> inputs;
  for (int part = 0; part < parts; ++part) inputs.push_back({first.node, first.output + part});
  inputs.push_back(last_axis());
  return add_node(graph_, "ConcatV2", "columns_of/" + entry.table->name, std::move(inputs),
                  {{"N", static_cast<std::int64_t>(parts)}});
}

/// Each owner's columns of gradients, one behind another.
void OwnerRewrite::take_apart(const Entry& entry, ValueRef gradients, std::vector<ValueRef>& parts) {
  const int count = entry.table->parts();
  if (count == 1) return parts.push_back(gradients);
  const ValueRef split =
      add_node(graph_, "Split", "gradient_columns_of/" + entry.table->name, {last_axis(), gradients},
               {{"num_split", static_cast<std::int64_t>(count)}});
  for (int part = 0; part < count; ++part) parts.push_back({split.node, part});
}

ValueRef OwnerRewrite::last_axis() {
  if (!last_axis_.valid())
    last_axis_ = add_node(graph_, "Const", "last_axis", {},
                          {{"value", Tensor::scalar<std::int32_t>(-1)}, {"dtype", DType::Int32}});
  return last_axis_;
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
  if (entry.weights.valid())
    inputs.push_back({entry.weights.node, entry.weights.output + entry.table->own_part()});
  const AttrMap attrs = at_source.attrs;
  return add_node(graph_, "braid.BagRows", "gradient_rows_of/" + entry.table->name, std::move(inputs), attrs);
}

std::vector<VariableGradient> OwnerRewrite::exchange_gradients() {
  std::vector<VariableGradient> gradients;
  if (entries_.empty()) return gradients;
  std::vector<ValueRef> values;
  std::vector<std::int64_t> owners;
  for (const Entry& entry : entries_) {
    take_apart(entry, entry.is_bag ? sum_gradients(entry) : entry.gradient.slices->values, values);
    for (int part = 0; part < entry.table->parts(); ++part) owners.push_back(entry.table->owner_of(part));
  }
  const NodeId id = exchange("braid.ToOwners", "to_owners/gradients", std::move(values), std::move(owners));
  int first = 0;
  for (const Entry& entry : entries_) {
    VariableGradient gradient = entry.gradient;
    gradient.variable.shape = entry.table->local_shape();
    ValueRef rows{id, first + entry.table->own_part()};
    if (entry.is_bag) rows = rows_of_sums(entry, rows);
    gradient.slices = IndexedSlices{entry.named, rows};
    gradients.push_back(std::move(gradient));
    first += entry.table->parts();
  }
  return gradients;
}

}  // namespace braid::worker
