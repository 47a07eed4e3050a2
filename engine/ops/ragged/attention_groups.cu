// Compiled for sm_90a alone, which has the products of groups of warps.
#include "engine/ops/ragged/attention_kernels.cuh"

namespace braid::cuda::attention {
namespace {

template <class E>
Kernels of_halves(std::int64_t width, bool softmax) {
  if (width <= 32 || width > 128) return {};
  if (width <= 64) return kernels_of_width<GroupTiles<E>, 64>(softmax);
  return kernels_of_width<GroupTiles<E>, 128>(softmax);
}

}  // namespace

Kernels group_kernels(DType half, std::int64_t width, bool softmax) {
  return half == DType::BFloat16 ? of_halves<BFloat16>(width, softmax) : of_halves<Float16>(width, softmax);
}

}  // namespace braid::cuda::attention
