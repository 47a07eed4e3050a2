#include "engine/ops/ragged/attention_kernels.cuh"

namespace braid::cuda::attention {

Kernels bfloat16_kernels(std::int64_t width, bool softmax) {
  return tile_kernels<HalfTiles<BFloat16>>(width, softmax);
}

}  // namespace braid::cuda::attention
