// The helper ops of elementwise gradients, a row an op, with TensorFlow's names, argument order and
// semantics: some take (y, dy), some (dy, x) or (dy, y). Both inputs have the output's type and shape.
#include "engine/ops/common/dispatch.h"
#include "engine/ops/common/kernel_util.h"
#include "engine/ops/common/shape_rules.h"
#include "engine/ops/math/unary_grad_formulas.h"

namespace braid {
namespace {

using namespace unary_grad;

template <class T>
using Loop = void (*)(const T* a, const T* b, T* y, std::int64_t n, double alpha);

template <class Op, class T>
BRAID_VECTOR_CLONES void loop(const T* a, const T* b, T* y, std::int64_t n, double alpha) {
  const T al = static_cast<T>(alpha);
#pragma GCC ivdep  // y is a, or b, or overlaps neither
  for (std::int64_t i = 0; i < n; ++i) y[i] = Op::apply(a[i], b[i], al);
}

struct Row {
  const char* name;
  Loop<float> f32;
  Loop<double> f64;
  double flops;

  template <class T>
  Loop<T> of() const {
    if constexpr (std::is_same_v<T, float>)
      return f32;
    else
      return f64;
  }
};

template <class Op>
constexpr Row row(const char* name, double flops) {
  return {name, loop<Op, float>, loop<Op, double>, flops};
}

constexpr Row kRows[] = {
    row<SqrtGrad>("SqrtGrad", 5),
    row<RsqrtGrad>("RsqrtGrad", 4),
    row<ReciprocalGrad>("ReciprocalGrad", 3),
    row<ReciprocalGrad>("InvGrad", 3),
    row<TanhGrad>("TanhGrad", 3),
    row<SigmoidGrad>("SigmoidGrad", 3),
    row<ReluGrad>("ReluGrad", 1),
    row<Relu6Grad>("Relu6Grad", 2),
    row<EluGrad>("EluGrad", 3),
    row<SeluGrad>("SeluGrad", 3),
    row<LeakyReluGrad>("LeakyReluGrad", 2),
    row<SoftplusGrad>("SoftplusGrad", 26),
    row<SoftsignGrad>("SoftsignGrad", 8),
};

PreparedKernel prepare(const PrepareContext& c, const Row& row) {
  const auto alpha = c.attr<double>("alpha", 0.2);  // LeakyReluGrad's
  return with_float(row.name, c.inputs[0].dtype, [&]<class T>() {
    return parallel_kernel(
        c, c.outputs[0].shape.elements(), kElementGrain,
        [loop = row.of<T>(), alpha](const KernelArgs& args, std::int64_t begin, std::int64_t end) {
          loop(args.in<T>(0) + begin, args.in<T>(1) + begin, args.out<T>(0) + begin, end - begin, alpha);
        });
  });
}

}  // namespace

void register_unary_grad(OpRegistry& registry) {
  for (const Row& row : kRows) {
    OpDef def;
    def.name = row.name;
    def.min_inputs = def.max_inputs = 2;
    def.infer = [](InferContext& c) {
      require_floating(c, 0);
      infer_same_shapes(c);
    };
    def.no_gradient_reason = "it is part of a gradient; second derivatives are not made";
    def.cost = cost_per_output(row.flops);
    def.cpu = [&row](const PrepareContext& c) { return prepare(c, row); };
    def.in_place = {{0, 0}, {0, 1}};
    registry.add(std::move(def));
  }
}

}  // namespace braid
