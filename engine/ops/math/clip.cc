// ClipByValue: y = max(min(x, high), low); low and high are scalars or have x's shape. Gradient
// (TensorFlow's): dy where low <= x <= high, 0 elsewhere; a bound gets dy where x lies beyond it.
#include "engine/fusion/rules.h"
#include "engine/ops/common/dispatch.h"
#include "engine/ops/common/grad_util.h"
#include "engine/ops/common/kernel_util.h"
#include "engine/ops/common/scalar_formulas.h"
#include "engine/ops/common/shape_rules.h"

namespace braid {
namespace {

template <class T>
BRAID_VECTOR_CLONES void clip_run(const T* x, const T* low, std::int64_t ls, const T* high, std::int64_t hs,
                                  T* y, std::int64_t n) {
  if (ls == 0 && hs == 0) {
    const T l = *low, h = *high;
#pragma GCC ivdep  // y is x or does not overlap it
    for (std::int64_t i = 0; i < n; ++i) y[i] = formula::clipped(x[i], l, h);
  } else {
    for (std::int64_t i = 0; i < n; ++i) y[i] = formula::clipped(x[i], low[i * ls], high[i * hs]);
  }
}

PreparedKernel prepare(const PrepareContext& c) {
  return with_number("ClipByValue", c.inputs[0].dtype, [&]<class T>() {
    const std::int64_t ls = c.inputs[1].shape.rank() == 0 ? 0 : 1, hs = c.inputs[2].shape.rank() == 0 ? 0 : 1;
    return parallel_kernel(c, c.outputs[0].shape.elements(), kElementGrain,
                           [=](const KernelArgs& args, std::int64_t begin, std::int64_t end) {
                             clip_run(args.in<T>(0) + begin, args.in<T>(1) + ls * begin, ls,
                                      args.in<T>(2) + hs * begin, hs, args.out<T>(0) + begin, end - begin);
                           });
  });
}

void infer(InferContext& c) {
  require_number(c, 0);
  Shape shape = c.shape(0);
  for (int bound : {1, 2}) {
    c.require_same_dtype(0, bound);
    if (c.shape(bound).has_rank() && c.shape(bound).rank() != 0) shape = merged_shape(c, 0, bound);
  }
  c.output(c.dtype(0), shape);
}

void gradient(GradContext& c) {
  const ValueRef zero = grad::scalar(c, 0);
  const ValueRef below = c.op("Less", {c.input(0), c.input(1)});
  const ValueRef above = c.op("Greater", {c.input(0), c.input(2)});
  const ValueRef beyond = c.op("LogicalOr", {below, above});
  c.set_grad(0, c.op("SelectV2", {beyond, zero, c.grad()}));
  grad::set_broadcast_grad(c, 1, c.op("SelectV2", {below, c.grad(), zero}));
  grad::set_broadcast_grad(c, 2, c.op("SelectV2", {above, c.grad(), zero}));
}

fusion::ElementLoop fused_loop(std::string_view, std::span<const DType> operands, DType dtype,
                               const fusion::Parameters&) {
  const bool alike =
      operands.size() == 3 && operands[0] == dtype && operands[1] == dtype && operands[2] == dtype;
  if (!alike || !(is_floating(dtype) || dtype == DType::Int32 || dtype == DType::Int64)) return {};
  return with_number("ClipByValue", dtype, []<class T>() -> fusion::ElementLoop {
    return [](const void* const* in, void* y, std::int64_t n) {
      clip_run(static_cast<const T*>(in[0]), static_cast<const T*>(in[1]), 1, static_cast<const T*>(in[2]), 1,
               static_cast<T*>(y), n);
    };
  });
}

}  // namespace

void register_clip(OpRegistry& registry) {
  OpDef def;
  def.name = "ClipByValue";
  def.traits = pointwise({"(a > c ? c : a) < b ? b : a > c ? c : a",
                          {"a < b || a > c ? 0 : 1", "a < b ? 1 : 0", "a > c ? 1 : 0"}});
  def.min_inputs = def.max_inputs = 3;
  def.infer = infer;
  def.gradient = gradient;
  def.cost = cost_per_output(2);
  def.cpu = prepare;
  def.in_place = {{0, 0}};
  registry.add(std::move(def));
  fusion::rules().add("ClipByValue", {.loop = fused_loop});
}

}  // namespace braid
