// braid.SigmoidCrossEntropy(logits x, labels z): the loss of each element, which
// tf.nn.sigmoid_cross_entropy_with_logits builds from six ops.
//   -z log sigmoid(x) - (1 - z) log(1 - sigmoid(x))  =  max(x, 0) - x z + log(1 + exp(-|x|))
// The right side never takes the logarithm of a difference. Gradient: dx = dy (sigmoid(x) - z), which is
// braid.SigmoidCrossEntropyGrad(x, z, dy), and dz = -dy x.
#include "engine/fusion/rules.h"
#include "engine/ops/common/dispatch.h"
#include "engine/ops/common/grad_util.h"
#include "engine/ops/common/kernel_util.h"
#include "engine/ops/common/scalar_formulas.h"
#include "engine/ops/common/shape_rules.h"

namespace braid {
namespace {

template <class T>
BRAID_VECTOR_CLONES void losses(const T* x, const T* z, T* y, std::int64_t n) {
#pragma GCC ivdep  // y is x, or z, or overlaps neither
  for (std::int64_t i = 0; i < n; ++i) y[i] = formula::sigmoid_cross_entropy(x[i], z[i]);
}

PreparedKernel prepare(const PrepareContext& c) {
  return with_float("braid.SigmoidCrossEntropy", c.inputs[0].dtype, [&]<class T>() {
    return parallel_kernel(c, c.outputs[0].shape.elements(), kElementGrain,
                           [](const KernelArgs& args, std::int64_t begin, std::int64_t end) {
                             losses(args.in<T>(0) + begin, args.in<T>(1) + begin, args.out<T>(0) + begin,
                                    end - begin);
                           });
  });
}

template <class T>
BRAID_VECTOR_CLONES void gradients(const T* x, const T* z, const T* dy, T* dx, std::int64_t n) {
#pragma GCC ivdep  // dx is one of the others, or overlaps none
  for (std::int64_t i = 0; i < n; ++i) dx[i] = formula::sigmoid_cross_entropy_grad(x[i], z[i], dy[i]);
}

PreparedKernel prepare_grad(const PrepareContext& c) {
  return with_float("braid.SigmoidCrossEntropyGrad", c.inputs[0].dtype, [&]<class T>() {
    return parallel_kernel(c, c.outputs[0].shape.elements(), kElementGrain,
                           [](const KernelArgs& args, std::int64_t begin, std::int64_t end) {
                             gradients(args.in<T>(0) + begin, args.in<T>(1) + begin, args.in<T>(2) + begin,
                                       args.out<T>(0) + begin, end - begin);
                           });
  });
}

void infer(InferContext& c) {
  require_floating(c, 0);
  infer_same_shapes(c);
}

template <class T>
fusion::ElementLoop fused_loop_of(std::size_t operands) {
  if (operands == 2)
    return [](const void* const* in, void* y, std::int64_t n) {
      losses(static_cast<const T*>(in[0]), static_cast<const T*>(in[1]), static_cast<T*>(y), n);
    };
  return [](const void* const* in, void* y, std::int64_t n) {
    gradients(static_cast<const T*>(in[0]), static_cast<const T*>(in[1]), static_cast<const T*>(in[2]),
              static_cast<T*>(y), n);
  };
}

/// Of the loss with two operands, of its gradient with three.
fusion::ElementLoop fused_loop(std::string_view, std::span<const DType> operands, DType dtype,
                               const fusion::Parameters&) {
  for (const DType operand : operands)
    if (operand != dtype) return {};
  if (dtype == DType::Float32) return fused_loop_of<float>(operands.size());
  if (dtype == DType::Float64) return fused_loop_of<double>(operands.size());
  return {};
}

}  // namespace

void register_sigmoid_cross_entropy(OpRegistry& registry) {
  OpDef def;
  def.name = "braid.SigmoidCrossEntropy";
  def.traits = pointwise({"max(a, 0) - a * b + log1p(exp(-abs(a)))", {"sigmoid(a) - b", "-a"}});
  def.in_files = true;
  def.min_inputs = def.max_inputs = 2;
  def.infer = infer;
  def.gradient = [](GradContext& c) {
    c.set_grad(0, c.op("braid.SigmoidCrossEntropyGrad", {c.input(0), c.input(1), c.grad()}));
    c.set_grad(1, grad::neg(c, grad::mul(c, c.grad(), c.input(0))));
  };
  def.cost = cost_per_output(55);
  def.cpu = prepare;
  def.in_place = {{0, 0}, {0, 1}};
  registry.add(std::move(def));

  OpDef grad;
  grad.name = "braid.SigmoidCrossEntropyGrad";
  grad.traits = pointwise({"c * (sigmoid(a) - b)"});
  grad.min_inputs = grad.max_inputs = 3;
  grad.infer = infer;
  grad.no_gradient_reason = "it is part of a gradient; second derivatives are not made";
  grad.cost = cost_per_output(25);
  grad.cpu = prepare_grad;
  grad.in_place = {{0, 0}, {0, 1}, {0, 2}};
  registry.add(std::move(grad));
  fusion::rules().add("braid.SigmoidCrossEntropy", {.loop = fused_loop});
  fusion::rules().add("braid.SigmoidCrossEntropyGrad", {.loop = fused_loop});
}

}  // namespace braid
