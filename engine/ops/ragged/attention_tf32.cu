#include "engine/ops/ragged/attention_kernels.cuh"
#include "engine/ops/ragged/dense_args.cuh"

namespace braid::cuda::attention {

template <class Args>
KernelsOf<Args> tf32_kernels(std::int64_t width, bool softmax) {
  return tile_kernels<Args, FloatTiles<false>>(width, softmax);
}

template KernelsOf<RaggedArgs> tf32_kernels<RaggedArgs>(std::int64_t, bool);
template KernelsOf<DenseArgs> tf32_kernels<DenseArgs>(std::int64_t, bool);

}  // namespace braid::cuda::attention
