// BiasAdd: a vector added along the channel axis, the last one (data_format NHWC) or axis 1 (NCHW).
// BiasAddGrad: the sum over all other axes. Gradient: dx = dy, dbias = BiasAddGrad(dy).
#include <fmt/format.h>

#include "engine/fusion/rules.h"
#include "engine/ops/common/binary_loop.h"
#include "engine/ops/common/halves.h"
#include "engine/ops/common/reduce_loops.h"
#include "engine/ops/common/shape_rules.h"
#include "engine/ops/nn/channel_axis.h"

namespace braid {
namespace {

struct Plus {
  template <class T>
  BRAID_INLINE static T apply(T a, T b) {
    return static_cast<T>(static_cast<wrapping_t<T>>(a) + static_cast<wrapping_t<T>>(b));
  }
};
constexpr BinaryLoops kPlus = binary_numbers<Plus>();

void infer(InferContext& c) {
  require_number(c, 0);
  c.require_same_dtype(0, 1);
  require_min_rank(c, 0, 2);
  c.require_rank(1, 1);
  Shape out = c.shape(0);
  if (out.has_rank() && c.shape(1).has_rank()) {
    const int axis = channel_axis(c, out.rank());
    Shape channels;
    if (!merge_shapes(Shape{out[axis]}, c.shape(1), channels))
      c.fail(
          fmt::format("bias {} does not fit axis {} of {}", c.shape(1).to_string(), axis, out.to_string()));
    out.set_dim(axis, channels[0]);
  }
  c.output(c.dtype(0), out);
}

PreparedKernel prepare(const PrepareContext& c) {
  const Shape& value = c.inputs[0].shape;
  const int axis = channel_axis(c, value.rank());
  std::vector<std::int64_t> bias(static_cast<std::size_t>(value.rank() - axis), 1);
  bias[0] = value[axis];
  return prepare_binary(c, kPlus, value, Shape(std::move(bias)));
}

void gradient(GradContext& c) {
  const auto format = c.node().attrs.get<std::string>("data_format", "NHWC");
  c.set_grad(0, c.grad());
  c.set_grad(1, c.op("BiasAddGrad", {c.grad()}, {{"data_format", format}}));
}

void infer_grad(InferContext& c) {
  require_number(c, 0);
  require_min_rank(c, 0, 2);
  const Shape& value = c.shape(0);
  c.output(c.dtype(0), Shape{value.has_rank() ? value[channel_axis(c, value.rank())] : Shape::kUnknown});
}

PreparedKernel prepare_grad(const PrepareContext& c) {
  const Shape& value = c.inputs[0].shape;
  const std::vector<int> axes = axes_beside_channels(c, value.rank());
  return with_number("BiasAddGrad", c.inputs[0].dtype, [&]<class T>() {
    return prepare_reduce<T>(c, value, axes, reduce::loops_of<reduce::Sum, T>());
  });
}

bool fused_steps(fusion::StepWriter& w) {
  const Shape& value = w.output_info().shape;
  const bool last = w.node().attrs.get<std::string>("data_format", "NHWC") == "NHWC";
  std::vector<std::int64_t> bias(static_cast<std::size_t>(last ? 1 : value.rank() - 1), 1);
  bias[0] = value[last ? value.rank() - 1 : 1];
  const int x = w.input(0), b = w.input_as(1, Shape(std::move(bias)));
  w.output(0, w.apply_full("AddV2", {x, b}, w.output_info().dtype));
  return true;
}

/// Sums of columns where channels are last; NCHW's are left to the kernel.
bool fused_sum(fusion::StepWriter& w) {
  const Shape& value = w.input_info(0).shape;
  if (w.node().attrs.get<std::string>("data_format", "NHWC") != "NHWC" || !is_floating(w.input_info(0).dtype))
    return false;
  w.over(value, value[value.rank() - 1]);
  w.output(0, w.sum_columns(w.input(0)));
  return true;
}

}  // namespace

void register_bias_add(OpRegistry& registry) {
  OpDef add;
  add.name = "BiasAdd";
  add.traits = computes().batched(Batching::BiasAdd);
  add.min_inputs = add.max_inputs = 2;
  add.infer = infer;
  add.gradient = gradient;
  add.cost = cost_per_output(1);
  add.cpu = prepare;
  add.in_place = {{0, 0}};
  registry.add(std::move(add));

  OpDef grad;
  grad.name = "BiasAddGrad";
  grad.traits = computes().batched(Batching::BiasAddGrad);
  grad.min_inputs = grad.max_inputs = 1;
  grad.infer = infer_grad;
  grad.gradient = [](GradContext& c) {
    c.set_grad(0, c.op("BiasAdd", {c.op("ZerosLike", {c.input(0)}), c.grad()}, c.node().attrs));
  };
  grad.cost = cost_per_input(1);
  grad.cpu = prepare_grad;
  registry.add(takes_halves(std::move(grad), {.kind = HalfKind::Follower, .inputs = {0}}));
  fusion::rules().add("BiasAdd", {.steps = fused_steps});
  fusion::rules().add("BiasAddGrad", {.steps = fused_sum});
}

}  // namespace braid
