// CUDA kernels of InTopK and InTopKV2: a warp or a block a row. A row with a prediction that is not finite is
// false whether or not the CPU's early end gets to see it: it ends early only to say false.
#include "engine/ops/common/cuda/softmax_rows.cuh"
#include "engine/ops/common/dispatch.h"

namespace braid {
namespace {

using cuda::RowGroup;

// x: [rows, n]; targets, y: [rows]; k_input: a scalar, or null for `fixed`.
template <class I, bool kBlock>
__global__ void __launch_bounds__(1024)
    in_top_kernel(const float* x, const I* targets, const I* k_input, std::int64_t fixed, bool* y,
                  std::int64_t rows, std::int64_t n) {
  using G = RowGroup<kBlock>;
  const std::int64_t k = k_input ? static_cast<std::int64_t>(*k_input) : fixed;
  for (std::int64_t r = G::first(); r < rows; r += G::step()) {
    const auto target = static_cast<std::int64_t>(targets[r]);
    const bool is_class = target >= 0 && target < n;
    const float reference = is_class ? x[r * n + target] : 0;
    std::uint64_t higher = 0, infinite = 0;
#pragma unroll 4
    for (std::int64_t j = G::lane(); j < n; j += G::size()) {
      const float element = x[r * n + j];
      higher += element > reference ? 1 : 0;
      infinite += isfinite(element) ? 0 : 1;
    }
    higher = G::template reduce<reduce::Sum>(higher);
    infinite = G::template reduce<reduce::Sum>(infinite);
    if (G::lane() == 0) y[r] = is_class && infinite == 0 && static_cast<std::int64_t>(higher) < k;
  }
}

PreparedKernel prepare(const PrepareContext& c) {
  const std::int64_t rows = c.inputs[0].shape[0], n = c.inputs[0].shape[1];
  const bool has_input = c.inputs.size() > 2;
  const auto fixed = c.attr("k", std::int64_t{0});
  return with_index("InTopKV2", c.inputs[1].dtype, [&]<class I>() {
    PreparedKernel kernel;
    kernel.run = [=](const KernelArgs& a) {
      cuda::launch_rows_of(n, rows, in_top_kernel<I, false>, in_top_kernel<I, true>, a.stream, a.in<float>(0),
                           a.in<I>(1), has_input ? a.in<I>(2) : nullptr, fixed, a.out<bool>(0), rows, n);
    };
    return kernel;
  });
}

}  // namespace

void register_in_top_k_cuda(OpRegistry& registry) {
  registry.add_cuda("InTopK", prepare);
  registry.add_cuda("InTopKV2", prepare);
}

}  // namespace braid
