// Walks of an optimizer's update over a variable on the device, for the ops whose hyper-parameters are scalar
// inputs: all of it, or the rows that a sparse gradient names. Sparse forms group the indices; a few lanes
// take each row and apply its gradients one after another.
//
// A Rule is a kernel's argument that holds the run's pointers:
//   Update                                     what one thread of a block reads from the scalar inputs
//   read() -> Update
//   apply<kCount>(update, gradient, at)        elements [at, at + kCount) by the gradient's first kCount
//   is_aligned()                               whether the variable and its slots are aligned to 16 bytes
#pragma once

#include <algorithm>
#include <bit>

#include "engine/ops/optimizer/sorted_rows.cuh"

namespace braid::cuda {

/// Elements of float32 in 16 bytes.
inline constexpr int kFloats = kPackOf<float>;

/// A variable and its slots, float32, on a boundary of 16 bytes where is_aligned(). There are kSlots at most.
template <int kSlots>
struct SlottedVariable {
  float* weights;
  float* slots[kSlots];

  SlottedVariable(const KernelArgs& a, int count) : weights(a.var<float>(0)), slots{} {
    for (int s = 0; s < count; ++s) slots[s] = a.var<float>(s + 1);
  }
  bool is_aligned() const {  // slots that there are not are null
    bool aligned = is_aligned16(weights);
    for (const float* slot : slots) aligned = aligned && is_aligned16(slot);
    return aligned;
  }
};

template <class Rule, int kCount>
__global__ void __launch_bounds__(kThreads)
    apply_dense_kernel(const __grid_constant__ Rule rule, const float* gradient, std::int64_t n) {
  __shared__ typename Rule::Update update;
  if (threadIdx.x == 0) update = rule.read();
  __syncthreads();
  for (std::int64_t i = grid_index() * kCount; i < n; i += grid_size() * kCount)
    rule.template apply<kCount>(update, gradient + i, i);
}

template <class Rule, int kCount>
__global__ void __launch_bounds__(kThreads)
    apply_rows_kernel(const __grid_constant__ Rule rule, const float* gradients, const std::uint64_t* entries,
                      std::int64_t n, std::int64_t rows, std::int64_t width, int lanes) {
  __shared__ typename Rule::Update update;
  if (threadIdx.x == 0) update = rule.read();
  __syncthreads();
  const int lane = static_cast<int>(threadIdx.x) & (lanes - 1);
  for (std::int64_t first = grid_index() / lanes; first < n; first += grid_size() / lanes) {
    const std::int64_t row = row_of(entries[first]);
    if (row >= rows || (first > 0 && row_of(entries[first - 1]) == row)) continue;
    for (std::int64_t e = first; e < n && row_of(entries[e]) == row; ++e)
      for (std::int64_t column = lane * kCount; column < width; column += lanes * kCount)
        rule.template apply<kCount>(update, gradients + position_of(entries[e]) * width + column,
                                    row * width + column);
  }
}

/// Updates variable 0 by the gradient in that input. make(args) gives the run's Rule.
template <class Make>
PreparedKernel apply_dense(const PrepareContext& c, int gradient, Make make) {
  PreparedKernel kernel;
  kernel.run = [=, n = c.inputs[0].shape.elements()](const KernelArgs& a) {
    if (n == 0) return;
    const auto rule = make(a);
    using Rule = std::remove_const_t<decltype(rule)>;
    const auto* g = a.in<float>(gradient);
    if (n % kFloats == 0 && rule.is_aligned() && is_aligned16(g))
      launch(apply_dense_kernel<Rule, kFloats>, blocks_for(n / kFloats), kThreads, 0, a.stream, rule, g, n);
    else
      launch(apply_dense_kernel<Rule, 1>, blocks_for(n), kThreads, 0, a.stream, rule, g, n);
  };
  return kernel;
}

/// Updates the rows of variable 0 that input `indices` names, each once for each of its gradients.
/// REQUIRES: has_sortable_rows().
template <class Make>
PreparedKernel apply_rows(const PrepareContext& c, int gradient, int indices, Make make) {
  const OutputInfo& index_info = c.inputs[static_cast<std::size_t>(indices)];
  const std::int64_t n = index_info.shape[0], rows = c.inputs[0].shape[0];
  const std::int64_t width = rows == 0 ? 0 : c.inputs[0].shape.elements() / rows;
  const RowGrouping grouping({{rows, n, index_info.dtype == DType::Int64}});
  const std::size_t entries_bytes = (static_cast<std::size_t>(n) * sizeof(std::uint64_t) + 255) / 256 * 256;
  PreparedKernel kernel;
  kernel.scratch_bytes = entries_bytes + grouping.scratch_bytes();
  kernel.run = [=](const KernelArgs& a) {
    if (n == 0) return;
    auto* const entries = static_cast<std::uint64_t*>(a.scratch);
    grouping.run(a, indices, 1, static_cast<char*>(a.scratch) + entries_bytes, entries);
    if (width == 0) return;
    const auto rule = make(a);
    using Rule = std::remove_const_t<decltype(rule)>;
    const auto* gradients = a.in<float>(gradient);
    const bool packed = width % kFloats == 0 && rule.is_aligned() && is_aligned16(gradients);
    const auto packs = static_cast<std::uint64_t>(packed ? width / kFloats : width);
    const int lanes = static_cast<int>(std::min<std::uint64_t>(std::bit_ceil(packs), 32));
    launch(packed ? apply_rows_kernel<Rule, kFloats> : apply_rows_kernel<Rule, 1>, blocks_for(n * lanes),
           kThreads, 0, a.stream, rule, gradients, entries, n, rows, width, lanes);
  };
  return kernel;
}

/// Whether input 0's rows and the indices fit the sort's keys and positions.
inline bool has_sortable_rows(std::span<const OutputInfo> inputs, int indices) {
  constexpr std::int64_t kMost = (1LL << 31) - 2;
  return inputs[0].shape[0] <= kMost && inputs[static_cast<std::size_t>(indices)].shape[0] <= kMost;
}

}  // namespace braid::cuda
