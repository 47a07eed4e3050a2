// Compiled for sm_90a alone, which has the products of groups of warps.
#include "engine/ops/ragged/attention_group_backward.cuh"
#include "engine/ops/ragged/attention_group_forward.cuh"
#include "engine/ops/ragged/dense_args.cuh"

namespace braid::cuda::attention {
namespace {

template <class Args, class E, int W>
KernelsOf<Args> of_width(bool softmax) {
  const std::size_t shared = std::max(RingSizes<E, W, 1>::kBytes, RingSizes<E, W, 2>::kBytes);
  if (softmax || Args::kIsSoftmax)
    return {launch_group_forward<Args, E, W, true>, launch_group_backward<Args, E, W, true>, shared};
  if constexpr (!Args::kIsSoftmax)
    return {launch_group_forward<Args, E, W, false>, launch_group_backward<Args, E, W, false>, shared};
  return {};
}

template <class Args, class E>
KernelsOf<Args> of_halves(std::int64_t width, bool softmax) {
  if (width <= 32 || width > 128) return {};
  return width <= 64 ? of_width<Args, E, 64>(softmax) : of_width<Args, E, 128>(softmax);
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
