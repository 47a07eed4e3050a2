#include "engine/ops/ragged/attention_kernels.cuh"

namespace braid::cuda::attention {

Kernels tf32_kernels(std::int64_t width, bool softmax) {
  return tile_kernels<FloatTiles<false>>(width, softmax);
}

}  // namespace braid::cuda::attention
