#include "engine/ops/ragged/attention_short.cuh"

namespace braid::cuda::attention {

ShortLaunch float16_short(std::int64_t width) { return short_launch_of<HalfTiles<Float16>>(width); }

}  // namespace braid::cuda::attention
