// BroadcastTo(x, shape). On vectors that are shapes: BroadcastArgs(s0, s1), the shape that both broadcast to,
// and BroadcastGradientArgs(s0, s1), the axes over which the gradients of x0 and x1 are summed (TensorFlow's
// gradients of binary ops; shared axes of 1 count on both sides, equal shapes have none).
#include <fmt/format.h>

#include <utility>

#include "engine/fusion/rules.h"
#include "engine/ops/common/box_plan.h"
#include "engine/ops/common/dispatch.h"
#include "engine/ops/common/kernel_util.h"
#include "engine/ops/common/shape_rules.h"

namespace braid {
namespace {

void infer_broadcast_to(InferContext& c) {
  c.require_rank(1, 1);
  require_index_dtype(c, 1);
  if (c.value(1)) {
    const Shape to(tensor_to_int64s(*c.value(1)));
    Shape result;
    if (c.shape(0).has_rank() && (!broadcast_shapes(c.shape(0), to, result) || result.rank() != to.rank() ||
                                  (c.shape(0).is_static() && result != to)))
      c.fail(fmt::format("shape {} does not broadcast to {}", c.shape(0).to_string(), to.to_string()));
    return c.output(c.dtype(0), to);
  }
  c.output(c.dtype(0), c.shape(1).is_static()
                           ? Shape(std::vector<std::int64_t>(static_cast<std::size_t>(c.shape(1)[0]), -1))
                           : Shape::unknown_rank());
}

void require_shape_vectors(const InferContext& c) {
  for (int i : {0, 1}) {
    c.require_rank(i, 1);
    require_index_dtype(c, i);
  }
  c.require_same_dtype(0, 1);
}

void infer_broadcast_args(InferContext& c) {
  require_shape_vectors(c);
  const Shape& a = c.shape(0);
  const Shape& b = c.shape(1);
  const bool known = a.is_static() && b.is_static();
  c.output(c.dtype(0), Shape{known ? std::max(a[0], b[0]) : Shape::kUnknown});
}

PreparedKernel prepare_broadcast_args(const PrepareContext& c) {
  const std::int64_t ranks[] = {c.inputs[0].shape[0], c.inputs[1].shape[0]};
  return with_index("BroadcastArgs", c.inputs[0].dtype, [&]<class T>() {
    return serial_kernel([r0 = ranks[0], r1 = ranks[1], place = place_of(c.node)](const KernelArgs& a) {
      const Shape s0(std::vector<std::int64_t>(a.in<T>(0), a.in<T>(0) + r0));
      const Shape s1(std::vector<std::int64_t>(a.in<T>(1), a.in<T>(1) + r1));
      Shape result;
      if (!broadcast_shapes(s0, s1, result))
        throw InvalidArgument(
            fmt::format("{}: shapes {} and {} do not broadcast", place, s0.to_string(), s1.to_string()));
      std::copy(result.dims().begin(), result.dims().end(), a.out<T>(0));
    });
  });
}

using Axes = std::vector<std::int64_t>;

std::pair<Axes, Axes> reduced_axes(const Axes& s0, const Axes& s1) {
  std::pair<Axes, Axes> reduced;
  if (s0 == s1) return reduced;
  const std::size_t rank = std::max(s0.size(), s1.size());
  for (std::size_t i = 0; i < rank; ++i) {
    const auto dim = [&](const Axes& s) { return i < rank - s.size() ? 1 : s[i - (rank - s.size())]; };
    if (dim(s0) == 1) reduced.first.push_back(static_cast<std::int64_t>(i));
    if (dim(s1) == 1) reduced.second.push_back(static_cast<std::int64_t>(i));
  }
  return reduced;
}

void infer_gradient_args(InferContext& c) {
  require_shape_vectors(c);
  std::int64_t n0 = Shape::kUnknown, n1 = Shape::kUnknown;
  if (c.value(0) && c.value(1)) {
    const Axes s0 = tensor_to_int64s(*c.value(0)), s1 = tensor_to_int64s(*c.value(1));
    Shape result;
    if (!broadcast_shapes(Shape(s0), Shape(s1), result))
      c.fail(fmt::format("shapes {} and {} do not broadcast", Shape(s0).to_string(), Shape(s1).to_string()));
    const auto [r0, r1] = reduced_axes(s0, s1);
    n0 = static_cast<std::int64_t>(r0.size());
    n1 = static_cast<std::int64_t>(r1.size());
  }
  c.output(c.dtype(0), Shape{n0});
  c.output(c.dtype(0), Shape{n1});
}

PreparedKernel prepare_gradient_args(const PrepareContext& c) {
  const auto reduced = reduced_axes(tensor_to_int64s(*c.values[0]), tensor_to_int64s(*c.values[1]));
  return with_index("BroadcastGradientArgs", c.inputs[0].dtype, [&]<class T>() {
    return serial_kernel([reduced](const KernelArgs& a) {
      std::copy(reduced.first.begin(), reduced.first.end(), a.out<T>(0));
      std::copy(reduced.second.begin(), reduced.second.end(), a.out<T>(1));
    });
  });
}

/// The input repeated, for regions that read it so.
bool fused_repeat(fusion::StepWriter& w) {
  const DType dtype = w.output_info().dtype;
  if (w.known(0) ||
      !(is_floating(dtype) || dtype == DType::Int32 || dtype == DType::Int64 || dtype == DType::Bool))
    return false;
  w.output(0, w.cast(w.input(0), dtype));
  return true;
}

}  // namespace

BoxPlan plans::broadcast_to(const PrepareContext& c) {
  const Shape& in = c.inputs[0].shape;
  const Shape& out = c.outputs[0].shape;
  const std::vector<std::int64_t> src = row_major_strides(in);
  const std::vector<std::int64_t> dst = row_major_strides(out);
  std::vector<BoxAxis> axes;
  for (int i = 0; i < out.rank(); ++i) {
    const int from = i - (out.rank() - in.rank());
    const bool repeats = from < 0 || in[from] == 1;
    axes.push_back(
        {out[i], repeats ? 0 : src[static_cast<std::size_t>(from)], dst[static_cast<std::size_t>(i)]});
  }
  return {{{BoxCopy(axes, 0, 0, dtype_size(c.inputs[0].dtype)), 0, 0}}};
}

void register_broadcast(OpRegistry& registry) {
  fusion::rules().add("BroadcastTo", {.steps = fused_repeat});
  registry.add({.name = "BroadcastTo",
                .traits = moves().on_string_ids().type_attrs({{"T", 0}, {"Tidx", 1}}),
                .min_inputs = 2,
                .max_inputs = 2,
                .infer = infer_broadcast_to,
                .gradient = [](GradContext& c) { c.set_grad(0, c.reduce_to(c.grad(), c.input(0))); },
                .cpu = prepare_boxes<plans::broadcast_to>,
                .shape_values = {1}});
  const std::string reason = "its outputs are integers";
  registry.add({.name = "BroadcastArgs",
                .traits = computes(),
                .min_inputs = 2,
                .max_inputs = 2,
                .infer = infer_broadcast_args,
                .no_gradient_reason = reason,
                .cpu = prepare_broadcast_args});
  registry.add({.name = "BroadcastGradientArgs",
                .traits = computes().names({"r0", "r1"}),
                .min_inputs = 2,
                .max_inputs = 2,
                .infer = infer_gradient_args,
                .no_gradient_reason = reason,
                .cpu = prepare_gradient_args,
                .shape_values = {0, 1}});
}

}  // namespace braid
