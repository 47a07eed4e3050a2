// braid.PairDots(x [b, n, d]) -> y [b, p]: y[., k] = <x[., i], x[., j]> for the k-th of the attribute
// "pairs", and its gradient braid.PairDotsGrad(dy [b, p], x [b, n, d]) -> dx [b, n, d]. The compiler makes
// them of the product of all pairs of vectors of which some are gathered (engine/passes/fuse_pair_dots.cc).
#include "engine/ops/common/pair_dots.h"

#include <algorithm>
#include <set>
#include <vector>

#include "engine/ops/common/kernel_util.h"
#include "engine/ops/common/shape_rules.h"

namespace braid {

bool pairs_differ(std::span<const std::int64_t> pairs, std::int64_t n) {
  std::set<std::pair<std::int64_t, std::int64_t>> seen;
  return std::all_of(pairs.begin(), pairs.end(), [&](std::int64_t pair) {
    return pair >= 0 && pair < n * n && seen.insert(std::minmax({pair / n, pair % n})).second;
  });
}

namespace {

using Pairs = std::vector<std::int64_t>;

/// The input `x`, [b, n, d]. Fails where the pairs do not fit it.
Shape vectors(InferContext& c, int x) {
  require_dtype(c, x, {DType::Float32, DType::Float64});
  const Shape shape = c.shape(x).has_rank() ? c.shape(x) : Shape{-1, -1, -1};
  if (shape.rank() != 3) c.fail("expected vectors [b, n, d], got " + shape.to_string());
  if (shape[1] >= 0 && !pairs_differ(c.attr<Pairs>("pairs", {}), shape[1]))
    c.fail("pairs: expected different ones of " + std::to_string(shape[1]) + " vectors");
  return shape;
}

std::int64_t pair_count(const InferContext& c) {
  return static_cast<std::int64_t>(c.attr<Pairs>("pairs", {}).size());
}

void infer(InferContext& c) { c.output(c.dtype(0), {vectors(c, 0)[0], pair_count(c)}); }

void infer_grad(InferContext& c) {
  c.require_same_dtype(0, 1);
  const Shape x = vectors(c, 1), dy = c.shape(0);
  if (dy.has_rank() && (dy.rank() != 2 || (dy[1] >= 0 && dy[1] != pair_count(c))))
    c.fail("expected a gradient [b, " + std::to_string(pair_count(c)) + "], got " + dy.to_string());
  c.output(c.dtype(1), x);
}

template <class T>
BRAID_VECTOR_CLONES T dot(const T* a, const T* b, std::int64_t d) {
  T sum = 0;
  for (std::int64_t k = 0; k < d; ++k) sum += a[k] * b[k];
  return sum;
}

template <class T>
BRAID_VECTOR_CLONES void add_scaled(T* to, T factor, const T* from, std::int64_t d) {
  for (std::int64_t k = 0; k < d; ++k) to[k] += factor * from[k];
}

template <class T>
PreparedKernel prepare_of(const PrepareContext& c) {
  const Shape& x = c.inputs[0].shape;
  const std::int64_t n = x[1], d = x[2];
  return parallel_kernel(
      c, x[0], row_grain(n * n * d),
      [n, d, pairs = c.attr<Pairs>("pairs", {})](const KernelArgs& a, std::int64_t begin, std::int64_t end) {
        const auto p = static_cast<std::int64_t>(pairs.size());
        for (std::int64_t b = begin; b < end; ++b) {
          const T* const vectors = a.in<T>(0) + b * n * d;
          for (std::int64_t k = 0; k < p; ++k) {
            const std::int64_t pair = pairs[static_cast<std::size_t>(k)];
            a.out<T>(0)[b * p + k] = dot(vectors + pair / n * d, vectors + pair % n * d, d);
          }
        }
      });
}

template <class T>
PreparedKernel prepare_grad_of(const PrepareContext& c) {
  const Shape& x = c.inputs[1].shape;
  const std::int64_t n = x[1], d = x[2];
  return parallel_kernel(
      c, x[0], row_grain(n * n * d),
      [n, d, pairs = c.attr<Pairs>("pairs", {})](const KernelArgs& a, std::int64_t begin, std::int64_t end) {
        const auto p = static_cast<std::int64_t>(pairs.size());
        for (std::int64_t b = begin; b < end; ++b) {
          const T* const vectors = a.in<T>(1) + b * n * d;
          T* const gradient = a.out<T>(0) + b * n * d;
          std::fill(gradient, gradient + n * d, T(0));
          for (std::int64_t k = 0; k < p; ++k) {
            const std::int64_t i = pairs[static_cast<std::size_t>(k)] / n,
                               j = pairs[static_cast<std::size_t>(k)] % n;
            const T dy = a.in<T>(0)[b * p + k];
            add_scaled(gradient + i * d, dy, vectors + j * d, d);
            add_scaled(gradient + j * d, dy, vectors + i * d, d);
          }
        }
      });
}

PreparedKernel prepare(const PrepareContext& c) {
  return c.inputs[0].dtype == DType::Float64 ? prepare_of<double>(c) : prepare_of<float>(c);
}
PreparedKernel prepare_grad(const PrepareContext& c) {
  return c.inputs[0].dtype == DType::Float64 ? prepare_grad_of<double>(c) : prepare_grad_of<float>(c);
}

Cost cost(const InferContext& c, std::span<const OutputInfo> outputs) {
  const Shape& x = c.shape(c.node().inputs.size() == 1 ? 0 : 1);
  const double flops = x.is_static() ? 4.0 * static_cast<double>(x.elements() * x[1]) : 0;
  return {flops, traffic_bytes(c, outputs)};
}

}  // namespace

void register_pair_dots(OpRegistry& registry) {
  OpDef def;
  def.name = "braid.PairDots";
  def.min_inputs = def.max_inputs = 1;
  def.infer = infer;
  def.no_gradient_reason = "fusion makes it after differentiation";
  def.cost = cost;
  def.cpu = prepare;
  registry.add(std::move(def));

  OpDef grad;
  grad.name = "braid.PairDotsGrad";
  grad.min_inputs = grad.max_inputs = 2;
  grad.infer = infer_grad;
  grad.no_gradient_reason = "fusion makes it after differentiation";
  grad.cost = cost;
  grad.cpu = prepare_grad;
  registry.add(std::move(grad));
}

}  // namespace braid
