// CUDA kernels of the helper ops of elementwise gradients: the formulas of unary_grad_formulas.h.
#include "engine/ops/common/cuda/elementwise.cuh"
#include "engine/ops/math/unary_grad_formulas.h"

namespace braid {
namespace {

using namespace unary_grad;

template <class Op, class T>
struct Apply {
  T alpha;
  __device__ T operator()(T first, T second) const { return Op::apply(first, second, alpha); }
};

template <class Op, class T>
PreparedKernel prepare(const PrepareContext& c) {
  const std::int64_t n = c.outputs[0].shape.elements();
  const Apply<Op, T> f{static_cast<T>(c.attr<double>("alpha", 0.2))};
  PreparedKernel kernel;
  kernel.run = [n, f](const KernelArgs& a) {
    cuda::map<2, T, T>(a.stream, {a.in<T>(0), a.in<T>(1)}, a.out<T>(0), n, f);
  };
  return kernel;
}

struct Row {
  const char* name;
  PreparedKernel (*f32)(const PrepareContext&);
  PreparedKernel (*f64)(const PrepareContext&);
};
template <class Op>
constexpr Row row(const char* name) {
  return {name, prepare<Op, float>, prepare<Op, double>};
}

constexpr Row kRows[] = {
    row<SqrtGrad>("SqrtGrad"),
    row<RsqrtGrad>("RsqrtGrad"),
    row<ReciprocalGrad>("ReciprocalGrad"),
    row<ReciprocalGrad>("InvGrad"),
    row<TanhGrad>("TanhGrad"),
    row<SigmoidGrad>("SigmoidGrad"),
    row<ReluGrad>("ReluGrad"),
    row<Relu6Grad>("Relu6Grad"),
    row<EluGrad>("EluGrad"),
    row<SeluGrad>("SeluGrad"),
    row<LeakyReluGrad>("LeakyReluGrad"),
    row<SoftplusGrad>("SoftplusGrad"),
    row<SoftsignGrad>("SoftsignGrad"),
};

}  // namespace

void register_unary_grad_cuda(OpRegistry& registry) {
  for (const Row& row : kRows)
    registry.add_cuda(
        row.name,
        [&row](const PrepareContext& c) {
          return c.inputs[0].dtype == DType::Float32 ? row.f32(c) : row.f64(c);
        },
        [](const Node&, std::span<const OutputInfo> inputs) {
          return inputs[0].dtype == DType::Float32 || inputs[0].dtype == DType::Float64;
        });
}

}  // namespace braid
