#include "worker/strategies/owner_rewrite.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "base/error.h"
#include "engine/ops/common/gather_turns.h"
#include "engine/ops/common/index_groups.h"
#include "engine/ops/sparse/bag_args.h"
#include "worker/strategies/expand_bags.h"
#include "worker/strategies/owner_ops.h"
#include "worker/strategies/table_gathers.h"

namespace braid::worker {
namespace {

constexpr double kMostPieces = 4;  // of an exchange: each costs a meeting of all ranks

bool is_weighted(const Node& bag) { return bag.attrs.get(kBagWeights, false); }

}  // namespace

NodeId OwnerRewrite::exchange(const char* op, const char* name, std::vector<ValueRef> inputs,
                              std::vector<std::int64_t> owners, AttrMap attrs) {
  Node node;
  node.name = graph_.unique_name(name);
  node.attrs = std::move(attrs);
  node.attrs.set(kOwners, std::move(owners));
  node.attrs.set("rank", static_cast<std::int64_t>(entries_.front().table->rank));
  node.inputs = std::move(inputs);
  return add_collective_(std::move(node), op);
}

void OwnerRewrite::look_up(const std::vector<Table>& tables, std::int64_t bytes) {
  for (const Table& table : tables) {
    const NodeId handle = table.gradient.variable.handle;
    entries_.push_back(
        {table.shard, table.gradient, table.gradient_bytes, table.ids, lookups_of(graph_, handle)});
    Entry& entry = entries_.back();
    entry.is_bag = entry.gathers.size() == 1 && is_bag_of(graph_.node(entry.gathers[0]), handle);
    set_variable_shape(graph_, handle, table.shard->local_shape());
  }
  if (entries_.empty()) return;
  exchange_ids();
  const auto all = pieces(by_ids(), bytes);
  for (std::size_t piece = 0; piece < all.size(); ++piece)
    exchange_rows(all[piece], static_cast<std::int64_t>(piece));
}

std::vector<std::size_t> OwnerRewrite::by_ids() const {
  std::vector<std::size_t> order(entries_.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, {}, [this](std::size_t e) { return entries_[e].ids; });
  return order;
}

/// Those of each gather, and those of the gradient's rows where they are others.
void OwnerRewrite::exchange_ids() {
  std::vector<ValueRef> values;
  std::vector<std::int64_t> owners;
  const auto send = [&](ValueRef value, const TableShard& table) {
    const std::size_t first = values.size();
    for (int part = 0; part < table.parts(); ++part) {
      values.push_back(value);
      owners.push_back(table.owner_of(part));
    }
    return first;
  };
  std::vector<std::size_t> named;
  for (Entry& entry : entries_) {
    for (const NodeId gather : entry.gathers)
      entry.wanted.push_back(send(graph_.node(gather).inputs[1], *entry.table));
    const ValueRef indices = entry.gradient.slices->indices;
    // A bag's gradient has the ids of the bag. Of a ragged one that is gathered some may be none.
    const bool same = entry.is_bag || (entry.gathers.size() == 1 && !pads_indices(graph_, entry.gradient) &&
                                       in_order_of(graph_, indices, entry.gathers));
    named.push_back(same ? entry.wanted.front() : send(indices, *entry.table));
    if (entry.is_bag && is_weighted(graph_.node(entry.gathers[0])))
      entry.weights = send(graph_.node(entry.gathers[0]).inputs[2], *entry.table);
  }
  received_ = received_ids(std::move(values), std::move(owners));
  for (std::size_t e = 0; e < entries_.size(); ++e) {
    Entry& entry = entries_[e];
    const auto own = static_cast<std::size_t>(entry.table->own_part());
    entry.named = reshaped(graph_, received_[named[e] + own], {-1}, "gradient_rows/" + entry.table->name);
    if (pads_indices(graph_, entry.gradient))
      graph_.mutable_node(entry.named.node).attrs.set(kPadsIndices, true);
  }
}

/// What this rank has of them as an owner.
std::vector<ValueRef> OwnerRewrite::received_ids(std::vector<ValueRef> values,
                                                 std::vector<std::int64_t> owners) {
  const TableShard& table = *entries_.front().table;
  if (wants_ahead_ && table.world > 1) {
    ahead_.emplace(training_, table.rank, table.world, values, owners);
    if (ahead_->possible()) return ahead_->received();
    ahead_.reset();
  }
  const auto count = static_cast<int>(values.size());
  const NodeId id = exchange("braid.ToOwners", "to_owners/ids", std::move(values), std::move(owners));
  std::vector<ValueRef> received;
  for (int output = 0; output < count; ++output) received.push_back({id, output});
  return received;
}

void OwnerRewrite::exchange_next_ids() {
  if (ahead_) ahead_->exchange(add_collective_);
}

/// A gather's copy at the owner of a part reads the ids of all ranks.
ValueRef OwnerRewrite::add_gather(const Entry& entry, std::size_t gather, int part) {
  const auto of_part = [&](std::size_t first) { return received_[first + static_cast<std::size_t>(part)]; };
  Node copy = graph_.node(entry.gathers[gather]);
  copy.inputs[1] = of_part(entry.wanted[gather]);
  if (entry.weights) copy.inputs[2] = of_part(*entry.weights);
  copy.name = graph_.unique_name(copy.name + "/at_owner");
  copy.control_inputs.clear();
  copy.colocate_with = kNoNode;
  return {graph_.add(std::move(copy)), 0};
}

void OwnerRewrite::exchange_rows(const std::vector<std::size_t>& entries, std::int64_t piece) {
  std::vector<ValueRef> rows, likes;
  std::vector<std::int64_t> owners, axes, dims;
  for (const std::size_t e : entries) {
    const Entry& entry = entries_[e];
    for (std::size_t g = 0; g < entry.gathers.size(); ++g)
      for (int part = 0; part < entry.table->parts(); ++part) {
        rows.push_back(add_gather(entry, g, part));
        if (piece > 0) graph_.mutable_node(rows.back().node).attrs.set(kGatherTurn, piece);
        owners.push_back(entry.table->owner_of(part));
        axes.push_back(entry.is_bag ? 1 : -1);
        if (!ahead_) {
          likes.push_back(graph_.node(entry.gathers[g]).inputs[1]);
          continue;
        }
        const Shape& like = ahead_->shape(entry.wanted[g]);
        dims.push_back(like.rank());
        dims.insert(dims.end(), like.dims().begin(), like.dims().end());
      }
  }
  std::vector<ValueRef> inputs = rows;
  inputs.insert(inputs.end(), likes.begin(), likes.end());
  AttrMap attrs{{kLikeAxes, axes}};
  if (ahead_) attrs.set(kLikeDims, dims);
  const NodeId id = exchange("braid.FromOwners", "from_owners/rows", std::move(inputs), std::move(owners),
                             std::move(attrs));
  int output = 0;
  for (const std::size_t e : entries)
    for (const NodeId gather : entries_[e].gathers) {
      put_in_place_of(graph_, gather, joined(entries_[e], {id, output}));
      output += entries_[e].table->parts();
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
  if (entry.weights)
    inputs.push_back(received_[*entry.weights + static_cast<std::size_t>(entry.table->own_part())]);
  const AttrMap attrs = at_source.attrs;
  return add_node(graph_, "braid.BagRows", "gradient_rows_of/" + entry.table->name, std::move(inputs), attrs);
}

std::vector<std::vector<std::size_t>> OwnerRewrite::pieces(const std::vector<std::size_t>& order,
                                                           std::int64_t bytes) const {
  std::map<int, double> all, before;  // by owner; -1: all ranks are
  const auto owner = [](const Entry& entry) { return entry.table->parts() > 1 ? -1 : entry.table->owner; };
  for (const Entry& entry : entries_) all[owner(entry)] += entry.gradient_bytes;
  const auto count = static_cast<std::size_t>(std::clamp(
      travelling_bytes() / static_cast<double>(std::max<std::int64_t>(bytes, 1)), 1.0, kMostPieces));
  std::vector<std::vector<std::size_t>> pieces(count);
  for (const std::size_t e : order) {
    const Entry& entry = entries_[e];
    double& of_owner = before[owner(entry)];
    const double share = (of_owner + entry.gradient_bytes / 2) / std::max(all[owner(entry)], 1.0);
    pieces[std::min(static_cast<std::size_t>(share * static_cast<double>(count)), count - 1)].push_back(e);
    of_owner += entry.gradient_bytes;
  }
  std::erase_if(pieces, [](const auto& piece) { return piece.empty(); });
  return pieces;
}

std::vector<VariableGradient> OwnerRewrite::gradients() const {
  std::vector<VariableGradient> gradients;
  for (const Entry& entry : entries_) gradients.push_back(entry.gradient);
  return gradients;
}

double OwnerRewrite::travelling_bytes() const {
  double bytes = 0;
  for (const Entry& entry : entries_) bytes += entry.gradient_bytes / entry.table->world;
  return bytes;
}

std::vector<VariableGradient> OwnerRewrite::exchange_gradients(std::int64_t bytes) {
  std::vector<VariableGradient> gradients(entries_.size());
  std::vector<std::size_t> order = by_ids();
  std::ranges::reverse(order);
  for (const std::vector<std::size_t>& piece : pieces(order, bytes)) exchange_piece(piece, gradients);
  return gradients;
}

void OwnerRewrite::exchange_piece(const std::vector<std::size_t>& entries,
                                  std::vector<VariableGradient>& gradients) {
  std::vector<ValueRef> values;
  std::vector<std::int64_t> owners;
  for (const std::size_t e : entries) {
    const Entry& entry = entries_[e];
    take_apart(entry, entry.is_bag ? sum_gradients(entry) : entry.gradient.slices->values, values);
    for (int part = 0; part < entry.table->parts(); ++part) owners.push_back(entry.table->owner_of(part));
  }
  const NodeId id = exchange("braid.ToOwners", "to_owners/gradients", std::move(values), std::move(owners));
  int first = 0;
  for (const std::size_t e : entries) {
    const Entry& entry = entries_[e];
    VariableGradient gradient = entry.gradient;
    gradient.variable.shape = entry.table->local_shape();
    ValueRef rows{id, first + entry.table->own_part()};
    if (entry.is_bag) rows = rows_of_sums(entry, rows);
    gradient.slices = IndexedSlices{entry.named, rows};
    gradients[e] = std::move(gradient);
    first += entry.table->parts();
  }
}

}  // namespace braid::worker
