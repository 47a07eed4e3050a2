#include "engine/ops/array/known_gather_grad.h"

#include "engine/ops/common/cuda/divide.cuh"
#include "engine/ops/common/cuda/launch.cuh"
#include "engine/ops/common/dispatch.h"

namespace braid::cuda {
namespace {

/// Row r of dx is the sum of rows sources[starts[r]] to sources[starts[r + 1]] of dy.
struct Sources {
  const std::int32_t* starts;
  const std::int32_t* sources;
  Divider by_width, by_rows;
  std::uint32_t n;
};

template <class T>
__global__ void known_gather_grad_kernel(const T* dy, T* dx, const Sources s, std::uint32_t elements) {
  for (std::int64_t at = grid_index(); at < elements; at += grid_size()) {
    const auto i = static_cast<std::uint32_t>(at);
    const std::uint32_t slice = s.by_width.quotient(i), column = i - slice * s.by_width.divisor();
    const std::uint32_t outer = s.by_rows.quotient(slice), row = slice - outer * s.by_rows.divisor();
    const T* from = dy + static_cast<std::int64_t>(outer) * s.n * s.by_width.divisor() + column;
    T sum{};
    const std::int32_t end = s.starts[row + 1];
    for (std::int32_t k = s.starts[row]; k < end; ++k)
      sum += from[static_cast<std::int64_t>(s.sources[k]) * s.by_width.divisor()];
    dx[i] = sum;
  }
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
  const auto* first = reinterpret_cast<const std::int32_t*>(on_device.get());
  const Sources described{first, first + slices.rows + 1, Divider(slices.width), Divider(slices.rows),
                          static_cast<std::uint32_t>(n)};
  return with_number("braid.GatherGrad", c.outputs[0].dtype, [&]<class T>() {
    PreparedKernel kernel;
    kernel.run = [=](const KernelArgs& a) {
      (void)on_device;  // alive as long as the kernel
      launch(known_gather_grad_kernel<T>, blocks_for(elements), kThreads, 0, a.stream, a.in<T>(0),
             a.out<T>(0), described, static_cast<std::uint32_t>(elements));
    };
    return kernel;
  });
}

}  // namespace braid::cuda
