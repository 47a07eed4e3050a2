// Compiled for sm_90a alone, which has the products of groups of warps.
#include "engine/ops/ragged/attention_group_backward.cuh"
#include "engine/ops/ragged/attention_group_forward.cuh"

namespace braid::cuda::attention {
namespace {

template <class E, int W>
Kernels of_width(bool softmax) {
  const std::size_t shared = std::max(RingSizes<E, W, 1>::kBytes, RingSizes<E, W, 2>::kBytes);
  if (softmax) return {launch_group_forward<E, W, true>, launch_group_backward<E, W, true>, shared};
  return {launch_group_forward<E, W, false>, launch_group_backward<E, W, false>, shared};
}

template <class E>
Kernels of_halves(std::int64_t width, bool softmax) {
  if (width <= 32 || width > 128) return {};
  return width <= 64 ? of_width<E, 64>(softmax) : of_width<E, 128>(softmax);
}

}  // namespace

Kernels group_kernels(DType half, std::int64_t width, bool softmax) {
  return half == DType::BFloat16 ? of_halves<BFloat16>(width, softmax) : of_halves<Float16>(width, softmax);
}

}  // namespace braid::cuda::attention
