// braid.ApplyAdafactor(handle, states..., gradient): a step of Adafactor (Shazeer and Stern 2018,
// arXiv 1804.04235, algorithms 4 and 5; as widely used, with a rate that is given). Of a variable [..., R,
// C], which is matrices [R, C], the states are row [..., R] and column [..., C]; of one with fewer axes
// `square`, of the variable's shape; in front of them m, of the variable's shape, where beta1 > 0.
//   b = 1 - t^-decay_exponent, t = step + 1;  q = g'^2 + epsilon;  g' = g * grad_scale
//   row = b row + (1 - b) mean of q over C;   column = b column + (1 - b) mean of q over R
//   u = g' / sqrt(row / mean of row) / sqrt(column)             (of fewer axes u = g' / sqrt(square))
//   u = u / max(1, rms(u) / clip_threshold) * rate;  rate = lr * max(least_scale, rms(w))
//   m = beta1 m + (1 - beta1) u;  u = m                                           (where beta1 > 0)
//   w = w - weight_decay * rate * w - u
// rms is over all of a variable, so a part of one cannot be updated alone. Sums are cut into blocks by shapes
// only, and added in order. Learning rate, gradient scale and step number come from StepParams.
#include "engine/ops/optimizer/adafactor.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "engine/ops/common/shape_rules.h"
#include "engine/ops/optimizer/optimizer_attrs.h"
#include "engine/ops/optimizer/update_inputs.h"

