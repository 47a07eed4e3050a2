#include "engine/ops/ragged/attention_short.cuh"

namespace braid::cuda::attention {

ShortLaunch bfloat16_short(std::int64_t width) { return short_launch_of<HalfTiles<BFloat16>>(width); }

}  // namespace braid::cuda::attention
