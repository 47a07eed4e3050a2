// Softmax and LogSoftmax along the last axis, and their gradients as one op each.
//   softmax      y = exp(x - max) / sum exp(x - max)        dx = (dy - sum(dy y)) y
//   log softmax  y = x - max - log sum exp(x - max)         dx = dy - exp(y) sum(dy)
#include "engine/fusion/rules.h"
#include "engine/ops/common/dispatch.h"
#include "engine/ops/common/shape_rules.h"
#include "engine/ops/nn/softmax_rows.h"

namespace braid {
namespace {

// x, y, dy, dx: [rows, n].

template <class T>
BRAID_VECTOR_CLONES void softmax(const T* x, const T*, T* y, std::int64_t rows, std::int64_t n) {
  T max[kSoftmaxTileRows], sum[kSoftmaxTileRows];
  exp_rows(x, rows, n, y, max, sum);
  for (std::int64_t r = 0; r < rows; ++r) {
    const T scale = T(1) / sum[r];
    for (std::int64_t j = 0; j < n; ++j) y[r * n + j] *= scale;
  }
}

template <class T>
BRAID_VECTOR_CLONES void log_softmax(const T* x, const T*, T* y, std::int64_t rows, std::int64_t n) {
  T max[kSoftmaxTileRows], sum[kSoftmaxTileRows];
  exp_rows(x, rows, n, y, max, sum);
  for (std::int64_t r = 0; r < rows; ++r) {
    const T m = max[r], shift = vec::log(sum[r]);
    for (std::int64_t j = 0; j < n; ++j) y[r * n + j] = (x[r * n + j] - m) - shift;
  }
}

template <class T>
BRAID_VECTOR_CLONES void softmax_grad(const T* y, const T* dy, T* dx, std::int64_t rows, std::int64_t n) {
  for (std::int64_t r = 0; r < rows; ++r, y += n, dy += n, dx += n) {
    for (std::int64_t j = 0; j < n; ++j) dx[j] = dy[j] * y[j];
    const T dot = reduce::run<reduce::Sum, T>(dx, n);
    for (std::int64_t j = 0; j < n; ++j) dx[j] = (dy[j] - dot) * y[j];
  }
}

template <class T>
BRAID_VECTOR_CLONES void log_softmax_grad(const T* y, const T* dy, T* dx, std::int64_t rows, std::int64_t n) {
  for (std::int64_t r = 0; r < rows; ++r) {
    const T sum = reduce::run<reduce::Sum, T>(dy + r * n, n);
    for (std::int64_t j = r * n; j < (r + 1) * n; ++j) dx[j] = dy[j] - vec::exp(y[j]) * sum;
  }
}

template <class T>
using RowLoop = void (*)(const T*, const T*, T*, std::int64_t rows, std::int64_t n);

struct Row {
  const char* name;
  int inputs;
  RowLoop<float> f32;
  RowLoop<double> f64;
  double flops;
  const char* gradient;  // the op that makes it, null where there is none

  template <class T>
  RowLoop<T> of() const {
    if constexpr (std::is_same_v<T, float>)
      return f32;
    else
      return f64;
  }
};

constexpr Row kRows[] = {
    {"Softmax", 1, softmax<float>, softmax<double>, 25, "braid.SoftmaxGrad"},
    {"LogSoftmax", 1, log_softmax<float>, log_softmax<double>, 25, "braid.LogSoftmaxGrad"},
    {"braid.SoftmaxGrad", 2, softmax_grad<float>, softmax_grad<double>, 4, nullptr},
    {"braid.LogSoftmaxGrad", 2, log_softmax_grad<float>, log_softmax_grad<double>, 23, nullptr},
};

PreparedKernel prepare(const PrepareContext& c, const Row& row) {
  const Shape& shape = c.outputs[0].shape;
  const std::int64_t n = shape[shape.rank() - 1];
  const std::int64_t rows = n == 0 ? 0 : shape.elements() / n;
  const int last = row.inputs - 1;
  return with_float(row.name, c.outputs[0].dtype, [&]<class T>() {
    return parallel_kernel(
        c, rows, row_grain(n),
        [n, last, loop = row.of<T>()](const KernelArgs& args, std::int64_t begin, std::int64_t end) {
          for_row_tiles(begin, end, n, [&](std::int64_t first, std::int64_t count) {
            const std::int64_t at = first * n;
            loop(args.in<T>(0) + at, args.in<T>(last) + at, args.out<T>(0) + at, count, n);
          });
        });
  });
}

void infer(InferContext& c) {
  require_floating(c, 0);
  require_min_rank(c, 0, 1);
  infer_same_shapes(c);
}

bool over_rows(fusion::StepWriter& w) {
  const Shape& shape = w.output_info().shape;
  w.over(shape, shape[shape.rank() - 1]);
  return true;
}

/// Exponentials of x - max, and their sums, as exp_rows().
struct ExpRows {
  int shifted, exponentials, sums;
  explicit ExpRows(fusion::StepWriter& w) {
    const int x = w.input(0);
    shifted = w.apply("Sub", {x, w.reduce(fusion::RowReduction::Max, x)});
    exponentials = w.apply("Exp", {shifted});
    sums = w.reduce(fusion::RowReduction::Sum, exponentials);
  }
};

bool fused_softmax(fusion::StepWriter& w) {
  over_rows(w);
  const ExpRows rows(w);
  w.output(0, w.apply("Mul", {rows.exponentials, w.apply("Reciprocal", {rows.sums})}));
  return true;
}

bool fused_log_softmax(fusion::StepWriter& w) {
  over_rows(w);
  const ExpRows rows(w);
  w.output(0, w.apply("Sub", {rows.shifted, w.apply("Log", {rows.sums})}));
  return true;
}

bool fused_softmax_grad(fusion::StepWriter& w) {
  over_rows(w);
  const int y = w.input(0), dy = w.input(1);
  const int dot = w.reduce(fusion::RowReduction::Sum, w.apply("Mul", {dy, y}));
  w.output(0, w.apply("Mul", {w.apply("Sub", {dy, dot}), y}));
  return true;
}

bool fused_log_softmax_grad(fusion::StepWriter& w) {
  over_rows(w);
  const int y = w.input(0), dy = w.input(1);
  const int sum = w.reduce(fusion::RowReduction::Sum, dy);
  w.output(0, w.apply("Sub", {dy, w.apply("Mul", {w.apply("Exp", {y}), sum})}));
  return true;
}

}  // namespace

void register_softmax(OpRegistry& registry) {
  for (const Row& row : kRows) {
    OpDef def;
    def.name = row.name;
    def.traits = computes().batched(Batching::Elementwise);
    def.min_inputs = def.max_inputs = row.inputs;
    def.infer = infer;
    if (row.gradient)
      def.gradient = [&row](GradContext& c) { c.set_grad(0, c.op(row.gradient, {c.output(), c.grad()})); };
    else
      def.no_gradient_reason = "it is part of a gradient; second derivatives are not made";
    def.cost = cost_per_output(row.flops);
    def.cpu = [&row](const PrepareContext& c) { return prepare(c, row); };
    registry.add(std::move(def));
  }
  fusion::rules().add("Softmax", {.steps = fused_softmax});
  fusion::rules().add("LogSoftmax", {.steps = fused_log_softmax});
  fusion::rules().add("braid.SoftmaxGrad", {.steps = fused_softmax_grad});
  fusion::rules().add("braid.LogSoftmaxGrad", {.steps = fused_log_softmax_grad});
}

}  // namespace braid
