// braid.FusedMatMul(a, b, bias): y = act(op(a) op(b) + bias), what the fusion pass makes of MatMul, BiasAdd
// and Relu, or of their batched forms: then a is [lanes, m, k] or one [m, k] for all lanes, b likewise, bias
// [lanes, n] or [n], and y [lanes, m, n], or with the attribute `joined` [m, lanes, n]. Attributes
// transpose_a, transpose_b as MatMul's, `relu` bool. It is made after differentiation.
#include <algorithm>
#include <numeric>

#include "engine/ops/common/gemm.h"
#include "engine/ops/common/halves.h"
#include "engine/ops/common/kernel_util.h"
#include "engine/ops/common/shape_rules.h"

namespace braid {
namespace {

void infer(InferContext& c) {
  require_dtype(c, 0, {DType::Float32, DType::Float64});
  c.require_same_dtype(0, 1);
  c.require_same_dtype(0, 2);
  if (!c.shape(0).has_rank() || !c.shape(1).has_rank() || !c.shape(2).has_rank())
    return c.output(c.dtype(0), Shape::unknown_rank());
  const int rank = std::max(c.shape(0).rank(), c.shape(1).rank());
  const auto has_rank = [&](int input, int least, int most) {
    return c.shape(input).rank() >= least && c.shape(input).rank() <= most;
  };
  if (rank > 3 || !has_rank(0, 2, 3) || !has_rank(1, 2, 3) || !has_rank(2, 1, rank - 1))
    c.fail("expected matrices, or lanes of them, and a bias");
  std::int64_t lanes = Shape::kUnknown;
  for (int input = 0; input < 3; ++input) {
    if (c.shape(input).rank() != (input < 2 ? 3 : 2)) continue;
    const std::int64_t here = c.shape(input)[0];
    if (lanes >= 0 && here >= 0 && lanes != here) c.fail("the numbers of lanes differ");
    lanes = std::max(lanes, here);
  }
  const auto dim = [&](int input, int from_end) { return c.shape(input)[c.shape(input).rank() - from_end]; };
  const bool ta = c.attr<bool>("transpose_a", false), tb = c.attr<bool>("transpose_b", false);
  const std::int64_t ka = dim(0, ta ? 2 : 1), kb = dim(1, tb ? 1 : 2), n = dim(1, tb ? 2 : 1);
  if (ka >= 0 && kb >= 0 && ka != kb) c.fail("inner sizes differ");
  if (n >= 0 && dim(2, 1) >= 0 && n != dim(2, 1)) c.fail("the bias does not fit the columns");
  const std::int64_t m = dim(0, ta ? 1 : 2);
  if (rank == 2) return c.output(c.dtype(0), Shape{m, n});
  c.output(c.dtype(0), c.attr<bool>("joined", false) ? Shape{m, lanes, n} : Shape{lanes, m, n});
}

template <class T>
BRAID_VECTOR_CLONES void add_bias(T* y, const T* bias, std::int64_t columns, bool relu) {
  if (relu)
    for (std::int64_t i = 0; i < columns; ++i) {
      const T x = y[i] + bias[i];
      y[i] = x < T(0) ? T(0) : x;
    }
  else
    for (std::int64_t i = 0; i < columns; ++i) y[i] += bias[i];
}

template <class T>
PreparedKernel with_epilogue(const PrepareContext& c, PreparedKernel gemm, const Gemm& g, bool joined) {
  PreparedKernel kernel;
  const bool relu = c.attr<bool>("relu", false);
  const std::int64_t bias_stride = c.inputs[2].shape.rank() == 2 ? g.n : 0;
  const std::int64_t lanes = g.batch();
  // Joined lanes are multiplied apart, in scratch memory behind the product's own.
  const std::size_t apart = (gemm.scratch_bytes + 63) / 64 * 64;
  kernel.scratch_bytes =
      joined ? apart + static_cast<std::size_t>(lanes * g.m * g.n) * sizeof(T) : gemm.scratch_bytes;
  kernel.run = [product = std::move(gemm.run), pool = &c.pool, lanes, m = g.m, n = g.n, bias_stride, relu,
                joined, apart](const KernelArgs& a) {
    void* product_out = joined ? static_cast<std::byte*>(a.scratch) + apart : a.outputs[0];
    KernelArgs of_product = a;
    of_product.outputs = &product_out;
    product(of_product);
    const T* const from = static_cast<const T*>(product_out);
    pool->parallel_range(lanes * m, row_grain(n), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t row = begin; row < end; ++row) {
        const std::int64_t lane = row / m;
        T* const y = a.out<T>(0) + (joined ? (row % m * lanes + lane) * n : row * n);
        if (joined) std::copy_n(from + row * n, n, y);
        add_bias(y, a.in<T>(2) + lane * bias_stride, n, relu);
      }
    });
  };
  return kernel;
}

PreparedKernel prepare(const PrepareContext& c) {
  const Shape &a = c.inputs[0].shape, &b = c.inputs[1].shape, &y = c.outputs[0].shape;
  Gemm g;
  g.transpose_a = c.attr<bool>("transpose_a", false);
  g.transpose_b = c.attr<bool>("transpose_b", false);
  const bool joined = y.rank() == 3 && c.attr<bool>("joined", false);
  g.m = y[joined ? 0 : y.rank() - 2];
  g.n = y[y.rank() - 1];
  g.k = a[a.rank() - (g.transpose_a ? 2 : 1)];
  const auto lanes = static_cast<std::size_t>(y.rank() == 3 ? y[joined ? 1 : 0] : 1);
  g.a_index.assign(lanes, 0);
  g.b_index.assign(lanes, 0);
  if (a.rank() == 3) std::iota(g.a_index.begin(), g.a_index.end(), 0);
  if (b.rank() == 3) std::iota(g.b_index.begin(), g.b_index.end(), 0);
  if (c.outputs[0].dtype == DType::Float64) return with_epilogue<double>(c, prepare_gemm(c, g), g, joined);
  return with_epilogue<float>(c, prepare_gemm(c, g), g, joined);
}

Cost cost(const InferContext& c, std::span<const OutputInfo> outputs) {
  const Shape& a = c.shape(0);
  const int axis = a.has_rank() ? a.rank() - (c.attr<bool>("transpose_a", false) ? 2 : 1) : 0;
  const double k = a.has_rank() && a[axis] > 0 ? static_cast<double>(a[axis]) : 1;
  return {(2 * k + 2) * known_elements(outputs[0].shape), traffic_bytes(c, outputs)};
}

}  // namespace

void register_fused_matmul(OpRegistry& registry) {
  OpDef def;
  def.name = "braid.FusedMatMul";
  def.traits = computes();
  def.min_inputs = def.max_inputs = 3;
  def.infer = infer;
  def.no_gradient_reason = "fusion makes it after differentiation";
  def.cost = cost;
  def.cpu = prepare;
  registry.add(takes_halves(std::move(def), {.inputs = {0, 1}, .outputs = {0}, .like_output = 2}));
}

}  // namespace braid
