// What both kernels of braid.ApplyAdafactor share: its layout, the numbers of a step, and the formula of an
// element. Thread rule: pure functions.
#pragma once

#include <cmath>
#include <cstdint>

#include "base/optim.h"
#include "engine/ops/common/kernel_util.h"

namespace braid {

/// A variable as matrices that share nothing but the size of their step. One of less than two axes is one
/// row, whose second moment is that of its columns.
struct AdafactorLayout {
  std::int64_t matrices = 1, rows = 1, columns = 1;
  bool factored = false, has_moment = false;

  BRAID_INLINE std::int64_t elements() const { return matrices * rows * columns; }
  int states() const { return (has_moment ? 1 : 0) + (factored ? 2 : 1); }
  // Inputs: the handle, m, row, column (of one row: square), gradient.
  int moment() const { return 1; }
  int row() const { return has_moment ? 2 : 1; }
  int column() const { return row() + (factored ? 1 : 0); }
  int gradient() const { return column() + 1; }
};

inline AdafactorLayout adafactor_layout(const OptimizerSpec& spec, const Shape& shape) {
  AdafactorLayout of;
  of.has_moment = spec.beta1 > 0;
  of.factored = shape.rank() >= 2;
  if (!of.factored) {
    of.columns = shape.elements();
    return of;
  }
  of.rows = shape[shape.rank() - 2];
  of.columns = shape[shape.rank() - 1];
  for (int axis = 0; axis + 2 < shape.rank(); ++axis) of.matrices *= shape[axis];
  return of;
}

/// Of the step that the parameters name.
struct AdafactorStep {
  float rate, grad_scale, kept, fresh, epsilon, clip_threshold, least_scale, weight_decay, beta1;
  bool scales;
};

BRAID_INLINE AdafactorStep adafactor_step(const OptimizerSpec& spec, float learning_rate, float grad_scale,
                                          std::uint64_t step) {
  const double fresh = std::pow(static_cast<double>(step) + 1, -static_cast<double>(spec.decay_exponent));
  return {learning_rate * spec.learning_rate_factor,
          grad_scale,
          static_cast<float>(1 - fresh),
          static_cast<float>(fresh),
          spec.epsilon,
          spec.clip_threshold,
          spec.least_scale,
          spec.weight_decay,
          spec.beta1,
          spec.scale_by_weights};
}

/// How far all elements go: known when the sums of squares of weights and of updates are.
struct AdafactorScale {
  float rate, shrink;
};
BRAID_INLINE AdafactorScale adafactor_scale(const AdafactorStep& s, double weight_squares,
                                            double update_squares, std::int64_t elements) {
  const double n = static_cast<double>(elements);
  const auto weights = static_cast<float>(std::sqrt(weight_squares / n));
  const auto update = static_cast<float>(std::sqrt(update_squares / n));
  const float scale = !s.scales ? 1.0F : weights < s.least_scale ? s.least_scale : weights;
  const float over = update / s.clip_threshold;
  return {s.rate * scale, over > 1 || over != over ? over : 1.0F};
}

BRAID_INLINE float adafactor_square(const AdafactorStep& s, float gradient) {
  const float g = gradient * s.grad_scale;
  return g * g + s.epsilon;
}

/// The update before its size is known. `row` and `column` are 1 / sqrt of the factors.
BRAID_INLINE float adafactor_update(const AdafactorStep& s, float gradient, float row, float column) {
  return row * column * (gradient * s.grad_scale);
}

/// The new weight; `m` is null without a first moment.
BRAID_INLINE float adafactor_apply(const AdafactorStep& s, const AdafactorScale& scale, float w, float update,
                                   float* m) {
  update = update / scale.shrink * scale.rate;
  if (m) update = *m = s.beta1 * *m + (1 - s.beta1) * update;
  if (s.weight_decay != 0) w -= s.weight_decay * scale.rate * w;
  return w - update;
}

}  // namespace braid
