// Sum, Mean, Max, Min, Prod of numbers, All and Any of bools, along the axes that input 1 holds (attribute
// keep_dims leaves axes of size 1). Nothing to reduce gives the operation's neutral element, Mean NaN.
// Gradients: Sum and Mean spread dy; Max and Min give it to the elements that equal the result, in equal
// shares (TensorFlow's rule); Prod gives dy times the product of the others.
#include "engine/fusion/rules.h"
#include "engine/ops/common/dispatch.h"
#include "engine/ops/common/fused_sums.h"
#include "engine/ops/common/grad_util.h"
#include "engine/ops/common/halves.h"
#include "engine/ops/common/joined_axes.h"
#include "engine/ops/common/reduce_loops.h"
#include "engine/ops/common/shape_rules.h"

namespace braid {
namespace {

void infer(InferContext& c) {
  require_index_dtype(c, 1);
  const bool keep_dims = c.attr<bool>("keep_dims", false);
  const Shape& shape = c.shape(0);
  if (!shape.has_rank()) return c.output(c.dtype(0), Shape::unknown_rank());
  if (const auto axes = reduction_axes(c, 1, shape.rank()))
    return c.output(c.dtype(0), reduced_shape(shape, *axes, keep_dims));
  const std::vector<std::int64_t> dims(static_cast<std::size_t>(shape.rank()), Shape::kUnknown);
  c.output(c.dtype(0), keep_dims ? Shape(dims) : Shape::unknown_rank());
}

void infer_number(InferContext& c) {
  require_number(c, 0);
  infer(c);
}

void infer_bool(InferContext& c) {
  require_dtype(c, 0, {DType::Bool});
  infer(c);
}

template <class Op>
PreparedKernel prepare(const PrepareContext& c) {
  const Shape& shape = c.inputs[0].shape;
  const std::vector<int> axes = known_axes(c, 1, shape.rank());
  return with_number(c.node.op->name, c.inputs[0].dtype,
                     [&]<class T>() { return prepare_reduce<T>(c, shape, axes, reduce::loops_of<Op, T>()); });
}

PreparedKernel prepare_mean(const PrepareContext& c) {
  const Shape& shape = c.inputs[0].shape;
  const std::vector<int> axes = known_axes(c, 1, shape.rank());
  const std::int64_t count = reduced_count(shape, axes);
  return with_number("Mean", c.inputs[0].dtype, [&]<class T>() {
    return prepare_reduce<T>(c, shape, axes, reduce::loops_of<reduce::Sum, T>(), mean_divisor<T>(count));
  });
}

template <class Op>
PreparedKernel prepare_bool(const PrepareContext& c) {
  const Shape& shape = c.inputs[0].shape;
  return prepare_reduce<std::uint8_t>(c, shape, known_axes(c, 1, shape.rank()),
                                      reduce::loops_of<Op, std::uint8_t>());
}

ValueRef spread(GradContext& c, ValueRef value, bool divide = false) {
  return c.op("braid.BroadcastReduced", {value, c.input(0), c.input(1)}, {{"divide", divide}});
}

void gradient_sum(GradContext& c) { c.set_grad(0, spread(c, c.grad())); }
void gradient_mean(GradContext& c) { c.set_grad(0, spread(c, c.grad(), true)); }

void gradient_extreme(GradContext& c) {
  const ValueRef hit = c.op("Equal", {c.input(0), spread(c, c.output())});
  const ValueRef mask = c.op("Cast", {hit}, {{"DstT", c.input_info(0).dtype}, {"SrcT", DType::Bool}});
  const ValueRef hits =
      c.op("Sum", {mask, c.input(1)}, {{"keep_dims", c.node().attrs.get<bool>("keep_dims", false)}});
  c.set_grad(0, grad::mul(c, mask, spread(c, grad::div(c, c.grad(), hits))));
}

void gradient_prod(GradContext& c) {
  c.set_grad(0, c.op("braid.ProdGrad", {c.input(0), c.grad(), c.input(1)}));
}

struct Row {
  const char* name;
  void (*infer)(InferContext&);
  PreparedKernel (*prepare)(const PrepareContext&);
  void (*gradient)(GradContext&);
  Batching batching = Batching::Never;
  bool keeps_range = false;  // its result is an element
};

constexpr Row kRows[] = {
    {"Sum", infer_number, prepare<reduce::Sum>, gradient_sum, Batching::Reduce},
    {"Mean", infer_number, prepare_mean, gradient_mean, Batching::Reduce},
    {"Max", infer_number, prepare<reduce::Max>, gradient_extreme, Batching::Never, true},
    {"Min", infer_number, prepare<reduce::Min>, gradient_extreme, Batching::Never, true},
    {"Prod", infer_number, prepare<reduce::Prod>, gradient_prod},
    {"All", infer_bool, prepare_bool<reduce::And>, nullptr},
    {"Any", infer_bool, prepare_bool<reduce::Or>, nullptr},
};

OpTraits traits_of(const Row& row) {
  const bool is_bool = row.infer == infer_bool;
  const OpTraits traits = computes().batched(row.batching);
  const OpTraits typed =
      is_bool ? traits.type_attrs({{"Tidx", 1}}) : traits.type_attrs({{"T", 0}, {"Tidx", 1}});
  return row.keeps_range ? typed.keeps_range() : typed;
}

/// The axes that the node reduces, where they are known.
std::vector<int> fused_axes(const fusion::StepWriter& w) {
  std::vector<int> axes;
  const int rank = w.input_info(0).shape.rank();
  if (w.known(1))
    for (const std::int64_t axis : tensor_to_int64s(*w.known(1)))
      axes.push_back(static_cast<int>(axis < 0 ? axis + rank : axis));
  return axes;
}

bool over_last_axes(fusion::StepWriter& w) { return fused::over_rows(w, fused_axes(w)); }

template <fusion::RowReduction kReduction>
bool fused_steps(fusion::StepWriter& w) {
  if (w.input_info(0).dtype == DType::Bool) return false;
  if (over_last_axes(w)) {
    const int x = w.input(0);
    w.output(0, w.reduce(kReduction, x));
    return true;
  }
  if (kReduction == fusion::RowReduction::Sum && fused::over_columns(w, fused_axes(w))) {
    w.output(0, w.sum_columns(w.input(0)));
    return true;
  }
  const std::int64_t length = fused::over_lines(w, fused_axes(w));
  if (length == 0) return false;
  w.output(0, w.fold(kReduction, w.input(0), length));
  return true;
}

bool fused_mean(fusion::StepWriter& w) {
  const DType dtype = w.input_info(0).dtype;
  if (!is_floating(dtype)) return false;
  const std::int64_t count = w.input_info(0).shape.elements() / w.output_info().shape.elements();
  if (!over_last_axes(w)) {
    const std::int64_t length = fused::over_lines(w, fused_axes(w));
    if (length == 0) return false;
    // What is added up is an output, so that each element is divided.
    const int share = w.apply("RealDiv", {w.input(0), w.constant(static_cast<double>(count), dtype)});
    w.output(0, w.fold(fusion::RowReduction::Sum, share, length));
    return true;
  }
  const int sum = w.reduce(fusion::RowReduction::Sum, w.input(0));
  w.output(0, w.apply("RealDiv", {sum, w.constant(static_cast<double>(count), dtype)}));
  return true;
}

}  // namespace

void register_reduce(OpRegistry& registry) {
  for (const Row& row : kRows) {
    OpDef def;
    def.name = row.name;
    def.traits = traits_of(row);
    def.min_inputs = def.max_inputs = 2;
    def.infer = row.infer;
    if (row.gradient)
      def.gradient = row.gradient;
    else
      def.no_gradient_reason = "the output is bool";
    def.cost = cost_per_input(1);
    def.cpu = row.prepare;
    def.shape_values = {1};
    def.same_shape_identity = 0;  // no axes, or axes of size 1
    if (const std::string_view name = row.name; name == "Sum" || name == "Mean")
      def = takes_halves(std::move(def), {.kind = HalfKind::Follower, .inputs = {0}});
    registry.add(std::move(def));
  }
  fusion::rules().add("Sum", {.steps = fused_steps<fusion::RowReduction::Sum>});
  fusion::rules().add("Prod", {.steps = fused_steps<fusion::RowReduction::Prod>});
  fusion::rules().add("Max", {.steps = fused_steps<fusion::RowReduction::Max>});
  fusion::rules().add("Min", {.steps = fused_steps<fusion::RowReduction::Min>});
  fusion::rules().add("Mean", {.steps = fused_mean});
}

}  // namespace braid
