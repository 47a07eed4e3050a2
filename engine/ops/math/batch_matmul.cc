// BatchMatMul, BatchMatMulV2, BatchMatMulV3: products of the matrices in the last two axes; attributes adj_x,
// adj_y transpose them (the types are real). The leading axes must be equal, or, from V2 on, broadcast.
// Gradient: as MatMul's, summed over entries that were repeated.
#include <fmt/format.h>

#include <algorithm>

#include "engine/ops/common/broadcast.h"
#include "engine/ops/common/gemm.h"
#include "engine/ops/common/halves.h"
#include "engine/ops/common/shape_rules.h"
#include "engine/ops/math/batch_shape.h"

namespace braid {
namespace {

void infer(InferContext& c, bool broadcasts) {
  require_number(c, 0);
  c.require_same_dtype(0, 1);
  require_min_rank(c, 0, 2);
  require_min_rank(c, 1, 2);
  const bool adj_x = c.attr<bool>("adj_x", false), adj_y = c.attr<bool>("adj_y", false);
  const Shape &x = c.shape(0), &y = c.shape(1);
  const std::int64_t kx = size_at(x, adj_x ? 2 : 1), ky = size_at(y, adj_y ? 1 : 2);
  if (kx != Shape::kUnknown && ky != Shape::kUnknown && kx != ky)
    c.fail(fmt::format("inner sizes differ: {}{} times {}{}", x.to_string(), adj_x ? " transposed" : "",
                       y.to_string(), adj_y ? " transposed" : ""));
  if (!x.has_rank() || !y.has_rank()) return c.output(c.dtype(0), Shape::unknown_rank());
  Shape batch;
  const bool fits = broadcasts ? broadcast_shapes(batch_of(x), batch_of(y), batch)
                               : merge_shapes(batch_of(x), batch_of(y), batch);
  if (!fits) c.fail(fmt::format("leading axes do not fit: {} and {}", x.to_string(), y.to_string()));
  std::vector<std::int64_t> dims(batch.dims().begin(), batch.dims().end());
  dims.push_back(size_at(x, adj_x ? 1 : 2));
  dims.push_back(size_at(y, adj_y ? 2 : 1));
  c.output(c.dtype(0), Shape(std::move(dims)));
}

PreparedKernel prepare(const PrepareContext& c) {
  Gemm g;
  g.transpose_a = c.attr<bool>("adj_x", false);
  g.transpose_b = c.attr<bool>("adj_y", false);
  const Shape &x = c.inputs[0].shape, &y = c.inputs[1].shape, &out = c.outputs[0].shape;
  g.m = size_at(out, 2);
  g.n = size_at(out, 1);
  g.k = size_at(x, g.transpose_a ? 2 : 1);
  g.a_index.clear();
  g.b_index.clear();
  const Shape x_batch = batch_of(x), y_batch = batch_of(y);
  const BroadcastPlan plan({&x_batch, &y_batch}, batch_of(out));
  plan.for_runs(0, plan.elements(),
                [&](std::int64_t, const BroadcastPlan::Positions& from, std::int64_t count) {
                  for (std::int64_t i = 0; i < count; ++i) {
                    g.a_index.push_back(from[0] + i * plan.inner_stride(0));
                    g.b_index.push_back(from[1] + i * plan.inner_stride(1));
                  }
                });
  return prepare_gemm(c, g);
}

void set_summed_grad(GradContext& c, int i, ValueRef gradient) {
  const Shape &in = c.input_info(i).shape, &out = c.output_info().shape;
  const bool same = in.is_static() && out.is_static() && batch_of(in) == batch_of(out);
  c.set_grad(i, same ? gradient : c.reduce_to(gradient, c.input(i)));
}

void gradient(GradContext& c) {
  const bool adj_x = c.node().attrs.get<bool>("adj_x", false);
  const bool adj_y = c.node().attrs.get<bool>("adj_y", false);
  const ValueRef x = c.input(0), y = c.input(1), dz = c.grad();
  const auto product = [&](ValueRef a, ValueRef b, bool ta, bool tb) {
    return c.op("BatchMatMulV2", {a, b}, {{"adj_x", ta}, {"adj_y", tb}});
  };
  set_summed_grad(c, 0, adj_x ? product(y, dz, adj_y, true) : product(dz, y, false, !adj_y));
  set_summed_grad(c, 1, adj_y ? product(dz, x, true, adj_x) : product(x, dz, !adj_x, false));
}

/// Batches of vectors, and of small matrices, have kernels of float32 on a device.
bool pays_in_halves(const Node& node, std::span<const OutputInfo> inputs) {
  constexpr std::int64_t kLeast = 16;
  const Shape &x = inputs[0].shape, &y = inputs[1].shape;
  const bool adj_x = node.attrs.get<bool>("adj_x", false), adj_y = node.attrs.get<bool>("adj_y", false);
  const std::int64_t m = size_at(x, adj_x ? 1 : 2), k = size_at(x, adj_x ? 2 : 1);
  const std::int64_t n = size_at(y, adj_y ? 2 : 1);
  return std::min({m, n, k}) >= kLeast && (std::max({m, n, k}) >= 4 * kLeast || batch_of(x).elements() < 64);
}

Cost cost(const InferContext& c, std::span<const OutputInfo> outputs) {
  const std::int64_t k = size_at(c.shape(0), c.attr<bool>("adj_x", false) ? 2 : 1);
  return {2 * (k > 0 ? static_cast<double>(k) : 1) * known_elements(outputs[0].shape),
          traffic_bytes(c, outputs)};
}

}  // namespace

void register_batch_matmul(OpRegistry& registry) {
  for (const char* name : {"BatchMatMul", "BatchMatMulV2", "BatchMatMulV3"}) {
    const bool broadcasts = std::string_view(name) != "BatchMatMul";
    OpDef def;
    def.name = name;
    def.traits = computes().batched(Batching::BatchMatMul);
    def.min_inputs = def.max_inputs = 2;
    def.infer = [broadcasts](InferContext& c) { infer(c, broadcasts); };
    def.gradient = gradient;
    def.cost = cost;
    def.cpu = prepare;
    // The one that fusions look for: horizontal fusion makes it.
    if (std::string_view(name) == "BatchMatMulV2")
      def.product = {.transpose_a = "adj_x", .transpose_b = "adj_y"};
    registry.add(takes_halves(std::move(def), {.inputs = {0, 1}, .outputs = {0}, .pays = pays_in_halves}));
  }
}

}  // namespace braid
