#include <algorithm>
#include <optional>

#include "engine/ir/infer.h"
#include "engine/ir/op.h"
#include "worker/model/bounded_values.h"

namespace braid::worker {
namespace {

using Kind = Bounded::Kind;

/// What the bounded inputs are: rows or sizes of one set, and the rows with most dimensions. Plain inputs
/// beside rows must be shared by all of them, as numbers and vectors beside matrices are. Nothing where that
/// is not so.
std::optional<Bounded> common(const BoundedGraph& g) {
  std::optional<Bounded> found;
  for (const ValueRef value : g.node().inputs) {
    const Bounded* bounded = g.find(value);
    if (!bounded) continue;
    if (found && (found->set != bounded->set || found->kind != bounded->kind)) return std::nullopt;
    if (!found || g.rank(bounded->padded) > g.rank(found->padded)) found = *bounded;
  }
  if (!found || found->kind != Kind::Rows) return found;
  for (const ValueRef value : g.node().inputs) {
    const int rank = g.rank(value);
    if (!g.find(value) && (rank < 0 || (rank > 0 && rank >= g.rank(found->padded)))) return std::nullopt;
  }
  return found;
}

bool pointwise(BoundedGraph& g) {
  auto shared = common(g);
  if (!shared) return false;
  if (shared->kind == Kind::Size && count_as_float(g, *shared)) return true;
  if (shared->kind == Kind::Places) {
    if (g.node().op->name != "Cast" && g.node().op->name != "Identity") return false;
    g.set(g.output(), *shared);
    return true;
  }
  const bool same_values = g.node().op->name == "Cast" || g.node().op->name == "Identity";
  shared->padded = g.copy_with_padded_inputs();
  if (!same_values) shared->limits = {};
  g.set(g.output(), *shared);
  return true;
}

/// Plain conditions choose places of their own shape; conditions of chosen places choose among these.
bool where(BoundedGraph& g) {
  const ValueRef condition = g.input(0);
  if (const Bounded* bounded = g.find(condition)) {
    if (bounded->kind != Kind::Rows || g.rank(bounded->padded) != 1) return false;
    if (const Bounded* same = g.chosen_by(condition)) {  // of ids, and of the weights beside them
      g.set(g.output(), Bounded(*same));
      return true;
    }
    const ValueRef valid = g.op("LogicalAnd", {bounded->set->valid, g.cast(bounded->padded, DType::Bool)});
    auto set = std::make_shared<PlaceSet>(PlaceSet{valid, bounded->set->coordinates, false});
    g.set(g.output(), {Kind::Places, std::move(set), {}, {}, g.find(condition)->set});
    g.remember_choice(condition, g.output());
    return true;
  }
  if (g.rank(condition) < 1) return false;
  if (const Bounded* same = g.chosen_by(condition)) {
    g.set(g.output(), Bounded(*same));
    return true;
  }
  const ValueRef yes = g.graph.info(condition).dtype == DType::Bool
                           ? condition
                           : g.op("NotEqual", {condition, g.like(condition, 0)});
  const ValueRef shape = g.op("Shape", {condition}, {{"out_type", DType::Int64}});
  const ValueRef count = g.op("Size", {condition}, {{"out_type", DType::Int64}});
  const ValueRef linear = g.op("Range", {g.number(0), count, g.number(1)});
  const ValueRef at = g.coordinates(linear, shape);
  auto set = std::make_shared<PlaceSet>(PlaceSet{g.flat(yes), at, false});
  g.set(g.output(), {Kind::Rows, std::move(set), at, shape});
  g.remember_choice(condition, g.output());
  return true;
}

bool gathers_first_axis(const BoundedGraph& g) {
  if (g.node().op->name != "GatherV2") return true;
  const Tensor* axis = g.graph.known_value(g.input(2));
  return axis && axis->elements() == 1 && tensor_to_int64s(*axis)[0] == 0 &&
         g.node().attrs.get<std::int64_t>("batch_dims", 0) == 0;
}

/// Rows of plain values behind a gate: those of places that were not chosen learn nothing, not even NaN of
/// what is made of them. Rows of variables are left alone, as tables are found by who reads them.
ValueRef gated(BoundedGraph& g, const PlaceSet& set, ValueRef rows) {
  if (set.all || !is_floating(g.graph.info(rows).dtype)) return rows;
  ValueRef from = g.input(0);
  while (g.graph.node(from.node).op->role == OpRole::Identity) from = g.graph.node(from.node).inputs[0];
  const Node& maker = g.graph.node(from.node);
  const bool is_variable = g.graph.info(g.input(0)).dtype == DType::Resource ||
                           std::any_of(maker.inputs.begin(), maker.inputs.end(), [&](ValueRef input) {
                             return g.graph.info(input).dtype == DType::Resource;
                           });
  if (is_variable || maker.op->role == OpRole::Constant) return rows;
  return g.op("SelectV2", {g.mask_for(set, rows), rows, g.op("StopGradient", {rows})});
}

bool gather(BoundedGraph& g) {
  const Bounded* from = g.find(g.input(0));
  const Bounded* ids = g.find(g.input(1));
  if (!ids || !gathers_first_axis(g)) return false;
  if (from) {  // what was chosen, chosen again
    if (ids->kind != Kind::Places || ids->of != from->set || from->kind == Kind::Size) return false;
    Bounded chosen = *from;
    chosen.set = ids->set;
    g.set(g.output(), chosen);
    return true;
  }
  if (ids->kind == Kind::Places && ids->of->all) {  // of a plain value, whose rows are the places
    const auto set = ids->set;
    g.set(g.output(), {Kind::Rows, set, gated(g, *set, g.input(0))});
    return true;
  }
  if (ids->kind != Kind::Rows || g.rank(ids->padded) < 1) return false;
  if (g.rank(ids->padded) > 1 && !ids->set->all && !ids->limits.valid()) return false;
  Bounded rows{Kind::Rows, ids->set, {}};
  const ValueRef safe = g.safe_ids(*ids);
  Node copy = g.node();
  copy.id = kNoNode;
  copy.name = g.graph.unique_name(copy.name + "/padded");
  copy.outputs.clear();
  copy.known_values.clear();
  copy.inputs[1] = safe;
  g.drop_controls(copy);
  rows.padded = gated(g, *rows.set, {g.graph.add(std::move(copy)), 0});
  g.set(g.output(), std::move(rows));
  return true;
}

bool gather_nd(BoundedGraph& g) {
  const Bounded* at = g.find(g.input(1));
  if (g.find(g.input(0)) || !at || at->kind != Kind::Rows || !at->limits.valid()) return false;
  g.set(g.output(), {Kind::Rows, at->set, g.copy_with_padded_inputs()});
  return true;
}

/// y has each value as often as it was there, which gathers do not mind; idx says so.
bool unique(BoundedGraph& g) {
  if (g.rank(g.input(0)) != 1 && !g.find(g.input(0))) return false;
  const Bounded rows = g.rows_of(g.input(0));
  if (rows.kind != Kind::Rows || g.rank(rows.padded) != 1) return false;
  g.set(g.output(0), rows);
  g.set(g.output(1), {Kind::Places, rows.set, {}, {}, rows.set});
  return true;
}

/// [:, i] of rows, and [i:] of a shape that has a bounded number.
bool strided_slice(BoundedGraph& g) {
  const Bounded* of = g.find(g.input(0));
  if (!of) return false;
  if (of->kind == Kind::Places) {
    g.set(g.output(), *of);
    return true;
  }
  const Tensor* begin = g.graph.known_value(g.input(1));
  if (!begin) return false;
  const auto first = tensor_to_int64s(*begin);
  const auto mask = [&](const char* name) { return g.node().attrs.get<std::int64_t>(name, 0); };
  if (of->kind == Kind::Size) {
    if (first.size() != 1) return false;
    const bool at_first = first[0] == 0 || (mask("begin_mask") & 1);
    if (at_first && !(mask("shrink_axis_mask") & 1)) return false;
    const ValueRef part = g.copy_with_padded_inputs();
    if (at_first)
      g.set(g.output(), {Kind::Size, of->set, part});
    else
      g.replace(g.output(), part);
    return true;
  }
  const bool all_rows = (mask("begin_mask") & 1) && (mask("end_mask") & 1);
  if (!all_rows || (mask("shrink_axis_mask") & 1) || mask("new_axis_mask") || mask("ellipsis_mask"))
    return false;
  Bounded part{Kind::Rows, of->set, g.copy_with_padded_inputs()};
  if (of->limits.valid() && first.size() == 2 && (mask("shrink_axis_mask") & 2))
    part.limits = g.element(of->limits, first[1]);
  g.set(g.output(), std::move(part));
  return true;
}

/// Reshape, Squeeze, ExpandDims that keep the places as the first dimension.
bool same_places(BoundedGraph& g) {
  const Bounded* of = g.find(g.input(0));
  if (!of) return false;
  if (of->kind == Kind::Places) {
    g.set(g.output(), *of);
    return true;
  }
  if (of->kind == Kind::Size) {
    g.set(g.output(), {Kind::Size, of->set, g.copy_with_padded_inputs()});
    return true;
  }
  const ValueRef made = g.copy_with_padded_inputs();
  const Shape &before = g.graph.info(of->padded).shape, &after = g.graph.info(made).shape;
  const auto row_elements = [](const Shape& shape) -> std::int64_t {
    std::int64_t count = 1;
    for (int i = 1; i < shape.rank(); ++i) count = shape.dim(i) < 0 || count < 0 ? -1 : count * shape.dim(i);
    return count;
  };
  if (!before.has_rank() || !after.has_rank() || after.rank() < 1) return false;
  const bool by_size = g.node().inputs.size() > 1 && g.find(g.input(1));
  if (!by_size && (row_elements(before) < 0 || row_elements(before) != row_elements(after))) return false;
  Bounded same{Kind::Rows, of->set, made};
  if (after.rank() == before.rank()) same.limits = of->limits;
  g.set(g.output(), std::move(same));
  return true;
}

bool shape_or_size(BoundedGraph& g) {
  const Bounded* of = g.find(g.input(0));
  if (!of || of->kind != Kind::Rows) return false;
  g.set(g.output(), {Kind::Size, of->set, g.copy_with_padded_inputs()});
  return true;
}

/// Range(0, number of chosen places).
bool range(BoundedGraph& g) {
  const Bounded* limit = g.find(g.input(1));
  const Tensor *start = g.graph.known_value(g.input(0)), *step = g.graph.known_value(g.input(2));
  if (!limit || limit->kind != Kind::Size || !start || !step) return false;
  if (tensor_to_int64s(*start)[0] != 0 || tensor_to_int64s(*step)[0] != 1) return false;
  g.set(g.output(), {Kind::Places, limit->set, {}, {}, limit->set});
  return true;
}

bool dynamic_partition(BoundedGraph& g) {
  const ValueRef numbers = g.input(1);
  const Bounded parts = g.rows_of(numbers);
  const Bounded* found = g.find(g.input(0));
  Bounded data;
  if (found) {
    data = *found;
  } else {  // numbers 0 to n - 1 of plain rows are their places
    const Node& made = g.graph.node(g.input(0).node);
    data = {Kind::Rows, parts.set, g.input(0)};
    if (made.op->name == "Range") data = {Kind::Places, parts.set, {}, {}, parts.set};
  }
  if (parts.kind != Kind::Rows || g.rank(parts.padded) != 1 || data.kind == Kind::Size ||
      data.set != parts.set)
    return false;
  for (int k = 0; k < static_cast<int>(g.node().outputs.size()); ++k) {
    Bounded part = data;
    part.set = g.part_of(parts, k);
    g.set(g.output(k), std::move(part));
  }
  return true;
}

/// The inverse: of parts that dynamic_partition has made.
bool stitch(BoundedGraph& g) {
  const std::size_t parts = g.node().inputs.size() / 2;
  std::shared_ptr<const PlaceSet> whole;
  ValueRef joined;
  std::vector<const Bounded*> rows;
  for (std::size_t k = 0; k < parts; ++k) {
    const Bounded *at = g.find(g.input(k)), *data = g.find(g.input(parts + k));
    if (!at || !data || at->kind != Kind::Places || data->kind != Kind::Rows || at->set != data->set)
      return false;
    if (whole && whole != at->of) return false;
    whole = at->of;
    rows.push_back(data);
  }
  if (rows.empty()) return false;
  for (const Bounded* part : rows)
    joined = joined.valid() ? g.op("SelectV2", {g.mask_for(*part->set, part->padded), part->padded, joined})
                            : g.masked(*part->set, part->padded, 0);
  if (whole->all)
    g.replace(g.output(), joined);
  else
    g.set(g.output(), {Kind::Rows, whole, joined});
  return true;
}

/// All and Any of rows: those that were not chosen have no say.
bool of_all(BoundedGraph& g) {
  const Bounded* of = g.find(g.input(0));
  if (!of || of->kind != Kind::Rows || g.rank(of->padded) != 1) return false;
  const bool all = g.node().op->name == "All";
  const ValueRef masked = g.masked(*of->set, of->padded, all ? 1 : 0);
  g.replace(g.output(), g.op(all ? "All" : "Any", {masked, g.numbers({0})}, {{"keep_dims", false}}));
  return true;
}

/// What an assertion prints may have elements that do not count.
bool assertion(BoundedGraph& g) {
  std::vector<ValueRef> inputs = g.node().inputs;
  for (ValueRef& value : inputs)
    if (const Bounded* bounded = g.find(value)) {
      if (!bounded->padded.valid()) return false;
      value = bounded->padded;
    }
  g.graph.mutable_node(g.at).inputs = std::move(inputs);
  return true;
}

/// A number that cannot be but one: min(a, max(b, x)) where a <= b, as bincount's size with both of its
/// limits.
bool minimum(BoundedGraph& g) {
  const auto number = [&](ValueRef value) -> std::optional<std::int64_t> {
    const Tensor* known = g.graph.known_value(value);
    if (!known || known->elements() != 1 || is_floating(known->dtype())) return std::nullopt;
    return tensor_to_int64s(*known)[0];
  };
  for (const int i : {0, 1}) {
    const auto most = number(g.input(static_cast<std::size_t>(i)));
    const Node& other = g.graph.node(g.input(static_cast<std::size_t>(1 - i)).node);
    if (!most || other.op->name != "Maximum" || g.rank(g.output()) != 0) continue;
    for (const ValueRef value : other.inputs) {
      const auto least = number(value);
      if (!least || *least < *most) continue;
      g.replace(g.output(), g.cast(g.number(*most), g.graph.info(g.output()).dtype));
      return true;
    }
  }
  return pointwise(g);
}

/// Counts of each number in a row: no size is unknown, but there is no kernel.
bool dense_bincount(BoundedGraph& g) {
  const ValueRef weights = g.input(2);
  const Shape& shape = g.graph.info(weights).shape;
  if (g.find(g.input(0)) || g.rank(g.input(0)) != 2 || !shape.has_rank() || shape.rank() != 1 ||
      shape.dim(0) != 0)
    return false;
  const DType dtype = g.graph.info(weights).dtype;
  const ValueRef hot =
      g.op("OneHot", {g.input(0), g.cast(g.input(1), DType::Int32), g.like(weights, 1), g.like(weights, 0)},
           {{"T", dtype}, {"axis", std::int64_t{-1}}});
  const bool binary = g.node().attrs.get<bool>("binary_output", false);
  g.replace(g.output(), g.op(binary ? "Max" : "Sum", {hot, g.numbers({1})}, {{"keep_dims", false}}));
  return true;
}

}  // namespace

bool bound_pointwise(BoundedGraph& g) { return pointwise(g); }

void add_bounded_rules(std::map<std::string, BoundedRule>& rules) {
  rules.insert({{"pointwise", pointwise},
                {"Identity", pointwise},
                {"Minimum", minimum},
                {"Cast", pointwise},
                {"StopGradient", pointwise},
                {"StringToHashBucket", pointwise},
                {"StringToHashBucketFast", pointwise},
                {"StringToHashBucketStrong", pointwise},
                {"Where", where},
                {"Gather", gather},
                {"GatherV2", gather},
                {"ResourceGather", gather},
                {"GatherNd", gather_nd},
                {"Unique", unique},
                {"StridedSlice", strided_slice},
                {"Reshape", same_places},
                {"Squeeze", same_places},
                {"ExpandDims", same_places},
                {"Shape", shape_or_size},
                {"Size", shape_or_size},
                {"Range", range},
                {"DynamicPartition", dynamic_partition},
                {"DynamicStitch", stitch},
                {"ParallelDynamicStitch", stitch},
                {"All", of_all},
                {"Any", of_all},
                {"Assert", assertion},
                {"DenseBincount", dense_bincount}});
}

}  // namespace braid::worker
