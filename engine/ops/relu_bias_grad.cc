// braid.ReluBiasGrad(dy [m, n], y [m, n]): dz = dy where y > 0, else 0, and db [n] = the sum of dz's rows:
// what the fusion pass makes of ReluGrad and BiasAddGrad behind a layer. Or of lanes of them: dy, y and dz
// [lanes, m, n], db [lanes, n].
#include "engine/ops/common/kernel_util.h"
#include "engine/ops/common/shape_rules.h"

namespace braid {
namespace {

constexpr std::int64_t kColumnGrain = 64;  // a cache line of partial sums for each of four vectors

void infer(InferContext& c) {
  require_dtype(c, 0, {DType::Float32, DType::Float64});
  c.require_same_dtype(0, 1);
  const Shape shape = merged_shape(c, 0, 1);
  if (!shape.has_rank()) {
    c.output(c.dtype(0), shape);
    return c.output(c.dtype(0), shape);
  }
  if (shape.rank() != 2 && shape.rank() != 3)
    c.fail("expected a matrix, or lanes of them, got " + shape.to_string());
  c.output(c.dtype(0), shape);
  c.output(c.dtype(0), shape.rank() == 2 ? Shape{shape[1]} : Shape{shape[0], shape[2]});
}

template <class T>
BRAID_VECTOR_CLONES void row(const T* dy, const T* y, T* dz, T* db, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) {
    dz[i] = y[i] > T(0) ? dy[i] : T(0);
    db[i] += dz[i];
  }
}

/// Rows are added from first to last, whatever the pool's width: blocks are of columns.
template <class T>
PreparedKernel prepare_of(const PrepareContext& c) {
  const Shape& shape = c.inputs[0].shape;
  const std::int64_t lanes = shape.rank() == 3 ? shape[0] : 1;
  const std::int64_t m = shape[shape.rank() - 2], n = shape[shape.rank() - 1];
  return parallel_kernel(
      c, n, kColumnGrain, [lanes, m, n](const KernelArgs& a, std::int64_t begin, std::int64_t end) {
        for (std::int64_t lane = 0; lane < lanes; ++lane) {
          T* const db = a.out<T>(1) + lane * n;
          std::fill(db + begin, db + end, T(0));
          for (std::int64_t r = lane * m; r < (lane + 1) * m; ++r) {
            const std::int64_t at = r * n + begin;
            row(a.in<T>(0) + at, a.in<T>(1) + at, a.out<T>(0) + at, db + begin, end - begin);
          }
        }
      });
}

PreparedKernel prepare(const PrepareContext& c) {
  return c.inputs[0].dtype == DType::Float64 ? prepare_of<double>(c) : prepare_of<float>(c);
}

}  // namespace

void register_relu_bias_grad(OpRegistry& registry) {
  OpDef def;
  def.name = "braid.ReluBiasGrad";
  def.min_inputs = def.max_inputs = 2;
  def.infer = infer;
  def.no_gradient_reason = "it is part of a gradient; second derivatives are not made";
  def.cost = cost_per_output(2);
  def.cpu = prepare;
  def.in_place = {{0, 0}};
  registry.add(std::move(def));
}

}  // namespace braid
