#include "engine/ops/ragged/attention_kernels.cuh"

namespace braid::cuda::attention {

Kernels float32_kernels(std::int64_t width, bool softmax) {
  return tile_kernels<FloatTiles<true>>(width, softmax);
}

}  // namespace braid::cuda::attention
