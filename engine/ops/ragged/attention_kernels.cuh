// Tables of attention kernels for one kind of factors.
#pragma once

#include "engine/ops/ragged/attention_backward.cuh"
#include "engine/ops/ragged/attention_forward.cuh"

namespace braid::cuda::attention {

template <class M, int W>
Kernels kernels_of_width(bool softmax) {
  const std::size_t shared =
      std::max({ForwardSizes<M, W>::kBytes, QuerySizes<M, W>::kBytes, KeySizes<M, W>::kBytes});
  if (softmax) return {launch_forward<M, W, true>, launch_backward<M, W, true>, shared};
  return {launch_forward<M, W, false>, launch_backward<M, W, false>, shared};
}

template <class M>
Kernels tile_kernels(std::int64_t width, bool softmax) {
  if (width <= 32) return kernels_of_width<M, 32>(softmax);
  if (width <= 64) return kernels_of_width<M, 64>(softmax);
  if (width <= 128) return kernels_of_width<M, 128>(softmax);
  return {};
}

}  // namespace braid::cuda::attention
