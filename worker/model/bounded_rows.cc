// Rules of bounded_sizes.h for what is done to chosen rows: reductions, products with a matrix, losses of
// each row, and rows that are put together.
#include <algorithm>
#include <limits>
#include <optional>

#include "engine/ir/infer.h"
#include "engine/ir/op.h"
#include "worker/model/bounded_values.h"

namespace braid::worker {
namespace {

using Kind = Bounded::Kind;

/// The chosen places as a number of this type.
ValueRef count_of(BoundedGraph& g, const PlaceSet& set, DType dtype) {
  return g.op("Sum", {g.cast(set.valid, dtype), g.numbers({0})}, {{"keep_dims", false}});
}

/// The axes that a reduction of rows runs along, as numbers from 0; nothing where they are not known.
std::optional<std::vector<std::int64_t>> reduced_axes(const BoundedGraph& g, int rank) {
  const Tensor* axes = g.graph.known_value(g.input(1));
  if (!axes || rank < 1) return std::nullopt;
  std::vector<std::int64_t> found = tensor_to_int64s(*axes);
  for (std::int64_t& axis : found) axis += axis < 0 ? rank : 0;
  return found;
}

/// Sums, means and extremes of rows. Along the places the chosen ones count; as in TensorFlow the mean of
/// none is NaN, and the largest of none -infinity.
bool reduction(BoundedGraph& g) {
  const Bounded* of = g.find(g.input(0));
  if (!of || of->kind != Kind::Rows || g.find(g.input(1))) return false;
  const Bounded rows = *of;
  const auto axes = reduced_axes(g, g.rank(rows.padded));
  if (!axes || !is_floating(g.graph.info(rows.padded).dtype)) return false;
  if (std::find(axes->begin(), axes->end(), 0) == axes->end()) {
    g.set(g.output(), {Kind::Rows, rows.set, g.copy_with_padded_inputs()});
    return true;
  }
  const std::string op = g.node().op->name;
  const AttrMap attrs{{"keep_dims", g.node().attrs.get<bool>("keep_dims", false)}};
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const double filler = op == "Max" ? -kInfinity : op == "Min" ? kInfinity : op == "Prod" ? 1 : 0;
  const ValueRef masked = g.masked(*rows.set, rows.padded, filler);
  if (op != "Mean") {
    g.replace(g.output(), g.op(op.c_str(), {masked, g.numbers(*axes)}, attrs));
    return true;
  }
  std::vector<std::int64_t> inner;  // of a mean of means
  for (const std::int64_t axis : *axes)
    if (axis != 0) inner.push_back(axis);
  AttrMap kept{{"keep_dims", true}};
  const ValueRef means = inner.empty() ? masked : g.op("Mean", {masked, g.numbers(inner)}, kept);
  const ValueRef sum = g.op("Sum", {means, g.numbers({0})}, kept);
  const ValueRef mean = g.op("RealDiv", {sum, count_of(g, *rows.set, g.graph.info(rows.padded).dtype)});
  const bool keeps = g.node().attrs.get<bool>("keep_dims", false);
  g.replace(g.output(), keeps ? mean : g.op("Squeeze", {mean}, {{"squeeze_dims", *axes}}));
  return true;
}

/// Ops that make a row of each row: products with a matrix, softmax, the loss of each row's classes. Classes
/// of rows that were not chosen may be none, as -1.
bool rowwise(BoundedGraph& g) {
  const Bounded* first = g.find(g.input(0));
  if (!first || first->kind != Kind::Rows || g.rank(first->padded) < 1) return false;
  const auto set = first->set;
  const Node& node = g.node();
  if (node.op->name == "MatMul" && (g.find(g.input(1)) || node.attrs.get<bool>("transpose_a", false)))
    return false;
  if (node.op->name.starts_with("Softmax") && g.rank(first->padded) < 2) return false;
  if (node.op->name == "LogSoftmax" && g.rank(first->padded) < 2) return false;
  if (node.op->name == "OneHot" && node.attrs.get<std::int64_t>("axis", -1) != -1) return false;
  const bool of_classes = node.op->name == "SparseSoftmaxCrossEntropyWithLogits";
  if (of_classes || node.op->name == "SoftmaxCrossEntropyWithLogits") {
    const Bounded* labels = g.find(g.input(1));
    if (!labels || labels->kind != Kind::Rows || labels->set != set) return false;
  } else if (node.inputs.size() > 1 && g.find(g.input(1))) {
    return false;
  }
  const ValueRef labels = of_classes ? g.masked(*set, g.find(g.input(1))->padded, 0) : ValueRef{};
  const ValueRef made = g.copy_with_padded_inputs();
  if (labels.valid()) g.graph.mutable_node(made.node).inputs[1] = labels;
  for (int k = 0; k < static_cast<int>(g.node().outputs.size()); ++k)
    g.set(g.output(k), {Kind::Rows, set, {made.node, k}});
  return true;
}

/// What a table has for each of the rows.
bool look_up(BoundedGraph& g) {
  const Bounded* keys = g.find(g.input(0));
  const std::vector<ValueRef>& inputs = g.node().inputs;
  const bool others = std::any_of(inputs.begin() + 1, inputs.end(), [&](ValueRef v) { return g.find(v); });
  if (!keys || keys->kind != Kind::Rows || others) return false;
  g.set(g.output(), {Kind::Rows, keys->set, g.copy_with_padded_inputs()});
  return true;
}

/// Of the shape of rows: as many rows, of one number.
bool fill(BoundedGraph& g) {
  const Bounded* shape = g.find(g.input(0));
  if (!shape || shape->kind != Kind::Size || g.find(g.input(1))) return false;
  if (g.graph.node(g.input(0).node).op->name != "Shape") return false;
  g.set(g.output(), {Kind::Rows, shape->set, g.copy_with_padded_inputs()});
  return true;
}

/// Columns of rows of one set, side by side.
bool concat_columns(BoundedGraph& g, std::size_t parts) {
  std::shared_ptr<const PlaceSet> set;
  for (std::size_t i = 0; i < parts; ++i) {
    const Bounded* rows = g.find(g.input(i));
    if (!rows || rows->kind != Kind::Rows || (set && rows->set != set) || g.rank(rows->padded) != 2)
      return false;
    set = rows->set;
  }
  g.set(g.output(), {Kind::Rows, set, g.copy_with_padded_inputs()});
  return true;
}

/// Rows behind rows, of any sets.
bool concat_rows(BoundedGraph& g) {
  const std::size_t parts = g.node().inputs.size() - 1;
  const Tensor* axis = g.graph.known_value(g.input(parts));
  if (!axis) return false;
  const std::int64_t along = tensor_to_int64s(*axis)[0];
  if (along == 1 || along == -1) return concat_columns(g, parts);
  if (along != 0) return false;
  std::vector<ValueRef> valid, padded;
  for (std::size_t i = 0; i < parts; ++i) {
    if (g.rank(g.input(i)) < 1 && !g.find(g.input(i))) return false;
    const Bounded rows = g.rows_of(g.input(i));
    if (rows.kind != Kind::Rows) return false;
    valid.push_back(rows.set->valid);
    padded.push_back(rows.padded);
  }
  const auto join = [&](std::vector<ValueRef> values) {
    const auto count = static_cast<std::int64_t>(values.size());
    values.push_back(g.number(0, DType::Int32));
    return g.op("ConcatV2", std::move(values), {{"N", count}});
  };
  auto set = std::make_shared<PlaceSet>(PlaceSet{join(std::move(valid)), {}, false});
  g.set(g.output(), {Kind::Rows, std::move(set), join(std::move(padded))});
  return true;
}

bool concat(BoundedGraph& g) {
  std::shared_ptr<const PlaceSet> of_sizes;
  for (const ValueRef value : g.node().inputs) {
    const Bounded* bounded = g.find(value);
    if (bounded && bounded->kind == Kind::Rows) return concat_rows(g);
    if (bounded && bounded->kind == Kind::Places) return false;
    if (bounded) of_sizes = bounded->set;
  }
  if (!of_sizes) return false;
  g.set(g.output(), {Kind::Size, of_sizes, g.copy_with_padded_inputs()});
  return true;
}

}  // namespace

bool count_as_float(BoundedGraph& g, const Bounded& size) {
  const DType to = g.graph.info(g.output()).dtype;
  if (g.node().op->name != "Cast" || !is_floating(to) || g.rank(size.padded) != 0) return false;
  const ValueRef places = g.op("Size", {size.set->valid}, {{"out_type", DType::Int64}});
  const ValueRef each = g.op("FloorDiv", {g.cast(size.padded, DType::Int64), places});
  const ValueRef count = count_of(g, *size.set, DType::Int64);
  g.replace(g.output(), g.cast(g.op("Mul", {each, count}), to));
  return true;
}

void add_row_rules(std::map<std::string, BoundedRule>& rules) {
  rules.insert({{"Fill", fill}, {"ConcatV2", concat}, {"braid.LookupTableFind", look_up}});
  for (const char* op : {"Sum", "Mean", "Max", "Min", "Prod"}) rules.insert({op, reduction});
  for (const char* op : {"MatMul", "BiasAdd", "OneHot", "Softmax", "LogSoftmax",
                         "SoftmaxCrossEntropyWithLogits", "SparseSoftmaxCrossEntropyWithLogits"})
    rules.insert({op, rowwise});
}

}  // namespace braid::worker
