// braid.FusedMatMul(a, b, bias): y = act(op(a) op(b) + bias), what the fusion pass makes of MatMul, BiasAdd
// and Relu. Attributes transpose_a, transpose_b as MatMul's, `relu` bool. It is made after differentiation.
#include <algorithm>

#include "engine/ops/common/gemm.h"
#include "engine/ops/common/kernel_util.h"
#include "engine/ops/common/shape_rules.h"

namespace braid {
namespace {

void infer(InferContext& c) {
  require_dtype(c, 0, {DType::Float32, DType::Float64});
  c.require_same_dtype(0, 1);
  c.require_same_dtype(0, 2);
  c.require_rank(0, 2);
  c.require_rank(1, 2);
  c.require_rank(2, 1);
  const auto dim = [&](int input, int axis) {
    return c.shape(input).has_rank() ? c.shape(input)[axis] : Shape::kUnknown;
  };
  const bool ta = c.attr<bool>("transpose_a", false), tb = c.attr<bool>("transpose_b", false);
  if (dim(0, ta ? 0 : 1) >= 0 && dim(1, tb ? 1 : 0) >= 0 && dim(0, ta ? 0 : 1) != dim(1, tb ? 1 : 0))
    c.fail("inner sizes differ");
  if (dim(1, tb ? 0 : 1) >= 0 && dim(2, 0) >= 0 && dim(1, tb ? 0 : 1) != dim(2, 0))
    c.fail("the bias does not fit the columns");
  c.output(c.dtype(0), Shape{dim(0, ta ? 1 : 0), dim(1, tb ? 0 : 1)});
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
PreparedKernel with_epilogue(const PrepareContext& c, PreparedKernel gemm, const Gemm& g) {
  PreparedKernel kernel;
  kernel.scratch_bytes = gemm.scratch_bytes;
  const bool relu = c.attr<bool>("relu", false);
  kernel.run = [product = std::move(gemm.run), pool = &c.pool, m = g.m, n = g.n, relu](const KernelArgs& a) {
    product(a);
    pool->parallel_range(m, row_grain(n), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t row = begin; row < end; ++row) add_bias(a.out<T>(0) + row * n, a.in<T>(2), n, relu);
    });
  };
  return kernel;
}

PreparedKernel prepare(const PrepareContext& c) {
  Gemm g;
  g.transpose_a = c.attr<bool>("transpose_a", false);
  g.transpose_b = c.attr<bool>("transpose_b", false);
  g.m = c.outputs[0].shape[0];
  g.n = c.outputs[0].shape[1];
  g.k = c.inputs[0].shape[g.transpose_a ? 0 : 1];
  if (c.outputs[0].dtype == DType::Float64) return with_epilogue<double>(c, prepare_gemm(c, g), g);
  return with_epilogue<float>(c, prepare_gemm(c, g), g);
}

Cost cost(const InferContext& c, std::span<const OutputInfo> outputs) {
  const Shape& a = c.shape(0);
  const int axis = c.attr<bool>("transpose_a", false) ? 0 : 1;
  const double k = a.has_rank() && a[axis] > 0 ? static_cast<double>(a[axis]) : 1;
  return {(2 * k + 2) * known_elements(outputs[0].shape), traffic_bytes(c, outputs)};
}

}  // namespace

void register_fused_matmul(OpRegistry& registry) {
  OpDef def;
  def.name = "braid.FusedMatMul";
  def.min_inputs = def.max_inputs = 3;
  def.infer = infer;
  def.no_gradient_reason = "fusion makes it after differentiation";
  def.cost = cost;
  def.cpu = prepare;
  registry.add(std::move(def));
}

}  // namespace braid
