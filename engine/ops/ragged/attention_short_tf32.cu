#include "engine/ops/ragged/attention_short.cuh"

namespace braid::cuda::attention {

ShortLaunch tf32_short(std::int64_t width) { return short_launch_of<FloatTiles<false>>(width); }

}  // namespace braid::cuda::attention
