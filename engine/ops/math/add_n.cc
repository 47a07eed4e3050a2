// AddN: the sum of n >= 1 tensors of one shape, added from first to last. Gradient: each input gets dy.
#include "engine/fusion/rules.h"
#include "engine/ops/common/dispatch.h"
#include "engine/ops/common/kernel_util.h"
#include "engine/ops/common/shape_rules.h"

namespace braid {
namespace {

// Four inputs a pass keep the output's traffic low and the loop's operands in registers.
template <class T>
BRAID_VECTOR_CLONES void sum4(const T* a, const T* b, const T* c, const T* d, T* y, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) y[i] = ((a[i] + b[i]) + c[i]) + d[i];
}

template <class T>
BRAID_VECTOR_CLONES void sum2(const T* a, const T* b, T* y, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) y[i] = a[i] + b[i];
}

template <class T>
void sum_range(const KernelArgs& args, int inputs, std::int64_t begin, std::int64_t end) {
  const std::int64_t n = end - begin;
  T* y = args.out<T>(0) + begin;
  const T* sum = args.in<T>(0) + begin;
  if (inputs == 1 && sum != y) std::copy(sum, sum + n, y);
  for (int i = 1; i < inputs; sum = y) {
    const T* b = args.in<T>(i) + begin;
    if (i + 2 < inputs) {
      sum4(sum, b, args.in<T>(i + 1) + begin, args.in<T>(i + 2) + begin, y, n);
      i += 3;
    } else {
      sum2(sum, b, y, n);
      i += 1;
    }
  }
}

PreparedKernel prepare(const PrepareContext& c) {
  const int inputs = static_cast<int>(c.inputs.size());
  return with_number("AddN", c.inputs[0].dtype, [&]<class T>() {
    return parallel_kernel(c, c.outputs[0].shape.elements(), kElementGrain,
                           [inputs](const KernelArgs& args, std::int64_t begin, std::int64_t end) {
                             sum_range<T>(args, inputs, begin, end);
                           });
  });
}

void infer(InferContext& c) {
  require_number(c, 0);
  infer_same_shapes(c);
}

bool fused_steps(fusion::StepWriter& w) {
  const int inputs = static_cast<int>(w.node().inputs.size());
  if (inputs < 2) return false;
  int sum = w.input(0);
  for (int i = 1; i < inputs; ++i) {
    const int next = w.input(i);
    sum = w.apply_full("AddV2", {sum, next}, w.output_info().dtype);
  }
  w.output(0, sum);
  return true;
}

}  // namespace

void register_add_n(OpRegistry& registry) {
  OpDef def;
  def.name = "AddN";
  def.traits = computes().batched(Batching::Elementwise);
  def.min_inputs = 1;
  def.max_inputs = -1;
  def.infer = infer;
  def.gradient = [](GradContext& c) {
    for (std::size_t i = 0; i < c.node().inputs.size(); ++i) c.set_grad(static_cast<int>(i), c.grad());
  };
  def.cost = [](const InferContext& c, std::span<const OutputInfo> outputs) {
    return Cost{known_elements(outputs[0].shape) * (c.inputs() - 1), traffic_bytes(c, outputs)};
  };
  def.cpu = prepare;
  registry.add(std::move(def));
  fusion::rules().add("AddN", {.steps = fused_steps});
}

}  // namespace braid