namespace braid {
namespace {

constexpr std::int64_t kMostBlocks = 32;  // of a matrix: each has sums of all columns

Shape without_axis(const Shape& shape, int axis) {
  std::vector<std::int64_t> dims(shape.dims().begin(), shape.dims().end());
  dims.erase(dims.begin() + axis);
  return Shape(std::move(dims));
}

void infer(InferContext& c) {
  const OptimizerSpec spec = optimizer_spec(c.node().attrs);
  const int gradient = c.inputs() - 1;
  for (int i = 0; i < gradient; ++i) require_handle(c, i);
  require_dtype(c, gradient, {DType::Float32});
  const Shape shape = merged_shape(c, 0, gradient);
  if (!shape.has_rank() || !shape.is_static()) return;
  const AdafactorLayout of = adafactor_layout(spec, shape);
  if (c.inputs() != of.gradient() + 1)
    c.fail(fmt::format("a variable of shape {} takes {} states, got {}", shape.to_string(), of.states(),
                       gradient - 1));
  const auto check = [&](int input, const Shape& expected) {
    Shape merged;
    if (!merge_shapes(expected, c.shape(input), merged))
      c.fail(fmt::format("input {} of shape {} is no state of shape {}", input, c.shape(input).to_string(),
                         expected.to_string()));
  };
  if (of.has_moment) check(of.moment(), shape);
  if (!of.factored) return check(of.column(), shape);
  check(of.row(), without_axis(shape, shape.rank() - 1));
  check(of.column(), without_axis(shape, shape.rank() - 2));
}

Cost cost_of(const InferContext& c, std::span<const OutputInfo>) {
  const double elements = known_elements(c.shape(c.inputs() - 1));
  return {20 * elements, (c.attr<double>("beta1", 0) > 0 ? 28 : 20) * elements};
}

/// columns[j] += q of each row; rows[r] = its sum of q. Gives the sum of squares of the weights.
BRAID_VECTOR_CLONES
double add_squares(const AdafactorStep& s, const float* gradient, const float* weights, std::int64_t rows,
                   std::int64_t n, float* row_sums, float* columns) {
  constexpr std::int64_t kLanes = 16;
  double total = 0;
  for (std::int64_t r = 0; r < rows; ++r, gradient += n, weights += n) {
    float sums[kLanes] = {}, squares[kLanes] = {};
    const std::int64_t whole = n / kLanes * kLanes;
    for (std::int64_t j = 0; j < whole; j += kLanes)
      for (std::int64_t k = 0; k < kLanes; ++k) {
        const float q = adafactor_square(s, gradient[j + k]);
        columns[j + k] += q;
        sums[k] += q;
        squares[k] += weights[j + k] * weights[j + k];
      }
    for (std::int64_t j = whole; j < n; ++j) {
      const float q = adafactor_square(s, gradient[j]);
      columns[j] += q;
      sums[j - whole] += q;
      squares[j - whole] += weights[j] * weights[j];
    }
    row_sums[r] = std::accumulate(sums, sums + kLanes, 0.0F);
    total += std::accumulate(squares, squares + kLanes, 0.0);
  }
  return total;
}

/// The sum of squares of the update's rows.
BRAID_VECTOR_CLONES
double update_squares(const AdafactorStep& s, const float* gradient, std::int64_t rows, std::int64_t n,
                      const float* row_factors, const float* column_factors) {
  constexpr std::int64_t kLanes = 16;
  double total = 0;
  for (std::int64_t r = 0; r < rows; ++r, gradient += n) {
    float sums[kLanes] = {};
    const std::int64_t whole = n / kLanes * kLanes;
    for (std::int64_t j = 0; j < whole; j += kLanes)
      for (std::int64_t k = 0; k < kLanes; ++k) {
        const float u = adafactor_update(s, gradient[j + k], row_factors[r], column_factors[j + k]);
        sums[k] += u * u;
      }
    for (std::int64_t j = whole; j < n; ++j) {
      const float u = adafactor_update(s, gradient[j], row_factors[r], column_factors[j]);
      sums[j - whole] += u * u;
    }
    total += std::accumulate(sums, sums + kLanes, 0.0);
  }
  return total;
}

/// `m` is null without a first moment.
BRAID_VECTOR_CLONES
void apply_rows(const AdafactorStep& s, const AdafactorScale& scale, float* __restrict weights,
                const float* __restrict gradient, float* __restrict m, std::int64_t rows, std::int64_t n,
                const float* __restrict row_factors, const float* __restrict column_factors) {
  for (std::int64_t r = 0; r < rows; ++r, gradient += n, weights += n) {
    const float row = row_factors[r];
    if (m) {
      for (std::int64_t j = 0; j < n; ++j)
        weights[j] = adafactor_apply(s, scale, weights[j],
                                     adafactor_update(s, gradient[j], row, column_factors[j]), m + j);
      m += n;
    } else {
      for (std::int64_t j = 0; j < n; ++j)
        weights[j] = adafactor_apply(s, scale, weights[j],
                                     adafactor_update(s, gradient[j], row, column_factors[j]), nullptr);
    }
  }
}

/// One step on one variable. Scratch: factors of all rows and columns, then sums of blocks.
class Update {
 public:
  Update(const AdafactorLayout& of, const OptimizerSpec& spec, ThreadPool& pool)
      : of_(of),
        spec_(spec),
        pool_(pool),
        grain_(std::max(row_grain(of.columns), (of.rows + kMostBlocks - 1) / kMostBlocks)),
        blocks_(of.rows == 0 ? 0 : (of.rows + grain_ - 1) / grain_) {}

  std::size_t scratch_bytes() const {
    const std::int64_t sums = of_.matrices * blocks_ * 2;
    return static_cast<std::size_t>(sums) * sizeof(double) +
           static_cast<std::size_t>(of_.matrices * (of_.rows + of_.columns) + blocks_ * of_.columns) *
               sizeof(float);
  }

