#include "engine/ops/ragged/attention_kernels.cuh"
#include "engine/ops/ragged/dense_args.cuh"

namespace braid::cuda::attention {

template <class Args>
KernelsOf<Args> float16_kernels(std::int64_t width, bool softmax) {
  return tile_kernels<Args, HalfTiles<Float16>>(width, softmax);
}

template KernelsOf<RaggedArgs> float16_kernels<RaggedArgs>(std::int64_t, bool);
template KernelsOf<DenseArgs> float16_kernels<DenseArgs>(std::int64_t, bool);

}  // namespace braid::cuda::attention
