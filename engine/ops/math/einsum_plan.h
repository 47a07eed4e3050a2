// What an einsum's equation makes of its operands: labels and sizes, a batched matrix product with the copies
// around it, or a sum of one operand. Shared by the shape rule, the gradient and the kernels of CPU and CUDA.
// Thread rule: pure.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "engine/ops/common/box_copy.h"
#include "engine/ops/common/window.h"

namespace braid {

/// The texts between ',' and behind "->".
struct EinsumEquation {
  std::vector<std::string> operands;
  std::string output;

  static constexpr std::string_view kDots = "...";

  /// Calls `fail` when it has not as many operands as `inputs`.
  EinsumEquation(std::string text, std::size_t inputs, const Fail& fail);
};

/// Axes by label. Letters are themselves; the k-th axis of "..." counted from its end is kEllipsis + k.
using EinsumLabels = std::vector<int>;

/// The equation for operands of known ranks, and the size of each label.
struct EinsumPlan {
  std::vector<EinsumLabels> operands;
  EinsumLabels output;
  std::map<int, std::int64_t> sizes;

  static constexpr int kEllipsis = 256;

  /// Calls `fail` when the shapes do not fit the equation, or it is not supported.
  EinsumPlan(const EinsumEquation& equation, const std::vector<Shape>& shapes, const Fail& fail);

  std::int64_t size(const EinsumLabels& labels) const;
  /// How the elements of `shape`, whose axes have the labels `own`, are reached in the order of `wanted`; an
  /// axis of size 1 that broadcasts, and a label that it does not have, have stride 0, and a label that it
  /// has twice goes along the diagonal.
  std::vector<std::int64_t> strides(const Shape& shape, const EinsumLabels& own,
                                    const EinsumLabels& wanted) const;

 private:
  void join(int label, std::int64_t size, const Fail& fail);
};

/// y[batch, m, n] = op(first)[batch, m, k] op(second)[batch, k, n]. The copies bring operands into this order
/// and the result into its own; none where it is so already. What one operand alone sums is of k, and the
/// copy of the other repeats.
struct EinsumProduct {
  std::int64_t batch, m, n, k;
  int first = 0;  // which input is the first factor
  bool transpose_first = false, transpose_second = false;
  std::optional<BoxCopy> first_copy, second_copy, result_copy;

  /// REQUIRES: two operands.
  EinsumProduct(const EinsumPlan& plan, const std::vector<Shape>& shapes, const Shape& out,
                std::size_t element_bytes);

  int second() const { return 1 - first; }
  std::int64_t first_elements() const { return batch * m * k; }
  std::int64_t second_elements() const { return batch * k * n; }
  std::int64_t result_elements() const { return batch * m * n; }
};

/// y[kept] = sum over summed of x.
struct EinsumSum {
  struct Axes {
    std::vector<std::int64_t> sizes, strides;  // outermost first
    std::int64_t offset(std::int64_t flat) const;
  };
  Axes kept, summed;
  std::int64_t outputs, terms;

  /// REQUIRES: one operand, of shape `in`.
  EinsumSum(const EinsumPlan& plan, const Shape& in);

  /// What does it where nothing is summed.
  BoxCopy copy(std::size_t element_bytes) const;
};

}  // namespace braid