  void run(const KernelArgs& a) const {
    const AdafactorStep s =
        adafactor_step(spec_, a.params->learning_rate, a.params->grad_scale, a.params->step);
    auto* const weight_sums = static_cast<double*>(a.scratch);
    double* const update_sums = weight_sums + of_.matrices * blocks_;
    auto* const rows = reinterpret_cast<float*>(update_sums + of_.matrices * blocks_);
    float* const columns = rows + of_.matrices * of_.rows;
    float* const partial = columns + of_.matrices * of_.columns;
    const std::int64_t size = of_.rows * of_.columns;
    for (std::int64_t b = 0; b < of_.matrices; ++b)
      moments(a, s, b, weight_sums + b * blocks_, rows + b * of_.rows, columns + b * of_.columns, partial);
    const auto each_block = [&](const auto& body) {
      pool_.parallel_range(of_.matrices * blocks_, 1, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t at = begin; at < end; ++at) {
          const std::int64_t b = at / blocks_, first = at % blocks_ * grain_;
          body(at, b * size + first * of_.columns, std::min(grain_, of_.rows - first),
               rows + b * of_.rows + first, columns + b * of_.columns);
        }
      });
    };
    const float* const gradient = a.in<float>(of_.gradient());
    each_block(
        [&](std::int64_t at, std::int64_t element, std::int64_t count, const float* r, const float* c) {
          update_sums[at] = update_squares(s, gradient + element, count, of_.columns, r, c);
        });
    const std::int64_t sums = of_.matrices * blocks_;
    const AdafactorScale scale =
        adafactor_scale(s, std::accumulate(weight_sums, weight_sums + sums, 0.0),
                        std::accumulate(update_sums, update_sums + sums, 0.0), of_.elements());
    each_block([&](std::int64_t, std::int64_t element, std::int64_t count, const float* r, const float* c) {
      apply_rows(s, scale, a.var<float>(0) + element, gradient + element,
                 of_.has_moment ? a.var<float>(of_.moment()) + element : nullptr, count, of_.columns, r, c);
    });
  }

 private:
  /// The states of matrix b, and its factors.
  void moments(const KernelArgs& a, const AdafactorStep& s, std::int64_t b, double* weight_sums, float* rows,
               float* columns, float* partial) const {
    const std::int64_t n = of_.columns, at = b * of_.rows * n;
    pool_.parallel_range(blocks_, 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t block = begin; block < end; ++block) {
        const std::int64_t first = block * grain_;
        std::fill_n(partial + block * n, n, 0.0F);
        weight_sums[block] =
            add_squares(s, a.in<float>(of_.gradient()) + at + first * n, a.var<float>(0) + at + first * n,
                        std::min(grain_, of_.rows - first), n, rows + first, partial + block * n);
      }
    });
    float* const column_state = a.var<float>(of_.column()) + b * n;
    for (std::int64_t j = 0; j < n; ++j) {
      float sum = 0;
      for (std::int64_t block = 0; block < blocks_; ++block) sum += partial[block * n + j];
      column_state[j] = s.kept * column_state[j] + s.fresh * (sum / static_cast<float>(of_.rows));
      columns[j] = 1 / std::sqrt(column_state[j]);
    }
    if (!of_.factored) {
      std::fill_n(rows, of_.rows, 1.0F);
      return;
    }
    float* const row_state = a.var<float>(of_.row()) + b * of_.rows;
    double sum = 0;
    for (std::int64_t r = 0; r < of_.rows; ++r) {
      row_state[r] = s.kept * row_state[r] + s.fresh * (rows[r] / static_cast<float>(n));
      sum += static_cast<double>(row_state[r]);
    }
    const auto mean = static_cast<float>(sum / static_cast<double>(of_.rows));
    for (std::int64_t r = 0; r < of_.rows; ++r) rows[r] = 1 / std::sqrt(row_state[r] / mean);
  }

  AdafactorLayout of_;
  OptimizerSpec spec_;
  ThreadPool& pool_;
  std::int64_t grain_, blocks_;  // rows of a block; blocks of a matrix
};

PreparedKernel prepare(const PrepareContext& c) {
  for (std::size_t i = 0; i < c.inputs.size(); ++i)
    if (c.inputs[i].dtype != DType::Float32)
      c.fail(fmt::format("input {} must hold float32, got {}", i, dtype_name(c.inputs[i].dtype)));
  const OptimizerSpec spec = optimizer_spec(c.node.attrs);
  const Update update(adafactor_layout(spec, c.inputs[0].shape), spec, c.pool);
  PreparedKernel kernel;
  kernel.scratch_bytes = update.scratch_bytes();
  kernel.run = [update, elements = c.inputs[0].shape.elements()](const KernelArgs& a) {
    if (elements > 0) update.run(a);
  };
  return kernel;
}

}  // namespace

void register_adafactor(OpRegistry& registry) {
  OpDef def = writing_op("braid.ApplyAdafactor", 3, 5, prepare);
  def.infer = infer;
  def.cost = cost_of;
  registry.add(std::move(def));
}

}  // namespace braid
