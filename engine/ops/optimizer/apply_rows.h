// Walks of an optimizer's update over a variable: all of it in blocks, or the rows that a sparse gradient
// names. Updates are element by element, so neither blocks nor threads change a bit.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>

#include "base/thread_pool.h"
#include "engine/ops/common/index_groups.h"
#include "engine/ops/common/kernel_util.h"
#include "engine/ops/common/row_sums.h"

namespace braid {

/// A variable and its slots, float32, at most kMaxSlots of them.
struct VariableRun {
  static constexpr std::size_t kMaxSlots = 3;
  float* weights;
  std::array<float*, kMaxSlots> slots;
  std::size_t slot_count;

  /// From a kernel's inputs: the variable at `first`, then its slots.
  VariableRun(const KernelArgs& a, std::size_t count, int first = 0)
      : weights(a.var<float>(first)), slots{}, slot_count(count) {
    for (std::size_t s = 0; s < count; ++s) slots[s] = a.var<float>(first + static_cast<int>(s) + 1);
  }

  /// apply(weights, gradient, slots) on elements [first, first + n).
  template <class Apply>
  void update(std::int64_t first, std::int64_t n, const float* gradient, const Apply& apply) const {
    std::array<float*, kMaxSlots> moved{};
    for (std::size_t s = 0; s < slot_count; ++s) moved[s] = slots[s] + first;
    const auto count = static_cast<std::size_t>(n);
    apply(std::span<float>(weights + first, count), std::span<const float>(gradient, count),
          std::span<float* const>(moved.data(), slot_count));
  }
};

/// Updates all `elements` with a dense gradient.
template <class Apply>
void apply_dense(ThreadPool& pool, const VariableRun& run, std::int64_t elements, const float* gradient,
                 const Apply& apply) {
  pool.parallel_range(elements, kElementGrain, [&](std::int64_t begin, std::int64_t end) {
    run.update(begin, end - begin, gradient + begin, apply);
  });
}

/// Updates each row once with the sum of its gradients, added in the order of their positions.
template <class Apply>
void apply_summed_rows(ThreadPool& pool, const VariableRun& run, std::int64_t width,
                       const IndexGroups& groups, const float* gradients, const Apply& apply) {
  constexpr std::int64_t kPiece = 512;  // elements that are summed on the stack at a time
  pool.parallel_range(groups.size(), row_grain(width), [&](std::int64_t first, std::int64_t last) {
    std::array<float, kPiece> sum;
    for (std::int64_t g = first; g < last; ++g) {
      const std::int64_t row = groups.index(g) * width;
      const float* gradient = gradients + groups.position(groups.begin(g)) * width;
      if (groups.end(g) - groups.begin(g) == 1) {
        run.update(row, width, gradient, apply);
        continue;
      }
      for (std::int64_t at = 0; at < width; at += kPiece) {
        const std::int64_t n = std::min(kPiece, width - at);
        std::copy_n(gradient + at, n, sum.data());
        for (std::int64_t e = groups.begin(g) + 1; e < groups.end(g); ++e)
          add_row(sum.data(), gradients + groups.position(e) * width + at, n);
        run.update(row + at, n, sum.data(), apply);
      }
    }
  });
}

/// Updates each row once for each of its gradients, in the order of their positions (TensorFlow's sparse
/// applies, which leave summing to the caller).
template <class Apply>
void apply_each_row(ThreadPool& pool, const VariableRun& run, std::int64_t width, const IndexGroups& groups,
                    const float* gradients, const Apply& apply) {
  pool.parallel_range(groups.size(), row_grain(width), [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t g = first; g < last; ++g)
      for (std::int64_t e = groups.begin(g); e < groups.end(g); ++e)
        run.update(groups.index(g) * width, width, gradients + groups.position(e) * width, apply);
  });
}

}  // namespace braid
