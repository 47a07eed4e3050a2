// CUDA kernels of braid.SigmoidCrossEntropy and its gradient: the formulas of common/scalar_formulas.h.
#include "engine/ops/common/cuda/elementwise.cuh"
#include "engine/ops/common/dispatch.h"
#include "engine/ops/common/scalar_formulas.h"

namespace braid {
namespace {

template <class T>
struct Loss {
  __device__ T operator()(T x, T z) const { return formula::sigmoid_cross_entropy(x, z); }
};

PreparedKernel prepare(const PrepareContext& c) {
  const std::int64_t n = c.outputs[0].shape.elements();
  return with_float("braid.SigmoidCrossEntropy", c.inputs[0].dtype, [&]<class T>() {
    PreparedKernel kernel;
    kernel.run = [n](const KernelArgs& a) {
      cuda::map<2, T, T>(a.stream, {a.in<T>(0), a.in<T>(1)}, a.out<T>(0), n, Loss<T>{});
    };
    return kernel;
  });
}

template <class T>
struct Gradient {
  __device__ T operator()(T x, T z, T dy) const { return formula::sigmoid_cross_entropy_grad(x, z, dy); }
};

PreparedKernel prepare_grad(const PrepareContext& c) {
  const std::int64_t n = c.outputs[0].shape.elements();
  return with_float("braid.SigmoidCrossEntropyGrad", c.inputs[0].dtype, [&]<class T>() {
    PreparedKernel kernel;
    kernel.run = [n](const KernelArgs& a) {
      cuda::map<3, T, T>(a.stream, {a.in<T>(0), a.in<T>(1), a.in<T>(2)}, a.out<T>(0), n, Gradient<T>{});
    };
    return kernel;
  });
}

}  // namespace

void register_sigmoid_cross_entropy_cuda(OpRegistry& registry) {
  registry.add_cuda("braid.SigmoidCrossEntropy", prepare);
  registry.add_cuda("braid.SigmoidCrossEntropyGrad", prepare_grad);
}

}  // namespace braid
