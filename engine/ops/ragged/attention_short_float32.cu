#include "engine/ops/ragged/attention_short.cuh"

namespace braid::cuda::attention {

ShortLaunch float32_short(std::int64_t width) { return short_launch_of<FloatTiles<true>>(width); }

}  // namespace braid::cuda::attention
