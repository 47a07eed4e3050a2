// CUDA kernel of MatrixBandPart: a thread an element, moved or 0. How wide the band is is read on the device.
#include "engine/ops/common/cuda/divide.cuh"
#include "engine/ops/common/cuda/launch.cuh"
#include "engine/ops/common/cuda/unit.cuh"
#include "engine/ops/common/dispatch.h"

namespace braid {
namespace {

/// The last two axes of x.
struct Matrices {
  std::int64_t elements, m, n;
  cuda::Divider by_m, by_n;
};

template <class T, class I>
__global__ void band_kernel(const T* x, const I* lower_input, const I* upper_input, T* y, Matrices s) {
  const auto lower = static_cast<std::int64_t>(*lower_input), upper = static_cast<std::int64_t>(*upper_input);
  const bool narrow = s.elements < cuda::kDividerLimit;
  for (std::int64_t at = cuda::grid_index(); at < s.elements; at += cuda::grid_size()) {
    const std::int64_t row = narrow ? s.by_n.quotient(static_cast<std::uint32_t>(at)) : at / s.n;
    const std::int64_t matrix = narrow ? s.by_m.quotient(static_cast<std::uint32_t>(row)) : row / s.m;
    const std::int64_t i = row - matrix * s.m, j = at - row * s.n;
    const bool inside = (lower < 0 || i - j <= lower) && (upper < 0 || j - i <= upper);
    y[at] = inside ? x[at] : T{};
  }
}

PreparedKernel prepare(const PrepareContext& c) {
  const Shape& shape = c.inputs[0].shape;
  Matrices s{shape.elements(), shape[shape.rank() - 2], shape[shape.rank() - 1], {}, {}};
  if (s.elements < cuda::kDividerLimit && s.elements != 0) {
    s.by_m = cuda::Divider(s.m);
    s.by_n = cuda::Divider(s.n);
  }
  return with_index("MatrixBandPart", c.inputs[1].dtype, [&]<class I>() {
    return cuda::with_element_of(dtype_size(c.inputs[0].dtype), [&]<class T>() {
      PreparedKernel kernel;
      kernel.run = [s](const KernelArgs& a) {
        if (s.elements != 0)
          cuda::launch(band_kernel<T, I>, cuda::blocks_for(s.elements), cuda::kThreads, 0, a.stream,
                       a.in<T>(0), a.in<I>(1), a.in<I>(2), a.out<T>(0), s);
      };
      return kernel;
    });
  });
}

}  // namespace

void register_matrix_band_part_cuda(OpRegistry& registry) {
  registry.add_cuda("MatrixBandPart", prepare, [](const Node&, std::span<const OutputInfo> inputs) {
    return dtype_size(inputs[0].dtype) != 0;
  });
}

}  // namespace braid
