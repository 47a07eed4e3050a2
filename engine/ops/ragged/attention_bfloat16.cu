#include "engine/ops/ragged/attention_kernels.cuh"
#include "engine/ops/ragged/dense_args.cuh"

namespace braid::cuda::attention {

template <class Args>
KernelsOf<Args> bfloat16_kernels(std::int64_t width, bool softmax) {
  return tile_kernels<Args, HalfTiles<BFloat16>>(width, softmax);
}

template KernelsOf<RaggedArgs> bfloat16_kernels<RaggedArgs>(std::int64_t, bool);
template KernelsOf<DenseArgs> bfloat16_kernels<DenseArgs>(std::int64_t, bool);

}  // namespace braid::cuda::attention
