// What fusion makes of plain gradient descent by a gradient that is a product:
//   braid.DescentScale() -> [2]                      -learning rate * gradient scale of the step, and 1
//   braid.ProductUpdate(handle, scale, a, b)         variable += scale[0] op(a) op(b)
// with attributes transpose_a, transpose_b. The variable is a matrix, or [lanes, m, n]; a and b are matrices,
// or of as many lanes. The gradient is never written.
#include "engine/ops/fused/product_update.h"

#include <algorithm>
#include <numeric>

#include "engine/ops/common/gemm.h"
#include "engine/ops/common/halves.h"
#include "engine/ops/common/kernel_util.h"
#include "engine/ops/common/shape_rules.h"

namespace braid {
namespace {

constexpr std::size_t kScratchAlignment = 64;

void infer_scale(InferContext& c) { c.output(DType::Float32, Shape{2}); }

PreparedKernel prepare_scale(const PrepareContext&) {
  return serial_kernel([](const KernelArgs& a) {
    a.out<float>(0)[0] = -a.params->learning_rate * a.params->grad_scale;
    a.out<float>(0)[1] = 1;
  });
}

void infer_update(InferContext& c) {
  if (c.dtype(UpdateProduct::kHandle) != DType::Resource) c.fail("input 0 must be a variable's handle");
  for (int i = 1; i < 4; ++i) require_dtype(c, i, {DType::Float32});
  c.require_rank(UpdateProduct::kScale, 1);
  const Shape &variable = c.shape(0), &a = c.shape(2), &b = c.shape(3);
  if (!variable.has_rank() || !a.has_rank() || !b.has_rank()) return;
  if (variable.rank() < 2 || variable.rank() > 3)
    c.fail("expected a variable that is a matrix, or lanes of them, got " + variable.to_string());
  for (const Shape* operand : {&a, &b})
    if (operand->rank() < 2 || operand->rank() > variable.rank())
      c.fail("expected matrices, or as many lanes as the variable has, got " + operand->to_string());
  const auto require_equal = [&](std::int64_t x, std::int64_t y, const char* what) {
    if (x >= 0 && y >= 0 && x != y) c.fail(std::string(what) + " differ");
  };
  const auto dim = [](const Shape& s, int from_end) { return s[s.rank() - from_end]; };
  const bool ta = c.attr<bool>("transpose_a", false), tb = c.attr<bool>("transpose_b", false);
  require_equal(dim(a, ta ? 2 : 1), dim(b, tb ? 1 : 2), "inner sizes");
  require_equal(dim(a, ta ? 1 : 2), dim(variable, 2), "rows of the product and the variable");
  require_equal(dim(b, tb ? 2 : 1), dim(variable, 1), "columns of the product and the variable");
  for (const Shape* operand : {&a, &b})
    if (operand->rank() == 3) require_equal((*operand)[0], variable[0], "the numbers of lanes");
}

BRAID_VECTOR_CLONES void add_scaled(float* w, const float* x, float scale, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) w[i] += scale * x[i];
}

PreparedKernel prepare_update(const PrepareContext& c) {
  const UpdateProduct p(c.node, c.inputs[0].shape, c.inputs[2].shape, c.inputs[3].shape);
  if (c.inputs[0].dtype != DType::Float32) c.fail("the variable must hold float32");
  Gemm g;
  g.m = p.m;
  g.n = p.n;
  g.k = p.k;
  g.transpose_a = p.transpose_a;
  g.transpose_b = p.transpose_b;
  g.a_index.assign(static_cast<std::size_t>(p.lanes), 0);
  g.b_index = g.a_index;
  if (p.own_a) std::iota(g.a_index.begin(), g.a_index.end(), 0);
  if (p.own_b) std::iota(g.b_index.begin(), g.b_index.end(), 0);
  const std::vector<OutputInfo> product{{DType::Float32, c.inputs[0].shape}};
  PrepareContext of_product{c.node, c.inputs.subspan(2), product,         c.values.subspan(2),
                            c.pool, c.services,          c.deterministic, c.accelerator};
  PreparedKernel gemm = prepare_gemm(of_product, g);
  const std::size_t apart =
      (gemm.scratch_bytes + kScratchAlignment - 1) / kScratchAlignment * kScratchAlignment;
  PreparedKernel kernel;
  kernel.scratch_bytes = apart + static_cast<std::size_t>(p.elements()) * sizeof(float);
  kernel.run = [multiply = std::move(gemm.run), pool = &c.pool, apart,
                n = p.elements()](const KernelArgs& a) {
    void* out = static_cast<std::byte*>(a.scratch) + apart;
    KernelArgs args = a;
    args.inputs = a.inputs + UpdateProduct::kA;
    args.outputs = &out;
    multiply(args);
    pool->parallel_range(n, kElementGrain, [&](std::int64_t begin, std::int64_t end) {
      add_scaled(a.var<float>(UpdateProduct::kHandle) + begin, static_cast<const float*>(out) + begin,
                 a.in<float>(UpdateProduct::kScale)[0], end - begin);
    });
  };
  return kernel;
}

Cost cost(const InferContext& c, std::span<const OutputInfo>) {
  const Shape &variable = c.shape(0), &a = c.shape(2);
  const int axis = a.has_rank() ? a.rank() - (c.attr<bool>("transpose_a", false) ? 2 : 1) : 0;
  const double k = a.has_rank() && a[axis] > 0 ? static_cast<double>(a[axis]) : 1;
  const double elements = known_elements(variable);
  return {(2 * k + 2) * elements,
          known_bytes({DType::Float32, a}) + known_bytes({DType::Float32, c.shape(3)}) + 8 * elements};
}

}  // namespace

UpdateProduct::UpdateProduct(const Node& node, const Shape& variable, const Shape& a, const Shape& b)
    : transpose_a(node.attrs.get<bool>("transpose_a", false)),
      transpose_b(node.attrs.get<bool>("transpose_b", false)),
      lanes(variable.rank() == 3 ? variable[0] : 1),
      m(variable[variable.rank() - 2]),
      n(variable[variable.rank() - 1]),
      k(a[a.rank() - (transpose_a ? 2 : 1)]),
      own_a(a.rank() == 3),
      own_b(b.rank() == 3) {}

void register_product_update(OpRegistry& registry) {
  OpDef scale;
  scale.name = "braid.DescentScale";
  scale.traits = computes();
  scale.infer = infer_scale;
  scale.no_gradient_reason = "fusion makes it after differentiation";
  scale.cpu = prepare_scale;
  scale.stateful = true;  // it changes from step to step
  registry.add(std::move(scale));

  OpDef update;
  update.name = "braid.ProductUpdate";
  update.traits = updates();
  update.product = {"transpose_a", "transpose_b", UpdateProduct::kA, UpdateProduct::kB};
  update.min_inputs = update.max_inputs = 4;
  update.infer = infer_update;
  update.no_gradient_reason = "it writes a variable";
  update.cost = cost;
  update.cpu = prepare_update;
  update.handles = {Access::ReadWrite};
  update.side_effect = true;
  registry.add(takes_halves(std::move(update), {.inputs = {UpdateProduct::kA, UpdateProduct::kB}}));
}

}  // namespace braid
