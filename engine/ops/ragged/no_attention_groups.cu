// In place of attention_groups.cu in a build for other devices.
#include "engine/ops/ragged/dense_args.cuh"

namespace braid::cuda::attention {

template <class Args>
KernelsOf<Args> group_kernels(DType, std::int64_t, bool) {
  return {};
}

template KernelsOf<RaggedArgs> group_kernels<RaggedArgs>(DType, std::int64_t, bool);
template KernelsOf<DenseArgs> group_kernels<DenseArgs>(DType, std::int64_t, bool);

}  // namespace braid::cuda::attention
