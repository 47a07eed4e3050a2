// Tables of attention kernels for one kind of factors.
#pragma once

#include "engine/ops/ragged/attention_backward.cuh"
#include "engine/ops/ragged/attention_forward.cuh"

namespace braid::cuda::attention {

template <class Args, class M, int W>
KernelsOf<Args> kernels_of_width(bool softmax) {
  const std::size_t shared =
      std::max({ForwardSizes<M, W>::kBytes, QuerySizes<M, W>::kBytes, KeySizes<M, W>::kBytes});
  if (softmax || Args::kIsSoftmax)
    return {launch_forward<Args, M, W, true>, launch_backward<Args, M, W, true>, shared};
  if constexpr (!Args::kIsSoftmax)
    return {launch_forward<Args, M, W, false>, launch_backward<Args, M, W, false>, shared};
  return {};
}

template <class Args, class M>
KernelsOf<Args> tile_kernels(std::int64_t width, bool softmax) {
  if (width <= 32) return kernels_of_width<Args, M, 32>(softmax);
  if (width <= 64) return kernels_of_width<Args, M, 64>(softmax);
  if (width <= 128) return kernels_of_width<Args, M, 128>(softmax);
  return {};
}

}  // namespace braid::cuda::attention
