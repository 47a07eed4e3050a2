#include "engine/ops/ragged/attention_kernels.cuh"

namespace braid::cuda::attention {

Kernels float16_kernels(std::int64_t width, bool softmax) {
  return tile_kernels<HalfTiles<Float16>>(width, softmax);
}

}  // namespace braid::cuda::attention
