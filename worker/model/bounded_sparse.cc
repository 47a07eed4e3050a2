#include <algorithm>

#include "engine/ir/op.h"
#include "worker/model/bounded_values.h"

namespace braid::worker {
namespace {

using Kind = Bounded::Kind;

/// The new dense shape, with what a -1 stands for.
ValueRef resolved_shape(BoundedGraph& g, ValueRef shape, ValueRef asked) {
  const ValueRef is_open = g.op("Less", {asked, g.number(0)});
  const ValueRef others = g.op("SelectV2", {is_open, g.number(1), asked});
  const auto product = [&](ValueRef sizes) {
    return g.op("Prod", {sizes, g.numbers({0})}, {{"keep_dims", false}});
  };
  return g.op("SelectV2", {is_open, g.op("FloorDiv", {product(shape), product(others)}), asked});
}

bool sparse_reshape(BoundedGraph& g) {
  const Bounded* at = g.find(g.input(0));
  if (at && at->kind != Kind::Rows) return false;
  const ValueRef indices = at ? at->padded : g.input(0);
  const ValueRef shape = g.cast(g.input(1), DType::Int64);
  const ValueRef resolved = resolved_shape(g, shape, g.cast(g.input(2), DType::Int64));
  const ValueRef linear =
      g.op("Sum", {g.op("Mul", {indices, g.strides(shape)}), g.numbers({1})}, {{"keep_dims", false}});
  const ValueRef moved = g.coordinates(linear, resolved);
  if (at)
    g.set(g.output(), {Kind::Rows, at->set, moved, resolved});
  else
    g.replace(g.output(), moved);
  g.replace(g.output(1), resolved);
  return true;
}

/// A further place for each row, which is chosen where none of the row's others is.
bool fill_empty_rows(BoundedGraph& g) {
  const Bounded at = g.rows_of(g.input(0));
  Bounded values = g.rows_of(g.input(1));
  if (values.set->all && at.set->all) values.set = at.set;
  if (at.kind != Kind::Rows || values.kind != Kind::Rows || values.set != at.set ||
      g.rank(values.padded) != 1)
    return false;
  const Shape shape = g.graph.info(at.padded).shape;  // nodes that are added move it
  if (!shape.has_rank() || shape.rank() != 2 || shape.dim(1) < 1) return false;
  const ValueRef rows = g.element(g.cast(g.input(2), DType::Int64), 0);
  const ValueRef chosen = g.cast(at.set->valid, DType::Int32);
  const ValueRef counts =
      g.op("UnsortedSegmentSum", {chosen, g.column(at.padded, 0), g.cast(rows, DType::Int32)});
  const ValueRef empty = g.op("Equal", {counts, g.number(0, DType::Int32)});
  const ValueRef each = g.op("Range", {g.number(0), rows, g.number(1)});
  std::vector<ValueRef> columns(static_cast<std::size_t>(shape.dim(1)), g.op("ZerosLike", {each}));
  columns[0] = each;
  const auto count = static_cast<std::int64_t>(columns.size());
  const ValueRef further = g.op("Pack", std::move(columns), {{"axis", std::int64_t{1}}, {"N", count}});
  const auto join = [&](ValueRef a, ValueRef b) {
    return g.op("ConcatV2", {a, b, g.number(0, DType::Int32)}, {{"N", std::int64_t{2}}});
  };
  const ValueRef defaults = g.op("Fill", {g.op("ExpandDims", {rows, g.number(0, DType::Int32)}), g.input(3)});
  // Ids and the weights beside them are filled alike.
  std::shared_ptr<const PlaceSet>& set = g.filled(at.set, at.padded);
  if (!set) set = std::make_shared<PlaceSet>(PlaceSet{join(at.set->valid, empty), {}, false});
  g.set(g.output(0), {Kind::Rows, set, join(at.padded, further), g.cast(g.input(2), DType::Int64)});
  g.set(g.output(1), {Kind::Rows, set, join(values.padded, defaults)});
  g.replace(g.output(2), empty);
  return true;
}

/// What the sum of each row of the batch is divided by, with dimensions of 1 as `like` has them.
ValueRef segment_divisor(BoundedGraph& g, const PlaceSet& set, const Bounded& ids, ValueRef like, bool root) {
  const ValueRef valid = g.cast(set.valid, g.graph.info(like).dtype);
  const ValueRef chosen = g.op("UnsortedSegmentSum", {valid, ids.padded, g.cast(ids.limits, DType::Int32)});
  ValueRef by = g.op("Maximum", {chosen, g.like(like, 1)});
  if (root) by = g.op("Sqrt", {by});
  return g.mask_for({by, {}, false}, like);
}

/// Sums of rows by the row of the batch that they belong to.
bool segments(BoundedGraph& g, const Bounded& data, const Bounded& ids, const std::string& how) {
  if (data.kind != Kind::Rows || ids.kind != Kind::Rows || data.set != ids.set || !ids.limits.valid())
    return false;
  if (g.rank(ids.padded) != 1 || g.rank(data.padded) < 1) return false;
  const ValueRef count = g.cast(ids.limits, DType::Int32);
  const ValueRef rows = g.masked(*data.set, data.padded, 0);
  ValueRef result = g.op("UnsortedSegmentSum", {rows, ids.padded, count});
  if (how != "Sum")
    result = g.op("RealDiv", {result, segment_divisor(g, *data.set, ids, rows, how == "SqrtN")});
  g.replace(g.output(), result);
  return true;
}

bool segment_reduce(BoundedGraph& g) {
  const Bounded *data = g.find(g.input(0)), *ids = g.find(g.input(1));
  if (!data || !ids) return false;
  return segments(g, *data, *ids, g.node().op->name == "SegmentMean" ? "Mean" : "Sum");
}

/// Rows of places that were not chosen are in no segment.
bool unsorted_segment_reduce(BoundedGraph& g) {
  const Bounded *data = g.find(g.input(0)), *ids = g.find(g.input(1));
  if (!data || !ids || data->kind != Kind::Rows || ids->kind != Kind::Rows || data->set != ids->set)
    return false;
  if (g.find(g.input(2)) || g.rank(ids->padded) != 1 || g.rank(data->padded) < 1) return false;
  const ValueRef rows = g.masked(*data->set, data->padded, 0);
  const ValueRef of_rows = g.masked(*ids->set, ids->padded, -1);
  const std::string op = g.node().op->name;
  g.replace(g.output(), g.op(op.c_str(), {rows, of_rows, g.input(2)}));
  return true;
}

bool sparse_segment_reduce(BoundedGraph& g) {
  const Bounded *data = g.find(g.input(0)), *places = g.find(g.input(1)), *ids = g.find(g.input(2));
  if (!data || !places || !ids || places->kind != Kind::Places || places->of != data->set) return false;
  Bounded rows = *data;
  rows.set = places->set;
  return segments(g, rows, *ids, g.node().op->name.substr(std::string("SparseSegment").size()));
}

/// The gradient of such sums, a row for each chosen place: that of Unique's values, which bounded are not
/// made fewer.
bool sparse_segment_grad(BoundedGraph& g) {
  const Bounded *places = g.find(g.input(1)), *ids = g.find(g.input(2));
  if (g.find(g.input(0)) || !places || !ids || places->kind != Kind::Places || places->of != places->set)
    return false;
  if (ids->kind != Kind::Rows || ids->set != places->set || !ids->limits.valid()) return false;
  const std::string op = g.node().op->name;
  ValueRef gradient = g.input(0);
  if (op != "SparseSegmentSumGrad") {
    const ValueRef by = segment_divisor(g, *ids->set, *ids, gradient, op == "SparseSegmentSqrtNGrad");
    gradient = g.op("RealDiv", {gradient, by});
  }
  const ValueRef rows = g.op("GatherV2", {gradient, ids->padded, g.number(0, DType::Int32)});
  g.set(g.output(), {Kind::Rows, ids->set, g.masked(*ids->set, rows, 0)});
  return true;
}

/// Chosen places of a dense value, back in their places.
bool sparse_to_dense(BoundedGraph& g) {
  const Bounded *at = g.find(g.input(0)), *values = g.find(g.input(2));
  if (!at || !at->set->coordinates.valid() || at->padded != at->set->coordinates) return false;
  if (values && (values->kind != Kind::Rows || values->set != at->set)) return false;
  const ValueRef elements = values ? values->padded : g.input(2);
  const ValueRef flat = g.op("SelectV2", {at->set->valid, elements, g.input(3)});
  g.replace(g.output(), g.op("Reshape", {flat, g.input(1)}));
  return true;
}

}  // namespace

void add_sparse_rules(std::map<std::string, BoundedRule>& rules) {
  rules.insert({{"SparseReshape", sparse_reshape},
                {"SparseFillEmptyRows", fill_empty_rows},
                {"SegmentSum", segment_reduce},
                {"SegmentMean", segment_reduce},
                {"UnsortedSegmentSum", unsorted_segment_reduce},
                {"UnsortedSegmentMax", unsorted_segment_reduce},
                {"UnsortedSegmentMin", unsorted_segment_reduce},
                {"UnsortedSegmentProd", unsorted_segment_reduce},
                {"SparseSegmentSum", sparse_segment_reduce},
                {"SparseSegmentMean", sparse_segment_reduce},
                {"SparseSegmentSqrtN", sparse_segment_reduce},
                {"SparseSegmentSumGrad", sparse_segment_grad},
                {"SparseSegmentMeanGrad", sparse_segment_grad},
                {"SparseSegmentSqrtNGrad", sparse_segment_grad},
                {"SparseToDense", sparse_to_dense}});
}

}  // namespace braid::worker
