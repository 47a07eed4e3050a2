// In place of attention_groups.cu in a build for other devices.
#include "engine/ops/ragged/attention_args.cuh"

namespace braid::cuda::attention {

Kernels group_kernels(DType, std::int64_t, bool) { return {}; }

}  // namespace braid::cuda::attention
