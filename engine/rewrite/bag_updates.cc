// Sparse updates whose values are the rows of bags' ids (braid.BagRows): the update reads the gradient of the
// bags' sums itself, so that the rows of single ids are never in memory.
//
//   SparseApplyOptimizer(table, ids, BagRows(x, ids))  -> SparseApplyOptimizer(table, ids, x), hots or
//   has_bags
//
// Where a table has several columns, or is read by gathers too, values are joined rows: then x are joined,
// and each id gets the number of its row of them.
#include <algorithm>
#include <optional>

#include "engine/ops/optimizer/update_inputs.h"
#include "engine/ops/sparse/bag_args.h"
#include "engine/rewrite/passes.h"
#include "engine/rewrite/rule.h"

namespace braid {
namespace {

const Pattern& bag_rows() {
  static const Pattern pattern{"braid.BagRows"};
  return pattern;
}

/// Rows of single ids, or of bags.
struct RowsOfIds {
  ValueRef x;                // [bags, width]
  std::vector<ValueRef> of;  // ids and offsets of bags; empty: x are the rows
  ValueRef weights;          // or not valid
  std::int64_t bags = 0, ids = 0;
  std::int64_t hot() const { return bags == 0 ? 1 : ids / bags; }
  bool ragged() const { return of.size() > 1; }
};

/// What an update becomes.
struct BagUpdate {
  std::vector<RowsOfIds> parts;
};

std::int64_t rows_of(const Rewrite& r, ValueRef value) {
  const Shape& shape = r.graph.info(value).shape;
  return shape.has_rank() && shape.is_static() && shape.rank() > 0 ? shape[0] : -1;
}

std::optional<RowsOfIds> rows_of_ids(const Rewrite& r, ValueRef values) {
  RowsOfIds rows;
  rows.ids = rows_of(r, values);
  if (rows.ids < 0) return std::nullopt;
  const Node& node = r.node(values.node);
  if (!bag_rows().names(node) || !is_plain(r.plan, node)) {
    rows.x = values;
    rows.bags = rows.ids;
    return rows;
  }
  const BagInputs in = bag_inputs(node.attrs, false);
  const auto input = [&](int i) { return node.inputs[static_cast<std::size_t>(i)]; };
  rows.x = input(0);
  rows.bags = rows_of(r, rows.x);
  rows.of.push_back(input(in.ids(0, 1)));
  if (in.ragged) rows.of.push_back(input(in.offsets(0, 1)));
  if (in.weighted) rows.weights = input(in.weights(0, 1));
  if (rows.bags < 0 || (rows.ids == 0) != (rows.bags == 0) || !r.graph.info(rows.of[0]).shape.is_static())
    return std::nullopt;
  return rows;
}

std::optional<BagUpdate> find_bags(const Rewrite& r, const Match& match) {
  const Node& update = r.node(match[0]);
  if (update.attrs.has(kHots) || update.attrs.get(kHasBags, false) || update.attrs.get(kWeighted, false))
    return std::nullopt;
  static const Pattern join{"ConcatV2"};
  const ValueRef values = update.inputs.back();
  std::vector<ValueRef> parts{values};
  if (const Node& node = r.node(values.node); join.names(node) && is_plain(r.plan, node)) {
    const Tensor* axis = r.graph.known_value(node.inputs.back());
    if (axis && tensor_to_int64s(*axis)[0] == 0) parts.assign(node.inputs.begin(), node.inputs.end() - 1);
  }
  BagUpdate found;
  bool any = false;
  for (const ValueRef part : parts) {
    auto rows = rows_of_ids(r, part);
    if (!rows) return std::nullopt;
    any = any || !rows->of.empty();
    found.parts.push_back(*std::move(rows));
  }
  return any ? std::optional(found) : std::nullopt;
}

class UpdateMaker {
 public:
  UpdateMaker(Rewrite& r, NodeId id) : r_(r), id_(id) {}

  void run(const BagUpdate& found) {
    const std::vector<RowsOfIds>& parts = found.parts;
    const auto same_hot = [&](const RowsOfIds& part) {
      return !part.ragged() && part.hot() == parts[0].hot();
    };
    const bool by_hot = std::all_of(parts.begin(), parts.end(), same_hot);
    const bool weighted =
        std::any_of(parts.begin(), parts.end(), [](const RowsOfIds& part) { return part.weights.valid(); });
    std::vector<ValueRef> sums, bags, weights;
    std::int64_t first = 0;
    for (const RowsOfIds& part : parts) {
      sums.push_back(part.x);
      if (!by_hot) bags.push_back(bags_of(part, first));
      if (weighted) weights.push_back(weights_of(part));
      first += part.bags;
    }
    const ValueRef x = joined(sums, "sums");
    Node update = r_.node(id_);
    update.inputs.back() = x;
    if (by_hot)
      update.attrs.set(kHots, std::vector<std::int64_t>{parts[0].hot()});
    else
      update.inputs.push_back(joined(bags, "bags"));
    update.attrs.set(kHasBags, !by_hot);
    update.attrs.set(kWeighted, weighted);
    if (weighted) update.inputs.push_back(joined(weights, "weights"));
    update.colocate_with = x.node;
    replace(r_.plan, id_, std::move(update), "/bags");
  }

 private:
  ValueRef add(const char* op, const char* name, std::vector<ValueRef> inputs, AttrMap attrs = {}) {
    const Node& update = r_.node(id_);
    Node node;
    node.op = &OpRegistry::global().require(op);
    node.name = r_.graph.unique_name(update.name + "/" + name);
    node.inputs = std::move(inputs);
    node.attrs = std::move(attrs);
    node.stream = update.stream;
    node.device = update.device;
    return {r_.graph.add(std::move(node)), 0};
  }

  ValueRef constant(const char* name, Tensor value) {
    const DType dtype = value.dtype();
    return add("Const", name, {}, {{"dtype", dtype}, {"value", std::move(value)}});
  }

  ValueRef bags_of(const RowsOfIds& part, std::int64_t first) {
    std::vector<ValueRef> lists = part.of;
    if (lists.empty()) lists.push_back(part.x);  // a bag an id
    return add("braid.BagOf", "bag_of", std::move(lists),
               {{"first", first}, {"hot", part.ragged() ? 1 : part.hot()}});
  }

  ValueRef weights_of(const RowsOfIds& part) {
    if (!part.weights.valid()) {
      Tensor ones(DType::Float32, Shape{part.ids});
      std::ranges::fill(ones.data<float>(), 1.0F);
      return constant("ones", std::move(ones));
    }
    const std::vector<std::int64_t> flat{-1};
    return add("Reshape", "flat_weights",
               {part.weights, constant("flat", Tensor::from<std::int64_t>({1}, flat))});
  }

  ValueRef joined(std::vector<ValueRef> parts, const char* name) {
    if (parts.size() == 1) return parts[0];
    const auto count = static_cast<std::int64_t>(parts.size());
    parts.push_back(constant("axis", Tensor::scalar<std::int32_t>(0)));
    return add("ConcatV2", name, std::move(parts), {{"N", count}});
  }

  Rewrite& r_;
  NodeId id_;
};

}  // namespace

void bag_updates(Plan& plan) {
  run_rules(plan, {.rules = {{"updates by sums of bags",
                              {"braid.SparseApplyOptimizer"},
                              find_bags,
                              [](Rewrite& r, const Match& match, const BagUpdate& found) {
                                UpdateMaker(r, match[0]).run(found);
                              }}},
                   .text = [](const std::vector<int>& applied) {
                     return std::to_string(applied[0]) + " updates read the gradients of bags' sums";
                   }});
}

}  // namespace braid
