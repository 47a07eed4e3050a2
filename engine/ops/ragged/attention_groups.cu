// Compiled for sm_90a alone, which has the products of groups of warps.
#include "engine/ops/ragged/attention_kernels.cuh"
#include "engine/ops/ragged/dense_args.cuh"

namespace braid::cuda::attention {
namespace {

template <class Args, class E>
KernelsOf<Args> of_halves(std::int64_t width, bool softmax) {
  if (width <= 32 || width > 128) return {};
  if (width <= 64) return kernels_of_width<Args, GroupTiles<E>, 64>(softmax);
  return kernels_of_width<Args, GroupTiles<E>, 128>(softmax);
}

}  // namespace

template <class Args>
KernelsOf<Args> group_kernels(DType half, std::int64_t width, bool softmax) {
  return half == DType::BFloat16 ? of_halves<Args, BFloat16>(width, softmax)
                                 : of_halves<Args, Float16>(width, softmax);
}

template KernelsOf<RaggedArgs> group_kernels<RaggedArgs>(DType, std::int64_t, bool);
template KernelsOf<DenseArgs> group_kernels<DenseArgs>(DType, std::int64_t, bool);

}  // namespace braid::cuda::attention
