// CUDA kernel of OneHot: a thread an output element.
#include "engine/ops/common/cuda/divide.cuh"
#include "engine/ops/common/cuda/launch.cuh"
#include "engine/ops/common/cuda/unit.cuh"
#include "engine/ops/common/dispatch.h"

namespace braid {
namespace {

/// out [slices, depth, inner], indices [slices, inner].
template <class U, class I>
__global__ void one_hot_kernel(const I* indices, const U* on, const U* off, U* out, std::int64_t n,
                               std::int64_t depth, std::int64_t inner, cuda::Divider by_inner,
                               cuda::Divider by_depth) {
  const U yes = *on, no = *off;
  for (std::int64_t i = cuda::grid_index(); i < n; i += cuda::grid_size()) {
    std::int64_t line, slice;
    if (n < cuda::kDividerLimit) {
      const std::uint32_t at = by_inner.quotient(static_cast<std::uint32_t>(i));
      line = at;
      slice = by_depth.quotient(at);
    } else {
      line = i / inner;
      slice = line / depth;
    }
    const auto index = static_cast<std::int64_t>(indices[slice * inner + (i - line * inner)]);
    out[i] = index == line - slice * depth ? yes : no;
  }
}

PreparedKernel prepare(const PrepareContext& c) {
  const Shape& out = c.outputs[0].shape;
  std::int64_t axis = c.attr("axis", std::int64_t{-1});
  if (axis < 0) axis += out.rank();
  std::int64_t inner = 1;
  for (int i = static_cast<int>(axis) + 1; i < out.rank(); ++i) inner *= out[i];
  const std::int64_t depth = out[static_cast<int>(axis)], n = out.elements();
  const bool narrow = n < cuda::kDividerLimit && inner < cuda::kDividerLimit && depth < cuda::kDividerLimit;
  const cuda::Divider by_inner(narrow ? inner : 1), by_depth(narrow ? depth : 1);
  return cuda::with_element_of(dtype_size(c.inputs[2].dtype), [&]<class U>() {
    const auto kernel_of = [&]<class I>() {
      PreparedKernel kernel;
      kernel.run = [=](const KernelArgs& a) {
        if (n != 0)
          cuda::launch(one_hot_kernel<U, I>, cuda::blocks_for(n), cuda::kThreads, 0, a.stream, a.in<I>(0),
                       a.in<U>(2), a.in<U>(3), a.out<U>(0), n, depth, inner, by_inner, by_depth);
      };
      return kernel;
    };
    if (c.inputs[0].dtype == DType::UInt8) return kernel_of.template operator()<std::uint8_t>();
    return with_index("OneHot", c.inputs[0].dtype, kernel_of);
  });
}

}  // namespace

void register_one_hot_cuda(OpRegistry& registry) {
  registry.add_cuda("OneHot", prepare, [](const Node&, std::span<const OutputInfo> inputs) {
    return dtype_size(inputs[2].dtype) != 0;
  });
}

}  // namespace braid
