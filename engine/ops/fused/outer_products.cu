// CUDA kernel of braid.SumOfOuterProducts (common/cuda/combine_vectors.h).
#include <algorithm>

#include "engine/ops/common/cuda/combine_vectors.h"
#include "engine/ops/common/cuda/launch.cuh"

namespace braid {
namespace {

cuda::Combination combination(std::span<const OutputInfo> inputs) {
  const Shape &left = inputs.front().shape, &right = inputs.back().shape;
  const int last = left.rank() - 1;
  const std::int64_t terms = last == 3 ? left[0] : static_cast<std::int64_t>(inputs.size()) / 2;
  cuda::Combination c;
  c.examples = left[last - 2];
  c.terms = static_cast<int>(std::min<std::int64_t>(terms, cuda::Combination::kMostTerms + 1));
  c.rows = left[last];
  c.columns = right[last];
  c.factor_stride = c.rows;
  c.factor_row = 1;
  c.vector_stride = c.out_row = c.columns;
  c.out_stride = c.rows * c.columns;
  return c;
}

PreparedKernel prepare(const PrepareContext& c) {
  PreparedKernel kernel;
  const bool lanes = c.inputs[0].shape.rank() == 4;
  kernel.run = [lanes, sums = combination(c.inputs)](const KernelArgs& a) {
    cuda::CombinationArgs args;
    for (int i = 0; i < sums.terms; ++i) {
      const auto term = static_cast<std::size_t>(i);
      args.factors[term] = lanes ? a.in<float>(0) + i * sums.examples * sums.factor_stride : a.in<float>(i);
      args.vectors[term] =
          lanes ? a.in<float>(1) + i * sums.examples * sums.vector_stride : a.in<float>(sums.terms + i);
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
