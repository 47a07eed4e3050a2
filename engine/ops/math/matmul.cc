// MatMul: y = op(a) op(b) of matrices; attributes transpose_a, transpose_b.
// Gradient: of y = a b, da = dy b^T and db = a^T dy; with transposed operands the same with the factors
// swapped as needed.
#include <fmt/format.h>

#include "engine/ops/common/gemm.h"
#include "engine/ops/common/halves.h"
#include "engine/ops/common/shape_rules.h"

namespace braid {
namespace {

void infer(InferContext& c) {
  require_number(c, 0);
  c.require_same_dtype(0, 1);
  c.require_rank(0, 2);
  c.require_rank(1, 2);
  const bool ta = c.attr<bool>("transpose_a", false), tb = c.attr<bool>("transpose_b", false);
  const auto dim = [&](int input, int axis) {
    return c.shape(input).has_rank() ? c.shape(input)[axis] : Shape::kUnknown;
  };
  const std::int64_t ka = dim(0, ta ? 0 : 1), kb = dim(1, tb ? 1 : 0);
  if (ka != Shape::kUnknown && kb != Shape::kUnknown && ka != kb)
    c.fail(fmt::format("inner sizes differ: {}{} times {}{}", c.shape(0).to_string(), ta ? " transposed" : "",
                       c.shape(1).to_string(), tb ? " transposed" : ""));
  c.output(c.dtype(0), Shape{dim(0, ta ? 1 : 0), dim(1, tb ? 0 : 1)});
}

PreparedKernel prepare(const PrepareContext& c) {
  Gemm g;
  g.transpose_a = c.attr<bool>("transpose_a", false);
  g.transpose_b = c.attr<bool>("transpose_b", false);
  g.m = c.outputs[0].shape[0];
  g.n = c.outputs[0].shape[1];
  g.k = c.inputs[0].shape[g.transpose_a ? 0 : 1];
  return prepare_gemm(c, g);
}

void gradient(GradContext& c) {
  const bool ta = c.node().attrs.get<bool>("transpose_a", false);
  const bool tb = c.node().attrs.get<bool>("transpose_b", false);
  const ValueRef a = c.input(0), b = c.input(1), dy = c.grad();
  const auto product = [&](ValueRef x, ValueRef y, bool tx, bool ty) {
    return c.op("MatMul", {x, y}, {{"transpose_a", tx}, {"transpose_b", ty}});
  };
  c.set_grad(0, ta ? product(b, dy, tb, true) : product(dy, b, false, !tb));
  c.set_grad(1, tb ? product(dy, a, true, ta) : product(a, dy, !ta, false));
}

Cost cost(const InferContext& c, std::span<const OutputInfo> outputs) {
  const bool ta = c.attr<bool>("transpose_a", false);
  const Shape& a = c.shape(0);
  const double k = a.has_rank() && a[ta ? 0 : 1] > 0 ? static_cast<double>(a[ta ? 0 : 1]) : 1;
  return {2 * k * known_elements(outputs[0].shape), traffic_bytes(c, outputs)};
}

}  // namespace

void register_matmul(OpRegistry& registry) {
  OpDef def;
  def.name = "MatMul";
  def.traits = computes().batched(Batching::MatMul);
  def.product = {.transpose_a = "transpose_a", .transpose_b = "transpose_b"};
  def.min_inputs = def.max_inputs = 2;
  def.infer = infer;
  def.gradient = gradient;
  def.cost = cost;
  def.cpu = prepare;
  registry.add(takes_halves(std::move(def), {.inputs = {0, 1}, .outputs = {0}}));
}

}  // namespace braid
