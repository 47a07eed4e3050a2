#include "worker/strategies/axis_labels.h"

#include <algorithm>
#include <functional>
#include <map>
#include <string_view>

#include "base/error.h"
#include "engine/ir/op.h"
#include "engine/ops/math/einsum_plan.h"

namespace braid::worker {
namespace {

using Labels = AxisLabels::Labels;

/// A node with static shapes. `Rule`s make labels of it.
class View {
 public:
  View(const Graph& graph, const Node& node) : graph_(graph), node_(node) {}

  const Node& node() const { return node_; }
  int inputs() const { return static_cast<int>(node_.inputs.size()); }
  int outputs() const { return static_cast<int>(node_.outputs.size()); }
  const Shape& in(int i) const { return shapes_[static_cast<std::size_t>(i)]; }
  const Shape& out(int i = 0) const { return node_.outputs[static_cast<std::size_t>(i)].shape; }
  const Tensor* value(int i) const { return graph_.known_value(node_.inputs[static_cast<std::size_t>(i)]); }

  /// False where a shape is not known.
  bool take_shapes() {
    for (const ValueRef input : node_.inputs) {
      const OutputInfo& info = graph_.info(input);
      shapes_.push_back(info.dtype == DType::Resource ? variable_of(graph_, input).shape : info.shape);
    }
    const auto known = [](const Shape& shape) { return shape.has_rank() && shape.is_static(); };
    return std::all_of(shapes_.begin(), shapes_.end(), known) &&
           std::all_of(node_.outputs.begin(), node_.outputs.end(),
                       [&](const OutputInfo& info) { return known(info.shape); });
  }

  /// The axes that input i names, from 0; nothing where they are not known.
  std::optional<std::vector<int>> axes(int i, int rank) const {
    const Tensor* value = this->value(i);
    if (!value) return std::nullopt;
    std::vector<int> axes;
    for (const std::int64_t axis : tensor_to_int64s(*value))
      axes.push_back(static_cast<int>(axis < 0 ? axis + rank : axis));
    return axes;
  }

