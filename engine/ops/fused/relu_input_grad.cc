// What fusion makes of the backward pass of a layer with bias and ReLU that reads the model's own inputs x
// [m, k], a few columns: nobody needs the gradient of its sums but that of its weights, so it is not written.
//   braid.ReluInputGrad(dy, y, x) -> dw, db
// dy and y [m, n] are the gradient of the layer's output and the output. With dz = dy where y > 0, else 0:
// dw [k, n] = x^T dz, and db [n] = the sum of dz's rows.
#include "engine/ops/fused/relu_input_grad.h"

#include <algorithm>

#include "engine/ops/common/halves.h"
#include "engine/ops/common/kernel_util.h"
#include "engine/ops/common/shape_rules.h"

namespace braid {
namespace {

constexpr std::int64_t kColumnGrain = 64;  // a cache line of sums for each of four vectors

void infer(InferContext& c) {
  require_dtype(c, 0, {DType::Float32, DType::Float64});
  c.require_same_dtype(0, 1);
  c.require_same_dtype(0, 2);
  const Shape y = merged_shape(c, 0, 1), &x = c.shape(2);
  if (!y.has_rank() || !x.has_rank()) {
    c.output(c.dtype(0), Shape::unknown_rank());
    return c.output(c.dtype(0), Shape::unknown_rank());
  }
  if (y.rank() != 2 || x.rank() != 2)
    c.fail("expected matrices, got " + y.to_string() + " and " + x.to_string());
  if (y[0] >= 0 && x[0] >= 0 && y[0] != x[0])
    c.fail("the layer has " + std::to_string(y[0]) + " rows, its input " + std::to_string(x[0]));
  c.output(c.dtype(0), Shape{x[1], y[1]});
  c.output(c.dtype(0), Shape{y[1]});
}

template <class T>
BRAID_VECTOR_CLONES void add_row(const T* dy, const T* y, const T* x, T* dw, T* db, std::int64_t k,
                                 std::int64_t stride, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) db[i] += y[i] > T(0) ? dy[i] : T(0);
  for (std::int64_t j = 0; j < k; ++j)
    for (std::int64_t i = 0; i < n; ++i) dw[j * stride + i] += x[j] * (y[i] > T(0) ? dy[i] : T(0));
}

/// Rows are added from first to last, whatever the pool's width: blocks are of columns.
template <class T>
PreparedKernel prepare_of(const PrepareContext& c) {
  const std::int64_t m = c.inputs[1].shape[0], n = c.inputs[1].shape[1], k = c.inputs[2].shape[1];
  return parallel_kernel(c, n, kColumnGrain, [=](const KernelArgs& a, std::int64_t begin, std::int64_t end) {
    T* const dw = a.out<T>(0);
    T* const db = a.out<T>(1);
    std::fill(db + begin, db + end, T(0));
    for (std::int64_t j = 0; j < k; ++j) std::fill(dw + j * n + begin, dw + j * n + end, T(0));
    for (std::int64_t r = 0; r < m; ++r)
      add_row(a.in<T>(0) + r * n + begin, a.in<T>(1) + r * n + begin, a.in<T>(2) + r * k, dw + begin,
              db + begin, k, n, end - begin);
  });
}

PreparedKernel prepare(const PrepareContext& c) {
  return c.inputs[0].dtype == DType::Float64 ? prepare_of<double>(c) : prepare_of<float>(c);
}

}  // namespace

void register_relu_input_grad(OpRegistry& registry) {
  OpDef def;
  def.name = "braid.ReluInputGrad";
  def.traits = computes().names({"dw", "db"});
  def.min_inputs = def.max_inputs = 3;
  def.infer = infer;
  def.cost = cost_per_input(2 + 2 * kMostInputColumns);
  def.no_gradient_reason = "it is part of a gradient; second derivatives are not made";
  def.cpu = prepare;
  registry.add(takes_halves(std::move(def), {.kind = HalfKind::Follower, .inputs = {0, 1}}));
}

}  // namespace braid
