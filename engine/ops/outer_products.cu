// CUDA kernel of braid.SumOfOuterProducts (common/cuda/combine_vectors.h).
#include "engine/ops/common/cuda/combine_vectors.h"
#include "engine/ops/common/cuda/launch.cuh"

namespace braid {
namespace {

cuda::Combination combination(std::span<const OutputInfo> inputs) {
  const Shape &left = inputs.front().shape, &right = inputs.back().shape;
  cuda::Combination c;
  c.examples = left[0];
  c.terms = static_cast<int>(inputs.size()) / 2;
  c.rows = static_cast<int>(left[2]);
  c.columns = right[2];
  c.factor_stride = left[2];
  c.factor_row = 1;
  c.vector_stride = c.out_row = right[2];
  c.out_stride = left[2] * right[2];
  return c;
}

PreparedKernel prepare(const PrepareContext& c) {
  PreparedKernel kernel;
  kernel.run = [sums = combination(c.inputs)](const KernelArgs& a) {
    cuda::CombinationArgs args;
    for (int i = 0; i < sums.terms; ++i) {
      args.factors[static_cast<std::size_t>(i)] = a.in<float>(i);
      args.vectors[static_cast<std::size_t>(i)] = a.in<float>(sums.terms + i);
    }
    args.out = a.out<float>(0);
    args.stream = a.stream;
    cuda::combine_vectors(sums, args);
  };
  return kernel;
}

bool supports(const Node&, std::span<const OutputInfo> inputs) {
  return inputs[0].dtype == DType::Float32 && combination(inputs).is_supported();
}

}  // namespace

void register_outer_products_cuda(OpRegistry& registry) {
  registry.add_cuda("braid.SumOfOuterProducts", prepare, supports);
}

}  // namespace braid
