// An op of one's own, Snake: y = x + sin(alpha x)^2 / alpha, alpha > 0 (Ziyin, Hartwig, Ueda, "Neural
// networks fail to learn periodic functions and how to fix it", 2020, equation 3). Attribute alpha, 1 where
// it is absent. Gradient: dy (1 + sin(2 alpha x)), as nodes. docs/user/own_ops.md goes through this file.
#include <cmath>

#include "engine/ir/op_library_entry.h"
#include "engine/ops/common/dispatch.h"
#include "engine/ops/common/kernel_util.h"

namespace {

using namespace braid;

void infer(InferContext& c) {
  if (!is_floating(c.dtype(0))) c.fail("input 0 must be floating");
  if (c.attr<double>("alpha", 1) <= 0) c.fail("alpha must be positive");
  c.output(c.dtype(0), c.shape(0));
}

PreparedKernel prepare(const PrepareContext& c) {
  return with_float("Snake", c.inputs[0].dtype, [&]<class T>() {
    const T alpha = static_cast<T>(c.attr<double>("alpha", 1));
    return parallel_kernel(c, c.outputs[0].shape.elements(), kElementGrain,
                           [alpha](const KernelArgs& args, std::int64_t begin, std::int64_t end) {
                             const T* x = args.in<T>(0);
                             T* y = args.out<T>(0);
                             for (std::int64_t i = begin; i < end; ++i) {
                               const T s = std::sin(alpha * x[i]);
                               y[i] = x[i] + s * s / alpha;
                             }
                           });
  });
}

void gradient(GradContext& c) {
  const double alpha = c.node().attrs.get<double>("alpha", 1);
  const bool wide = c.input_info(0).dtype == DType::Float64;
  const auto scalar = [&](double value) {
    return c.constant(wide ? Tensor::scalar(value) : Tensor::scalar(static_cast<float>(value)));
  };
  const ValueRef angle = c.op("Mul", {c.input(0), scalar(2 * alpha)});
  const ValueRef slope = c.op("AddV2", {c.op("Sin", {angle}), scalar(1)});
  c.set_grad(0, c.op("Mul", {c.grad(), slope}));
}

void register_snake(OpRegistry& registry) {
  OpDef def;
  def.name = "Snake";
  def.min_inputs = def.max_inputs = 1;
  def.infer = infer;
  def.gradient = gradient;
  def.cpu = prepare;
  def.in_place = {{0, 0}};
  // With a formula the op takes part in fused kernels, on GPUs too.
  def.traits =
      pointwise({"a + sin(alpha * a) * sin(alpha * a) / alpha", {"1 + sin(2 * alpha * a)"}, {{"alpha", 1}}});
  registry.add(std::move(def));
}

}  // namespace

BRAID_OP_LIBRARY(register_snake)
