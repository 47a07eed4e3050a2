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

/// Where the gradients of a table's indices are.
struct GradientRows {
  const float* values;                 // [bags, width], in rows of `stride`
  std::int64_t hot = 1;                // indices that share one, where there are no bags
  const std::int32_t* bags = nullptr;  // of each index
  const float* weights = nullptr;      // of each index
  std::int64_t width = 0;
  std::int64_t stride = 0;

  const float* of(std::int64_t position) const {
    return values + (bags ? bags[position] : position / hot) * stride;
  }
};

/// sum (+)= weight * row.
template <bool kAdds>
BRAID_INLINE void take_weighted(float* sum, const float* row, float weight, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) sum[i] = kAdds ? sum[i] + weight * row[i] : weight * row[i];
}

/// The sum of a group's gradients, elements [at, at + n), in the order of their positions.
BRAID_INLINE void sum_group(const GradientRows& rows, const IndexGroups& groups, std::int64_t g,
                            std::int64_t at, std::int64_t n, float* sum) {
  const std::int64_t begin = groups.begin(g), end = groups.end(g);
  if (rows.weights) {
    take_weighted<false>(sum, rows.of(groups.position(begin)) + at, rows.weights[groups.position(begin)], n);
    for (std::int64_t e = begin + 1; e < end; ++e)
      take_weighted<true>(sum, rows.of(groups.position(e)) + at, rows.weights[groups.position(e)], n);
    return;
  }
  std::copy_n(rows.of(groups.position(begin)) + at, n, sum);
  for (std::int64_t e = begin + 1; e < end; ++e) add_row(sum, rows.of(groups.position(e)) + at, n);
}

/// Updates each row once with the sum of its gradients. Groups of index `rows` and more are none of the
/// table.
template <class Apply>
void apply_summed_rows(ThreadPool& pool, const VariableRun& run, std::int64_t rows, const IndexGroups& groups,
                       const GradientRows& gradients, const Apply& apply) {
  constexpr std::int64_t kPiece = 512;  // elements that are summed on the stack at a time
  const std::int64_t width = gradients.width;
  pool.parallel_range(groups.size(), row_grain(width), [&](std::int64_t first, std::int64_t last) {
    std::array<float, kPiece> sum;
    for (std::int64_t g = first; g < last; ++g) {
      if (groups.index(g) >= rows) continue;
      const std::int64_t row = groups.index(g) * width;
      if (groups.end(g) - groups.begin(g) == 1 && !gradients.weights) {
        run.update(row, width, gradients.of(groups.position(groups.begin(g))), apply);
        continue;
      }
      for (std::int64_t at = 0; at < width; at += kPiece) {
        const std::int64_t n = std::min(kPiece, width - at);
        sum_group(gradients, groups, g, at, n, sum.data());
        run.update(row + at, n, sum.data(), apply);
      }
    }
  });
}

/// The same where the slot is a number a row: apply(weights, gradient, slot). `sums` has room for `width`
/// elements of each block, which are as long as `grain` groups.
template <class Apply>
void apply_summed_whole_rows(ThreadPool& pool, const VariableRun& run, std::int64_t rows,
                             const IndexGroups& groups, const GradientRows& gradients, float* sums,
                             std::int64_t grain, const Apply& apply) {
  const std::int64_t width = gradients.width;
  pool.parallel_range(groups.size(), grain, [&](std::int64_t first, std::int64_t last) {
    float* const sum = sums + first / grain * width;
    for (std::int64_t g = first; g < last; ++g) {
      const std::int64_t row = groups.index(g);
      if (row >= rows) continue;
      sum_group(gradients, groups, g, 0, width, sum);
      apply(std::span(run.weights + row * width, static_cast<std::size_t>(width)),
            std::span<const float>(sum, static_cast<std::size_t>(width)), run.slots[0][row]);
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