 private:
  const Graph& graph_;
  const Node& node_;
  std::vector<Shape> shapes_;
};

Labels counted(int rank) {
  Labels labels(static_cast<std::size_t>(rank));
  for (int axis = 0; axis < rank; ++axis) labels[static_cast<std::size_t>(axis)] = axis;
  return labels;
}

Labels none(const Shape& shape) { return Labels(static_cast<std::size_t>(shape.rank()), AxisLabels::kNone); }

/// Of an operand that broadcasts to `out`, whose axes are counted.
Labels broadcasting(const Shape& operand, const Shape& out) {
  Labels labels = none(operand);
  const int first = out.rank() - operand.rank();
  for (int axis = 0; axis < operand.rank(); ++axis)
    if (first + axis >= 0 && operand[axis] == out[first + axis])
      labels[static_cast<std::size_t>(axis)] = first + axis;
  return labels;
}

Labels without(Labels labels, const std::vector<int>& axes, bool keep) {
  Labels left;
  for (std::size_t axis = 0; axis < labels.size(); ++axis)
    if (std::find(axes.begin(), axes.end(), static_cast<int>(axis)) == axes.end())
      left.push_back(labels[axis]);
    else if (keep)
      left.push_back(AxisLabels::kNone);
  return left;
}

using Result = std::optional<AxisLabels>;

Result pointwise(const View& v) {
  AxisLabels labels;
  for (int i = 0; i < v.inputs(); ++i) labels.inputs.push_back(broadcasting(v.in(i), v.out()));
  for (int o = 0; o < v.outputs(); ++o) labels.outputs.push_back(broadcasting(v.out(o), v.out()));
  return labels;
}

Result sum_of_inputs(const View& v) {
  Result labels = pointwise(v);
  labels->linear = true;
  return labels;
}

Result passed_on(const View& v) {
  Result labels = pointwise(v);
  labels->linear = labels->one_value = true;
  return labels;
}

Result product(const View& v, bool transpose_a, bool transpose_b) {
  const int rank = v.out().rank(), a = v.in(0).rank(), b = v.in(1).rank();
  if (a < 2 || b < 2) return std::nullopt;
  AxisLabels labels;
  labels.adds_up = true;
  labels.outputs = {counted(rank)};
  const int m = rank - 2, n = rank - 1, k = rank;
  const auto of = [&](int input, int first, int second) {
    const Shape& shape = v.in(input);
    Labels own = none(shape);
    for (int axis = 0; axis < shape.rank() - 2; ++axis) {
      const int at = rank - shape.rank() + axis;
      if (shape[axis] == v.out()[at]) own[static_cast<std::size_t>(axis)] = at;
    }
    own[own.size() - 2] = first;
    own[own.size() - 1] = second;
    return own;
  };
  labels.inputs = {transpose_a ? of(0, k, m) : of(0, m, k), transpose_b ? of(1, n, k) : of(1, k, n)};
  return labels;
}

Result matmul(const View& v) {
  const auto is_set = [&](const char* attr) { return v.node().attrs.get(attr, false); };
  return product(v, is_set("transpose_a") || is_set("adj_x"), is_set("transpose_b") || is_set("adj_y"));
}

Result einsum(const View& v) {
  const auto fail = [&](const std::string& why) { throw InvalidArgument(place_of(v.node()) + ": " + why); };
  const EinsumEquation equation(v.node().attrs.require<std::string>("equation"),
                                static_cast<std::size_t>(v.inputs()), fail);
  std::vector<Shape> shapes;
  for (int i = 0; i < v.inputs(); ++i) shapes.push_back(v.in(i));
  const EinsumPlan plan(equation, shapes, fail);
  AxisLabels labels;
  labels.adds_up = true;
  for (int i = 0; i < v.inputs(); ++i) {
    Labels own = plan.operands[static_cast<std::size_t>(i)];
    for (std::size_t axis = 0; axis < own.size(); ++axis)
      if (v.in(i)[static_cast<int>(axis)] != plan.sizes.at(own[axis])) own[axis] = AxisLabels::kNone;
    labels.inputs.push_back(std::move(own));
  }
  labels.outputs = {plan.output};
  return labels;
}

int channel_of(const View& v) {
  const bool last = v.node().attrs.get<std::string>("data_format", "NHWC") == "NHWC";
  return last ? v.in(0).rank() - 1 : 1;
}

Result bias_add(const View& v) {
  AxisLabels labels;
  labels.inputs = {counted(v.in(0).rank()), {channel_of(v)}};
  labels.outputs = {counted(v.out().rank())};
  return labels;
}

Result bias_add_grad(const View& v) {
  AxisLabels labels;
  labels.adds_up = labels.linear = labels.one_value = true;
  labels.inputs = {counted(v.in(0).rank())};
  labels.outputs = {{channel_of(v)}};
  return labels;
}

Result reduction(const View& v, bool sums) {
  const int rank = v.in(0).rank();
  const auto axes = v.axes(1, rank);
  if (!axes) return std::nullopt;
  AxisLabels labels;
  labels.inputs = {counted(rank), none(v.in(1))};
  labels.outputs = {without(counted(rank), *axes, v.node().attrs.get("keep_dims", false))};
  labels.adds_up = labels.linear = labels.one_value = sums;
  return labels;
}
Result sum(const View& v) { return reduction(v, true); }
Result other_reduction(const View& v) { return reduction(v, false); }

Result half_of_squares(const View& v) {
  AxisLabels labels;
  labels.adds_up = true;
  labels.inputs = {counted(v.in(0).rank())};
  labels.outputs = {{}};
  return labels;
}

Result reduce_to_shape(const View& v) {
  AxisLabels labels;
  labels.adds_up = labels.linear = labels.one_value = true;
  const Labels kept = broadcasting(v.in(1), v.in(0));
  labels.inputs = {counted(v.in(0).rank()), kept};
  labels.outputs = {kept};
  return labels;
}

Result broadcast_reduced(const View& v) {
  const int rank = v.out().rank();
  const auto axes = v.axes(2, rank);
  if (!axes) return std::nullopt;
  AxisLabels labels;
  Labels all = counted(rank);
  // A slice along an axis that it divides by the size of would be divided by its own.
  if (v.node().attrs.get("divide", false))
    for (const int axis : *axes) all[static_cast<std::size_t>(axis)] = AxisLabels::kNone;
  labels.inputs = {without(counted(rank), *axes, v.in(0).rank() == rank), all, none(v.in(2))};
  labels.outputs = {all};
  return labels;
}

/// Of values under another shape: groups of axes with as many elements, in which the first axes that are
/// longer than 1 go together.
Result reshape(const View& v) {
  const Shape &from = v.in(0), &to = v.out();
  AxisLabels labels;
  labels.linear = labels.one_value = true;
  Labels in = none(from), out = none(to);
  int next = 0;
  for (int i = 0, o = 0; i < from.rank() || o < to.rank();) {
    std::int64_t of_in = 1, of_out = 1;
    int first_in = -1, first_out = -1;
    const auto take = [](const Shape& shape, int& axis, std::int64_t& size, int& first) {
      if (axis >= shape.rank()) return false;
      if (shape[axis] != 1 && first < 0) first = axis;
      size *= shape[axis++];
      return true;
    };
    bool more = take(from, i, of_in, first_in) | take(to, o, of_out, first_out);
    while (more && of_in != of_out)
      more = of_in < of_out ? take(from, i, of_in, first_in) : take(to, o, of_out, first_out);
    if (of_in != of_out || of_in == 0) return std::nullopt;
    if (first_in < 0 || first_out < 0) continue;
    in[static_cast<std::size_t>(first_in)] = out[static_cast<std::size_t>(first_out)] = next++;
  }
  labels.inputs = {in};
  for (int i = 1; i < v.inputs(); ++i) labels.inputs.push_back(none(v.in(i)));
  labels.outputs = {out};
  return labels;
}

/// The second input has the output's shape and says no more.
Result reshape_like(const View& v) {
  Result labels = reshape(v);
  if (labels) labels->inputs[1] = labels->outputs[0];
  return labels;
}

Result transpose(const View& v) {
  const auto order = v.axes(1, v.out().rank());
  if (!order) return std::nullopt;
  AxisLabels labels;
  labels.linear = labels.one_value = true;
  labels.inputs = {counted(v.in(0).rank()), none(v.in(1))};
  labels.outputs = {*order};
  return labels;
}

/// Each row of the last axis by itself.
Result by_rows(const View& v) {
  Result labels = pointwise(v);
  for (auto* all : {&labels->inputs, &labels->outputs})
    for (Labels& own : *all)
      if (!own.empty()) own.back() = AxisLabels::kNone;
  return labels;
}

/// Rows of a table, whose columns can be cut.
Result gather(const View& v) {
  int axis = 0;
  if (v.inputs() > 2) {
    const auto said = v.axes(2, v.in(0).rank());
    if (!said || said->size() != 1) return std::nullopt;
    axis = (*said)[0];
  }
  if (v.node().attrs.get<std::int64_t>("batch_dims", 0) != 0) return std::nullopt;
  const int ids = v.in(1).rank();
  AxisLabels labels;
  labels.linear = labels.one_value = true;
  Labels table = none(v.in(0)), out = none(v.out()), indices = none(v.in(1));
  for (int a = 0; a < v.in(0).rank(); ++a) {
    if (a == axis) continue;
    table[static_cast<std::size_t>(a)] = a;
    out[static_cast<std::size_t>(a < axis ? a : a + ids - 1)] = a;
  }
  labels.inputs = {table, indices};
  if (v.inputs() > 2) labels.inputs.push_back(none(v.in(2)));
  labels.outputs = {out};
  return labels;
}

Result segment_sum(const View& v) {
  const int ids = v.in(1).rank(), rank = v.out().rank();
  AxisLabels labels;
  labels.linear = labels.one_value = true;
  Labels data = none(v.in(0)), out = none(v.out());
  for (int a = 1; a < rank; ++a)
    data[static_cast<std::size_t>(a + ids - 1)] = out[static_cast<std::size_t>(a)] = a;
  labels.inputs = {data, none(v.in(1)), none(v.in(2))};
  labels.outputs = {out};
  return labels;
}

/// Axes beside the one along which values stand side by side. `axis_input`, then values from `first`.
Result concat(const View& v, int axis_input, int first) {
  const auto axis = v.axes(axis_input, v.out().rank());
  if (!axis || axis->size() != 1) return std::nullopt;
  AxisLabels labels;
  Labels all = counted(v.out().rank());
  all[static_cast<std::size_t>((*axis)[0])] = AxisLabels::kNone;
  for (int i = 0; i < v.inputs(); ++i) labels.inputs.push_back(i == axis_input ? none(v.in(i)) : all);
  for (int o = 0; o < v.outputs(); ++o) labels.outputs.push_back(all);
  if (first > 1 && v.inputs() < first) return std::nullopt;
  return labels;
}
Result concat_v2(const View& v) { return concat(v, v.inputs() - 1, 0); }
Result split_like(const View& v) { return concat(v, 0, 1); }

const std::map<std::string_view, Result (*)(const View&)>& rules() {
  static const std::map<std::string_view, Result (*)(const View&)> rules{
      {"AddN", sum_of_inputs},
      {"Add", sum_of_inputs},
      {"AddV2", sum_of_inputs},
      {"Sub", sum_of_inputs},
      {"Identity", passed_on},
      {"Snapshot", passed_on},
      {"StopGradient", passed_on},
      {"PreventGradient", passed_on},
      {"Neg", passed_on},
      {"ReadVariableOp", passed_on},
      {"ZerosLike", pointwise},
      {"OnesLike", pointwise},
      {"MatMul", matmul},
      {"BatchMatMul", matmul},
      {"BatchMatMulV2", matmul},
      {"BatchMatMulV3", matmul},
      {"Einsum", einsum},
      {"BiasAdd", bias_add},
      {"BiasAddGrad", bias_add_grad},
      {"Sum", sum},
      {"Mean", other_reduction},
      {"Max", other_reduction},
      {"Min", other_reduction},
      {"Prod", other_reduction},
      {"L2Loss", half_of_squares},
      {"braid.ReduceToShapeOf", reduce_to_shape},
      {"braid.BroadcastReduced", broadcast_reduced},
      {"Reshape", reshape},
      {"ExpandDims", reshape},
      {"Squeeze", reshape},
      {"braid.ReshapeLike", reshape_like},
      {"Transpose", transpose},
      {"Softmax", by_rows},
      {"LogSoftmax", by_rows},
      {"braid.SoftmaxGrad", by_rows},
      {"braid.LogSoftmaxGrad", by_rows},
      {"Gather", gather},
      {"GatherV2", gather},
      {"ResourceGather", gather},
      {"UnsortedSegmentSum", segment_sum},
      {"ConcatV2", concat_v2},
      {"braid.SplitLike", split_like},
      {"braid.Dropout", pointwise},
  };
  return rules;
}

}  // namespace

std::optional<AxisLabels> axis_labels(const Graph& inferred, const Node& node) {
  const auto rule = rules().find(node.op->name);
  const bool is_pointwise =
      node.op->traits.elements == Elements::Pointwise && !node.op->stateful && node.outputs.size() == 1;
  if (rule == rules().end() && !is_pointwise) return std::nullopt;
  View view(inferred, node);
  if (!view.take_shapes()) return std::nullopt;
  return rule == rules().end() ? pointwise(view) : rule->second(view);
}

int axis_of_label(const AxisLabels::Labels& labels, int label) {
  const auto at = std::find(labels.begin(), labels.end(), label);
  return label == AxisLabels::kNone || at == labels.end() ? -1 : static_cast<int>(at - labels.begin());
}

std::optional<int> summed_axis(const AxisLabels& labels, int input) {
  if (!labels.adds_up || labels.outputs.size() != 1) return std::nullopt;
  const Labels& out = labels.outputs[0];
  const Labels& own = labels.inputs[static_cast<std::size_t>(input)];
  for (std::size_t axis = 0; axis < own.size(); ++axis)
    if (own[axis] != AxisLabels::kNone && std::find(out.begin(), out.end(), own[axis]) == out.end())
      return static_cast<int>(axis);
  return std::nullopt;
}

}  // namespace braid::worker
