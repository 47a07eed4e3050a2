#include "engine/ops/array/known_gather_grad.h"

#include "engine/ops/common/cuda/divide.cuh"
#include "engine/ops/common/cuda/launch.cuh"
#include "engine/ops/common/stored_type.h"

namespace braid::cuda {
namespace {

/// Row r of dx is the sum of rows sources[starts[r]] to sources[starts[r + 1]] of dy.
struct Sources {
  const std::int32_t* starts;
  const std::int32_t* sources;
  Divider by_width, by_rows;
  std::uint32_t n;
};

/// Rows are counted in packs. Elements are added as Sum.
template <class T, class Sum, int kCount>
__global__ void known_gather_grad_kernel(const Pack<T, kCount>* dy, Pack<T, kCount>* dx,
                                         const __grid_constant__ Sources s, std::uint32_t packs) {
  for (std::int64_t at = grid_index(); at < packs; at += grid_size()) {
    const auto i = static_cast<std::uint32_t>(at);
    const std::uint32_t slice = s.by_width.quotient(i), column = i - slice * s.by_width.divisor();
    const std::uint32_t outer = s.by_rows.quotient(slice), row = slice - outer * s.by_rows.divisor();
    const auto* from = dy + static_cast<std::int64_t>(outer) * s.n * s.by_width.divisor() + column;
    Sum sum[kCount] = {};
    const std::int32_t end = s.starts[row + 1];
#pragma unroll 2
    for (std::int32_t k = s.starts[row]; k < end; ++k) {
      const Pack<T, kCount> given = from[static_cast<std::int64_t>(s.sources[k]) * s.by_width.divisor()];
#pragma unroll
      for (int e = 0; e < kCount; ++e) sum[e] += static_cast<Sum>(given.at[e]);
    }
    Pack<T, kCount> rounded;
#pragma unroll
    for (int e = 0; e < kCount; ++e) rounded.at[e] = static_cast<T>(sum[e]);
    dx[i] = rounded;
  }
}

/// Calls `with` with the size of packs as a constant.
template <class T, class With>
void of_packs(std::int64_t width, const KernelArgs& a, const With& with) {
  constexpr int kMost = kPackOf<T>;
  if (width % kMost == 0 && is_aligned16(a.inputs[0]) && is_aligned16(a.outputs[0]))
    with(std::integral_constant<int, kMost>{});
  else
    with(std::integral_constant<int, 1>{});
}

}  // namespace

PreparedKernel known_gather_grad(const PrepareContext& c, const GatherSlices& slices, const Tensor& indices) {
  const std::int64_t n = indices.elements(), elements = slices.outer * slices.rows * slices.width;
  if (elements == 0 || elements >= kDividerLimit || n >= kDividerLimit) return {};
  std::vector<std::int64_t> rows(static_cast<std::size_t>(n));
  with_index("braid.GatherGrad", indices.dtype(), [&]<class I>() {
    const auto values = indices.data<I>();
    std::copy(values.begin(), values.end(), rows.begin());
  });
  if (std::any_of(rows.begin(), rows.end(), [&](auto row) { return row < 0 || row >= slices.rows; }))
    return {};

  // Counting sort of the positions by row; positions of one row keep their order.
  std::vector<std::int32_t> table(static_cast<std::size_t>(slices.rows + 1 + n));
  const std::span starts(table.data(), static_cast<std::size_t>(slices.rows + 1));
  const std::span sources(table.data() + slices.rows + 1, static_cast<std::size_t>(n));
  for (const std::int64_t row : rows) ++starts[static_cast<std::size_t>(row + 1)];
  for (std::size_t r = 1; r < starts.size(); ++r) starts[r] += starts[r - 1];
  std::vector<std::int32_t> next(starts.begin(), starts.end() - 1);
  for (std::size_t k = 0; k < rows.size(); ++k)
    sources[static_cast<std::size_t>(next[static_cast<std::size_t>(rows[k])]++)] =
        static_cast<std::int32_t>(k);

  const std::uint64_t bytes = table.size() * sizeof(std::int32_t);
  const auto on_device = c.accelerator->allocate(bytes, "sources of a gather's gradient");
  c.accelerator->copy_now(on_device.get(), table.data(), bytes);
  return with_stored_number("braid.GatherGrad", c.outputs[0].dtype, [&]<class T, class Sum>() {
    PreparedKernel kernel;
    kernel.run = [=, width = slices.width, rows = slices.rows](const KernelArgs& a) {
      of_packs<T>(width, a, [&]<class Count>(Count) {
        constexpr int kCount = Count::value;
        const auto* first = reinterpret_cast<const std::int32_t*>(on_device.get());
        const Sources described{first, first + rows + 1, Divider(width / kCount), Divider(rows),
                                static_cast<std::uint32_t>(n)};
        const std::int64_t packs = elements / kCount;
        launch(known_gather_grad_kernel<T, Sum, kCount>, blocks_for(packs), kThreads, 0, a.stream,
               reinterpret_cast<const Pack<T, kCount>*>(a.in<T>(0)),
               reinterpret_cast<Pack<T, kCount>*>(a.out<T>(0)), described, static_cast<std::uint32_t>(packs));
      });
    };
    return kernel;
  });
}

}  // namespace braid::cuda
